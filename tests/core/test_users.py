"""The humans' channel, channels that only their members write to, and members that others bring in."""

import pytest

from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.identifiers import USERS, ChannelName, MemberName
from tieline.contract.member import MemberKind
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Channels, Done, History

DEV = ChannelName("dev")


def subscribers(desk: Desk, channel: ChannelName) -> list[str]:
    (view,) = desk.expect(Channels, c.ListChannels(desk.operator, channel=channel)).channels
    assert view.name == channel
    return list(view.subscribers)


def test_users_are_every_human_but_the_sender_and_no_agent(desk: Desk) -> None:
    ada, _bob = desk.join("ada"), desk.join("bob")
    una, ugo = (desk.join(name, kind=MemberKind.HUMAN) for name in ("una", "ugo"))
    assert desk.send(ada, "#users", "to the people").recipients == 2
    assert desk.send(una, "#users", "to the others").recipients == 1
    assert (desk.bodies(una), desk.bodies(ugo)) == (["to the people"], ["to the people", "to the others"])


def test_users_are_in_their_channel_without_joining_and_others_cannot_join(desk: Desk) -> None:
    ada, una = desk.join("ada"), desk.join("una", kind=MemberKind.HUMAN)
    desk.expect(Done, c.Subscribe(una, channel=USERS))
    assert desk.refused(c.Subscribe(ada, channel=USERS)).code is Code.FORBIDDEN
    for session in (ada, una):
        assert desk.refused(c.Unsubscribe(session, channel=USERS)).code is Code.FORBIDDEN
    assert subscribers(desk, USERS) == ["una"]


def test_users_may_read_back_what_was_said_to_them_and_agents_may_not(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    una = desk.join("una", kind=MemberKind.HUMAN)
    desk.send(ada, "#users", "to the people")
    for session, heard in ((una, 1), (ada, 1), (bob, 0)):
        assert len(desk.expect(History, c.ReadHistory(session)).messages) == heard


def test_no_member_is_called_users(desk: Desk) -> None:
    assert desk.refused(c.AddMember(desk.operator, name=MemberName("Users"))).code is Code.RESERVED_NAME


@pytest.mark.parametrize("allow_empty", [True, False])
def test_a_message_for_members_only_is_refused_from_outside_the_channel(desk: Desk, allow_empty: bool) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.subscribe(ada, "dev")
    send = c.Send(bob, content=content("#dev"), allow_empty=allow_empty, members_only=True)
    assert desk.refused(send).code is Code.FORBIDDEN
    desk.subscribe(bob, "dev")
    desk.expect(Accepted, send)
    assert desk.bodies(ada) == ["hello"]


def test_everybody_may_write_to_general_as_its_member(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.expect(Accepted, c.Send(ada, content=content("#general"), members_only=True))
    assert desk.bodies(bob) == ["hello"]


def test_who_manages_members_brings_another_into_a_channel_and_out_of_it(desk: Desk) -> None:
    ada, boss = desk.join("ada"), desk.join("boss", "members.manage")
    bob = MemberName("bob")
    desk.add(bob)
    for command in (c.Subscribe, c.Unsubscribe):
        assert desk.refused(command(ada, channel=DEV, member=bob)).code is Code.FORBIDDEN
        assert desk.refused(command(boss, channel=DEV, member=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER
    desk.expect(Done, c.Subscribe(ada, channel=DEV, member=MemberName("ada")))
    desk.expect(Done, c.Subscribe(boss, channel=DEV, member=bob))
    assert subscribers(desk, DEV) == ["ada", "bob"]
    desk.expect(Done, c.Unsubscribe(boss, channel=DEV, member=bob))
    assert subscribers(desk, DEV) == ["ada"]


def test_a_channel_that_nobody_is_in_is_shown_empty_to_whoever_asks_for_it(desk: Desk) -> None:
    assert subscribers(desk, ChannelName("nowhere")) == []
