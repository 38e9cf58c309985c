"""Tests of channels: creation, changes and removal, members and their roles, and the history of names."""

from typing import Any

import msgspec
import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import START_MS, BrokerHarness, content
from tieline.contract import channel as ch
from tieline.contract import command as c
from tieline.contract.event import ChannelChanged, Subscribed, Unsubscribed
from tieline.contract.hub import ChannelAppeared, ChannelVanished, SubscriptionsChanged
from tieline.contract.identifiers import GENERAL, USERS, ChannelName, MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.member import MemberKind
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Channels, ChannelState, ChannelView, Done, History

ADA, BOB, CY = MemberName("ada"), MemberName("bob"), MemberName("cy")


class Club:
    """Test helper with the members ada, bob and cy, who create, change and use channels."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.sessions = {name: harness.join(name) for name in ("ada", "bob", "cy")}

    def create(self, by: str, name: str) -> ChannelView:
        return self.harness.expect(ChannelState, c.CreateChannel(self.sessions[by], name=ChannelName(name))).channel

    def change(self, by: str, channel: str, change: ch.AnyChange) -> ChannelView:
        return self.harness.expect(
            ChannelState, c.ChangeChannel(self.sessions[by], channel=channel, change=change)
        ).channel

    def refused(self, by: str, channel: str, change: ch.AnyChange) -> Code:
        return self.harness.refused(c.ChangeChannel(self.sessions[by], channel=channel, change=change)).code

    def view(self, channel: str) -> ChannelView:
        return self.harness.expect(ChannelState, c.ViewChannel(self.sessions["ada"], channel=channel)).channel

    def roles(self, channel: str) -> dict[str, str]:
        return {member.name: member.role.value for member in self.view(channel).members}

    def listed(self) -> list[str]:
        return [view.name for view in self.harness.expect(Channels, c.ListChannels(self.sessions["ada"])).channels]

    def say(self, by: str, target: str, body: str) -> None:
        self.harness.expect(Accepted, c.Send(self.sessions[by], content=content(target, body), allow_empty=True))

    def history(self, by: str | None, peer: str | None = None) -> list[str]:
        session = self.harness.operator if by is None else self.sessions[by]
        return [said.content.body for said in self.harness.expect(History, c.ReadHistory(session, peer=peer)).messages]

    def attach(self) -> None:
        """Open the sessions again, after a restart of the hub."""
        self.sessions = {name: self.harness.attach(name) for name in self.sessions}


@pytest.fixture
def club(harness: BrokerHarness) -> Club:
    return Club(harness)


# Creating channels.


def test_whoever_makes_a_channel_is_its_admin(club: Club) -> None:
    made = club.create("ada", "dev")
    admin = ch.ChannelMember(ADA, ch.Role.ADMIN, START_MS)
    assert made == ChannelView(
        name=ChannelName("dev"),
        subscribers=(ADA,),
        id=made.id,
        created_by="ada",
        created_at_ms=START_MS,
        archived_at_ms=None,
        members=(admin,),
    )
    assert made.id
    assert club.harness.outcome.changes == [SubscriptionsChanged(ADA), ChannelAppeared(ChannelName("dev"), made.id)]
    assert club.view("dev") == club.view(made.id) == made
    events = [event for event in club.harness.events() if isinstance(event, ChannelChanged | Subscribed)]
    assert events == [Subscribed("ada", "dev"), ChannelChanged(id=made.id, name="dev", by="ada", what="create")]


def test_whoever_subscribes_first_makes_the_channel_and_is_its_admin(club: Club) -> None:
    club.harness.subscribe(club.sessions["bob"], "dev")
    club.harness.subscribe(club.sessions["ada"], "dev")
    assert club.roles("dev") == {"bob": "admin", "ada": "member"}
    assert club.view("dev").created_by == "bob"
    assert club.view("dev").subscribers == (ADA, BOB)


@pytest.mark.parametrize("name", [GENERAL, USERS])
def test_channels_that_hold_their_members_by_themselves_stay_as_they_are(club: Club, name: ChannelName) -> None:
    assert club.harness.refused(c.CreateChannel(club.sessions["ada"], name=name)).code is Code.RESERVED_NAME
    for change in (ch.Rename(ChannelName("x")), ch.Archive(), ch.Enter(), ch.Admit(BOB), ch.Dismiss(ADA)):
        assert club.refused("ada", name, change) is Code.RESERVED_NAME
    shown = club.view(name)
    assert (str(shown.id), shown.members, shown.created_by) == (str(name), (), "")


def test_everybody_is_in_general(club: Club) -> None:
    assert club.view("general").subscribers == (ADA, BOB, CY)


def test_a_name_is_one_channels_at_a_time(club: Club) -> None:
    club.create("ada", "dev")
    assert club.harness.refused(c.CreateChannel(club.sessions["bob"], name=ChannelName("dev"))).code is Code.NAME_TAKEN
    assert (
        club.harness.refused(c.CreateChannel(club.sessions["bob"], name=ChannelName("a b"))).code is Code.INVALID_NAME
    )
    club.create("bob", "ops")
    assert club.refused("bob", "ops", ch.Rename(ChannelName("dev"))) is Code.NAME_TAKEN
    assert club.refused("bob", "ops", ch.Rename(ChannelName("general"))) is Code.RESERVED_NAME


def test_only_a_member_makes_or_enters_a_channel(club: Club) -> None:
    club.create("ada", "dev")
    operator = club.harness.operator
    assert club.harness.refused(c.CreateChannel(operator, name=ChannelName("ops"))).code is Code.INVALID_REQUEST
    assert (
        club.harness.refused(c.ChangeChannel(operator, channel="dev", change=ch.Enter())).code is Code.INVALID_REQUEST
    )


def test_there_are_only_so_many_channels_and_archived_ones_count(make_harness: MakeHarness) -> None:
    club = Club(make_harness(msgspec.structs.replace(DEFAULT_LIMITS, channels_max=2)))
    club.create("ada", "one")
    club.create("ada", "two")
    club.change("ada", "one", ch.Archive())
    assert (
        club.harness.refused(c.CreateChannel(club.sessions["ada"], name=ChannelName("x"))).code
        is Code.TOO_MANY_CHANNELS
    )
    assert (
        club.harness.refused(c.Subscribe(club.sessions["ada"], channel=ChannelName("x"))).code is Code.TOO_MANY_CHANNELS
    )
    club.harness.expect(Done, c.Unsubscribe(club.sessions["ada"], channel=ChannelName("two")))
    club.harness.subscribe(club.sessions["ada"], "x")


# Members of channels.


def test_anybody_may_enter_and_leave(club: Club) -> None:
    club.create("ada", "dev")
    club.harness.pass_ms(5)
    entered = club.change("bob", "dev", ch.Enter())
    assert entered.members[-1] == ch.ChannelMember(BOB, ch.Role.MEMBER, START_MS + 5)
    assert club.change("bob", "dev", ch.Enter()) == entered
    assert club.change("bob", "dev", ch.Dismiss(BOB)).subscribers == (ADA,)
    left = [event for event in club.harness.events() if isinstance(event, Unsubscribed)]
    assert left == [Unsubscribed("bob", "dev")]


def test_admins_say_who_else_is_in_it(club: Club) -> None:
    club.create("ada", "dev")
    assert club.refused("bob", "dev", ch.Admit(CY)) is Code.FORBIDDEN
    club.change("ada", "dev", ch.Admit(BOB))
    assert club.refused("bob", "dev", ch.Admit(CY)) is Code.FORBIDDEN
    assert club.refused("bob", "dev", ch.Dismiss(ADA)) is Code.FORBIDDEN
    club.change("ada", "dev", ch.Admit(CY, ch.Role.ADMIN))
    assert club.change("cy", "dev", ch.Dismiss(BOB)).subscribers == (ADA, CY)
    assert club.refused("ada", "dev", ch.Dismiss(BOB)) is Code.UNKNOWN_MEMBER
    assert club.refused("ada", "dev", ch.Admit(MemberName("nobody"))) is Code.UNKNOWN_MEMBER


def test_admitting_with_the_same_role_changes_nothing(club: Club) -> None:
    club.create("ada", "dev")
    club.change("ada", "dev", ch.Admit(BOB))
    count = len(club.harness.log())
    club.change("ada", "dev", ch.Admit(BOB))
    assert club.roles("dev") == {"ada": "admin", "bob": "member"}
    assert len(club.harness.log()) == count


def test_a_channel_that_is_not_there_cannot_be_changed(club: Club) -> None:
    assert club.refused("ada", "dev", ch.Enter()) is Code.UNKNOWN_CHANNEL


def test_the_operator_may_do_what_an_admin_may(club: Club) -> None:
    club.create("ada", "dev")
    command = c.ChangeChannel(club.harness.operator, channel="dev", change=ch.Admit(BOB, ch.Role.ADMIN))
    assert club.harness.expect(ChannelState, command).channel.subscribers == (ADA, BOB)


def test_whoever_is_in_it_hears_what_is_said(club: Club) -> None:
    club.create("ada", "dev")
    club.change("ada", "dev", ch.Admit(BOB))
    club.say("ada", "#dev", "hello")
    assert club.harness.bodies(club.sessions["bob"]) == ["hello"]
    assert club.harness.bodies(club.sessions["cy"]) == []
    club.change("ada", "dev", ch.Dismiss(BOB))
    club.say("ada", "#dev", "again")
    assert club.harness.bodies(club.sessions["bob"]) == ["hello"]


def test_a_role_can_be_given_and_taken(club: Club) -> None:
    made = club.create("ada", "dev")
    club.change("ada", "dev", ch.Admit(BOB))
    assert club.roles("dev") == {"ada": "admin", "bob": "member"}
    club.change("ada", "dev", ch.Admit(BOB, ch.Role.ADMIN))
    club.change("bob", "dev", ch.Admit(ADA, ch.Role.MEMBER))
    assert club.roles("dev") == {"bob": "admin", "ada": "member"}
    assert club.refused("bob", "dev", ch.Admit(BOB, ch.Role.MEMBER)) is Code.FORBIDDEN
    changed = [event for event in club.harness.events() if isinstance(event, ChannelChanged) and event.member]
    assert changed == [
        ChannelChanged(id=made.id, name="dev", by="ada", what="admin", member="bob"),
        ChannelChanged(id=made.id, name="dev", by="bob", what="member", member="ada"),
    ]


def test_by_command_the_last_admin_leaves_last(club: Club) -> None:
    club.create("ada", "dev")
    club.change("ada", "dev", ch.Admit(BOB))
    assert club.refused("ada", "dev", ch.Dismiss(ADA)) is Code.FORBIDDEN
    club.change("ada", "dev", ch.Dismiss(BOB))
    club.change("ada", "dev", ch.Dismiss(ADA))
    assert club.listed() == ["general"]
    assert club.harness.outcome.changes == []


@pytest.mark.parametrize("how", ["unsubscribe", "remove"])
def test_when_the_last_admin_goes_otherwise_whoever_has_been_there_longest_becomes_one(club: Club, how: str) -> None:
    club.create("ada", "dev")
    club.harness.pass_ms(5)
    club.change("cy", "dev", ch.Enter())
    club.harness.pass_ms(5)
    club.change("bob", "dev", ch.Enter())
    if how == "remove":
        club.harness.remove("ada")
        club.sessions["ada"] = club.harness.join("ada")
    else:
        club.harness.expect(Done, c.Unsubscribe(club.sessions["ada"], channel=ChannelName("dev")))
    assert club.roles("dev") == {"cy": "admin", "bob": "member"}


def test_a_channel_that_its_last_member_leaves_is_gone(club: Club) -> None:
    made = club.create("ada", "dev")
    club.harness.expect(Done, c.Unsubscribe(club.sessions["ada"], channel=ChannelName("dev")))
    assert club.harness.outcome.changes == [SubscriptionsChanged(ADA), ChannelVanished(ChannelName("dev"))]
    for name in ("dev", made.id):
        assert club.harness.refused(c.ViewChannel(club.sessions["ada"], channel=name)).code is Code.UNKNOWN_CHANNEL
    assert club.create("bob", "dev").id != made.id


# Changing channels.


def test_a_renamed_channel_keeps_who_is_in_it_and_what_was_said(club: Club) -> None:
    made = club.create("ada", "dev")
    club.change("bob", "dev", ch.Enter())
    club.say("ada", "#dev", "before")
    renamed = club.change("ada", "dev", ch.Rename(ChannelName("design")))
    assert club.harness.outcome.changes == [
        ChannelVanished(ChannelName("dev"), ended=True),
        ChannelAppeared(ChannelName("design"), made.id),
    ]
    assert (renamed.id, renamed.name, renamed.subscribers) == (made.id, "design", (ADA, BOB))
    club.say("ada", "#design", "after")
    assert club.harness.bodies(club.sessions["bob"]) == ["before", "after"]
    assert club.history("bob", "#design") == club.history("bob", f"chan:{made.id}") == ["after", "before"]
    assert club.history("bob") == ["after", "before"]
    assert club.harness.refused(c.Send(club.sessions["ada"], content=content("#dev"))).code is Code.UNKNOWN_CHANNEL


def test_only_an_admin_renames_or_archives(club: Club) -> None:
    club.create("ada", "dev")
    club.change("bob", "dev", ch.Enter())
    for by in ("bob", "cy"):
        assert club.refused(by, "dev", ch.Rename(ChannelName("x"))) is Code.FORBIDDEN
        assert club.refused(by, "dev", ch.Archive()) is Code.FORBIDDEN


def test_renaming_to_its_own_name_changes_nothing(club: Club) -> None:
    made = club.create("ada", "dev")
    end = club.harness.broker.ledger.end
    assert club.change("ada", "dev", ch.Rename(ChannelName("dev"))) == made
    assert club.harness.broker.ledger.end == end


def test_a_name_that_was_given_up_brings_nothing_of_the_other_channel(club: Club) -> None:
    club.create("ada", "dev")
    club.say("ada", "#dev", "of the first")
    club.change("ada", "dev", ch.Rename(ChannelName("design")))
    club.harness.subscribe(club.sessions["bob"], "dev")
    club.say("bob", "#dev", "of the second")
    assert club.history("bob", "#dev") == ["of the second"]
    assert club.history("ada", "#design") == ["of the first"]
    assert club.history("bob") == ["of the second"]
    club.change("cy", "dev", ch.Enter())
    assert club.history("cy") == ["of the second"]


def test_a_channel_made_by_command_brings_nothing_that_was_said_under_its_name_before(club: Club) -> None:
    club.say("bob", "#dev", "to nobody")
    club.create("ada", "dev")
    assert club.history("ada", "#dev") == []


def test_what_was_said_to_nobody_is_there_for_who_subscribes_first(club: Club) -> None:
    club.say("bob", "#dev", "to nobody")
    club.harness.subscribe(club.sessions["ada"], "dev")
    assert club.history("ada", "#dev") == ["to nobody"]


# The end of channels.


def test_an_archived_channel_is_read_and_not_written_to(club: Club) -> None:
    made = club.create("ada", "dev")
    club.change("bob", "dev", ch.Enter())
    club.say("ada", "#dev", "last words")
    club.harness.pass_ms(7)
    archived = club.change("ada", "dev", ch.Archive())
    assert archived.archived_at_ms == START_MS + 7
    assert club.harness.outcome.changes == [ChannelVanished(ChannelName("dev"), ended=True)]
    assert club.listed() == ["general"]
    assert club.view("dev") == club.view(made.id) == archived
    for allow_empty in (False, True):
        sent = c.Send(club.sessions["ada"], content=content("#dev"), allow_empty=allow_empty)
        assert club.harness.refused(sent).code is Code.CHANNEL_ARCHIVED
    assert (
        club.harness.refused(c.Subscribe(club.sessions["cy"], channel=ChannelName("dev"))).code is Code.CHANNEL_ARCHIVED
    )
    for change in (ch.Rename(ChannelName("x")), ch.Enter(), ch.Admit(CY), ch.Dismiss(ADA)):
        assert club.refused("ada", "dev", change) is Code.CHANNEL_ARCHIVED
    assert club.history("bob", f"chan:{made.id}") == club.history("bob", "#dev") == ["last words"]
    assert club.history("cy", f"chan:{made.id}") == []
    assert club.change("ada", "dev", ch.Archive()) == archived


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_a_removed_member_is_in_no_archived_channel(club: Club, how: str | None) -> None:
    club.create("ada", "dev")
    club.change("bob", "dev", ch.Enter())
    club.change("ada", "dev", ch.Archive())
    club.harness.remove("bob")
    if how is not None:
        getattr(club.harness, how)()
        club.sessions = {"ada": club.harness.attach("ada")}
    assert club.roles("dev") == {"ada": "admin"}


def test_an_archived_channels_name_can_be_another_channels(club: Club) -> None:
    first = club.create("ada", "dev")
    club.say("ada", "#dev", "of the first")
    club.change("ada", "dev", ch.Archive())
    second = club.create("bob", "dev")
    club.say("bob", "#dev", "of the second")
    assert club.view("dev").id == second.id != first.id
    assert club.view(first.id).archived_at_ms is not None
    assert club.history("bob", "#dev") == ["of the second"]
    assert club.history("ada", f"chan:{first.id}") == ["of the first"]
    assert club.history("bob", f"chan:{first.id}") == []
    assert club.history("ada") == ["of the first"]
    assert club.history(None) == ["of the second", "of the first"]


# History.


def test_nobody_reads_a_channel_that_it_is_not_in(club: Club) -> None:
    made = club.create("ada", "dev")
    club.say("ada", "#dev", "among us")
    for peer in (None, "#dev", f"chan:{made.id}"):
        assert club.history("bob", peer) == []
        assert club.history("ada", peer) == ["among us"]
    club.change("bob", "dev", ch.Enter())
    assert club.history("bob") == ["among us"]
    club.change("bob", "dev", ch.Dismiss(BOB))
    assert club.history("bob") == []


def test_the_channel_of_the_humans_is_read_by_them(harness: BrokerHarness) -> None:
    club = Club(harness)
    club.sessions["hal"] = harness.join("hal", kind=MemberKind.HUMAN)
    club.say("ada", "#users", "for people")
    assert club.history("hal", "#users") == club.history("hal") == ["for people"]
    assert club.history("bob", "#users") == club.history("bob") == []


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_everything_is_there_after_a_restart(club: Club, how: str) -> None:
    club.create("ada", "dev")
    club.change("bob", "dev", ch.Enter())
    club.say("ada", "#dev", "before")
    club.change("ada", "dev", ch.Rename(ChannelName("design")))
    gone = club.create("ada", "gone")
    club.change("ada", "gone", ch.Archive())
    club.harness.subscribe(club.sessions["cy"], "ops")
    before = [club.view(name) for name in ("design", gone.id, "ops")]
    getattr(club.harness, how)()
    club.attach()
    assert [club.view(name) for name in ("design", gone.id, "ops")] == before
    assert club.listed() == ["design", "general", "ops"]
    club.say("ada", "#design", "after")
    assert club.history("bob", "#design") == ["after", "before"]
    assert club.harness.refused(c.Send(club.sessions["ada"], content=content("#gone"))).code is Code.CHANNEL_ARCHIVED


def _changes(club: Club) -> list[tuple[SessionId, str, Any]]:
    ada, bob = club.sessions["ada"], club.sessions["bob"]
    return [
        (ada, "dev", ch.Rename(ChannelName("x"))),
        (ada, "x", ch.Admit(CY)),
        (bob, "x", ch.Enter()),
        (ada, "x", ch.Archive()),
    ]


def test_what_was_not_committed_never_was(club: Club) -> None:
    club.create("ada", "dev")
    before = club.view("dev")
    commands = [c.ChangeChannel(session, channel=channel, change=change) for session, channel, change in _changes(club)]
    assert not any(isinstance(reply, Refusal) for reply in club.harness.decide(*commands))
    club.harness.crash()
    club.attach()
    assert club.view("dev") == before
    assert club.listed() == ["dev", "general"]
