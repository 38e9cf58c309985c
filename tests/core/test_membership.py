"""Who may be whom: members, tokens, sessions, subscriptions."""

from pathlib import Path

import pytest

from tests.core.doubles import HOME_KEY, Desk, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Refused, Registered, Removed, Subscribed, Unsubscribed
from tieline.contract.hub import (
    ChannelAppeared,
    ChannelVanished,
    MemberAppeared,
    MemberVanished,
    SubscriptionsChanged,
)
from tieline.contract.identifiers import ChannelName, MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey, ByPlace, ByToken, Credential, MemberKind, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Channels, Done, Issued
from tieline.stores.sqlite import SqliteStore


def attach(desk: Desk, credential: Credential, member: str | None = None) -> Attached | Refusal:
    name = None if member is None else MemberName(member)
    reply = desk.ask(c.Attach(protocol="hub", credential=credential, member=name))
    assert isinstance(reply, Attached | Refusal)
    return reply


def code(reply: Attached | Refusal) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


# Members


def test_a_new_member_is_on_the_roster_and_others_hear_of_it(desk: Desk) -> None:
    desk.add("ada", "log.read", "members.manage", "log.read", kind=MemberKind.HUMAN)
    assert desk.outcome.changes == [MemberAppeared(MemberName("ada"))]
    member = desk.roster()["ada"].member
    assert (member.kind, member.permissions) == (MemberKind.HUMAN, ("log.read", "members.manage"))
    assert member.created_at_ms == desk.clock_and_ids.time_ms
    assert Registered("ada", "operator", "member") in desk.events()


@pytest.mark.parametrize("name", ["ada", "Ada", "ADA"])
def test_names_that_differ_only_in_case_are_one_name(desk: Desk, name: str) -> None:
    desk.add("ada")
    refusal = desk.refused(c.AddMember(desk.operator, name=MemberName(name)))
    assert refusal.code is Code.NAME_TAKEN
    assert list(desk.roster()) == ["ada"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("all", Code.RESERVED_NAME), ("Hub", Code.RESERVED_NAME), ("_x", Code.INVALID_NAME), ("a b", Code.INVALID_NAME)],
)
def test_a_name_outside_the_rule_cannot_be_made(desk: Desk, name: str, expected: Code) -> None:
    assert desk.refused(c.AddMember(desk.operator, name=MemberName(name))).code is expected
    assert desk.roster() == {}


def test_a_member_survives_a_restart_and_a_crash_with_all_that_belongs_to_it(desk: Desk) -> None:
    token = desk.add("ada", "log.read", kind=MemberKind.SCRIPT)
    desk.subscribe(desk.attach("ada"), "dev")
    before = desk.roster()["ada"].member
    for again in (desk.crash, desk.restart):
        again()
        assert desk.roster()["ada"].member == before
        desk.attach_by_token(token)
        views = desk.expect(Channels, c.ListChannels(desk.operator)).channels
        assert {view.name: view.subscribers for view in views} == {"dev": ("ada",), "general": ("ada",)}


def test_a_member_that_was_never_committed_does_not_exist(desk: Desk) -> None:
    desk.decide(c.AddMember(desk.operator, name=MemberName("ghost"), token="0123456789abcdef"))
    desk.crash()
    assert desk.roster() == {}
    assert code(attach(desk, ByToken("0123456789abcdef"))) is Code.UNAUTHORIZED


# Tokens


def test_the_operator_may_choose_a_token(desk: Desk) -> None:
    chosen = "0123456789abcdef"
    assert desk.add("ada", token=chosen) == chosen
    reply = attach(desk, ByToken(chosen))
    assert isinstance(reply, Attached)
    assert (reply.member, reply.speaker) == ("ada", "ada")


@pytest.mark.parametrize("token", ["", "short", "0123456789abcde"])
def test_a_chosen_token_that_could_be_guessed_is_refused(desk: Desk, token: str) -> None:
    refusal = desk.refused(c.AddMember(desk.operator, name=MemberName("ada"), token=token))
    assert refusal.code is Code.INVALID_REQUEST
    assert desk.roster() == {}


def test_two_members_cannot_have_one_token(desk: Desk) -> None:
    desk.add("ada", token="0123456789abcdef")
    refusal = desk.refused(c.AddMember(desk.operator, name=MemberName("bob"), token="0123456789abcdef"))
    assert refusal.code is Code.INVALID_REQUEST
    assert list(desk.roster()) == ["ada"]


@pytest.mark.parametrize("token", ["", "wrong", "token-made-for-tests-0"])
def test_a_token_that_nobody_has_opens_nothing(desk: Desk, token: str) -> None:
    desk.add("ada")
    assert code(attach(desk, ByToken(token))) is Code.UNAUTHORIZED


def test_a_token_does_not_open_a_session_of_somebody_else(desk: Desk) -> None:
    token = desk.add("ada")
    desk.add("bob")
    assert code(attach(desk, ByToken(token), "bob")) is Code.UNAUTHORIZED
    assert code(attach(desk, ByToken(token), "ada")) is None


def test_rotating_kills_the_old_token_at_once_and_for_good(desk: Desk) -> None:
    old = desk.add("ada")
    new = desk.expect(Issued, c.RotateToken(desk.operator, name=MemberName("ada"))).token
    assert new != old
    for _ in range(2):
        assert code(attach(desk, ByToken(old))) is Code.UNAUTHORIZED
        assert code(attach(desk, ByToken(new))) is None
        desk.crash()


def test_a_member_may_rotate_its_own_token_and_nobody_elses(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.add("bob")
    assert desk.expect(Issued, c.RotateToken(ada, name=MemberName("ada"))).member == "ada"
    assert desk.refused(c.RotateToken(ada, name=MemberName("bob"))).code is Code.FORBIDDEN


def test_rotating_for_a_name_that_nobody_has_is_refused_with_the_nearest(desk: Desk) -> None:
    desk.add("reviewer")
    refusal = desk.refused(c.RotateToken(desk.operator, name=MemberName("reviewr")))
    assert (refusal.code, refusal.near) == (Code.UNKNOWN_MEMBER, ("reviewer",))


def test_no_token_is_ever_on_disk_as_it_is(tmp_path: Path) -> None:
    desk = Desk(lambda: SqliteStore(tmp_path, synchronous="OFF"), Limits(snapshot_rows=1))
    tokens = [desk.add("ada"), desk.add("bob", token="a chosen secret, 32 characters..")]
    tokens.append(desk.expect(Issued, c.RotateToken(desk.operator, name=MemberName("ada"))).token)
    attach(desk, ByToken("a wrong guess that is audited"))
    tokens.append("a wrong guess that is audited")
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    desk.broker.close()
    on_disk += b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"ada" in on_disk, "this is where members are kept"
    for token in tokens:
        assert token.encode() not in on_disk
        assert token.encode().hex().encode() not in on_disk


# Sessions


def test_the_homes_key_opens_a_session_of_any_member(desk: Desk) -> None:
    desk.add("ada")
    reply = attach(desk, ByHomeKey(HOME_KEY), "ada")
    assert isinstance(reply, Attached)
    assert (reply.member, reply.speaker) == ("ada", "ada")


def test_a_wrong_key_opens_nothing(desk: Desk) -> None:
    desk.add("ada")
    for member in (None, "ada"):
        assert code(attach(desk, ByHomeKey("not the key"), member)) is Code.UNAUTHORIZED


def test_a_place_opens_a_session_of_the_member_it_stands_for(desk: Desk) -> None:
    desk.add("ada")
    assert code(attach(desk, ByPlace(), "ada")) is None
    assert code(attach(desk, ByPlace(), "nobody")) is Code.UNKNOWN_MEMBER
    assert code(attach(desk, ByPlace())) is Code.INVALID_REQUEST


def test_one_without_an_identity_speaks_under_a_name_that_no_member_can_have(desk: Desk) -> None:
    reply = attach(desk, Unnamed("client-1", "dev"))
    assert isinstance(reply, Attached)
    assert (reply.member, reply.speaker) == (None, "client-1@dev")


def test_the_roster_shows_the_protocols_of_live_sessions(desk: Desk) -> None:
    desk.add("ada")
    first = desk.attach("ada", "peerbus")
    desk.attach("ada", "ac7")
    assert desk.roster()["ada"].sessions == ("peerbus", "ac7")
    desk.ask(c.Detach(first))
    assert desk.roster()["ada"].sessions == ("ac7",)
    desk.restart()
    assert desk.roster()["ada"].sessions == ()


def test_detaching_twice_is_no_error(desk: Desk) -> None:
    ada = desk.join("ada")
    assert desk.ask_all(c.Detach(ada), c.Detach(ada), c.Detach(SessionId("never was"))) == [Done(), Done(), Done()]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_when_a_member_was_last_seen_survives_as_far_as_it_was_committed(desk: Desk, how: str) -> None:
    desk.add("ada")
    desk.restart()  # so that nothing but the visit is new
    ada = desk.attach("ada")
    desk.clock_and_ids.time_ms += 1000
    desk.ask(c.Detach(ada))
    seen = desk.roster()["ada"].last_seen_ms
    assert seen == desk.clock_and_ids.time_ms
    desk.clock_and_ids.time_ms += 1000
    if how == "restart":
        desk.restart()
        assert desk.roster()["ada"].last_seen_ms == seen
    else:
        desk.crash()
        assert desk.roster()["ada"].last_seen_ms in (None, seen)


# Removal


def test_removing_a_member_ends_its_sessions_and_kills_its_token(desk: Desk) -> None:
    token = desk.add("ada")
    sessions = [desk.attach_by_token(token), desk.attach("ada", "peerbus")]
    desk.remove("ada")
    assert [session for session, _ in desk.outcome.ended] == sessions
    assert {why.code for _, why in desk.outcome.ended} == {Code.UNAUTHORIZED}
    assert desk.outcome.changes == [MemberVanished(MemberName("ada"))]
    for session in sessions:
        assert desk.refused(c.Fetch(session)).code is Code.UNKNOWN_SESSION
    assert Removed("ada", "operator") in desk.events()
    for _ in range(2):
        assert code(attach(desk, ByToken(token))) is Code.UNAUTHORIZED
        assert desk.roster() == {}
        desk.crash()


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_what_waits_for_a_removed_member_is_dead_and_its_sender_can_see_it(desk: Desk, how: str | None) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    settled, waiting = desk.send(ada, "@bob"), desk.send(ada, "@bob")
    desk.advance(bob, 1)
    desk.remove("bob")
    if how is not None:
        getattr(desk, how)()
        ada = desk.attach("ada")
    assert desk.receipts(ada, settled.message_id)["bob"].state is State.ACKED
    receipt = desk.receipts(ada, waiting.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "member removed")


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_a_name_can_be_made_anew_and_starts_with_a_fresh_inbox(desk: Desk, how: str | None) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.subscribe(bob, "dev")
    old = desk.send(ada, "@bob", "for the first bob")
    desk.remove("bob")
    desk.add("bob")
    if how is not None:
        getattr(desk, how)()
    ada, bob = desk.attach("ada"), desk.attach("bob")
    assert desk.bodies(bob) == []
    assert desk.roster()["bob"].backlog == 0
    new = desk.send(ada, "@bob", "for the second bob")
    (delivery,) = desk.fetch(bob)
    assert (delivery.key, delivery.stream_seq) == (1, 1)
    assert desk.state(old.message_id, "bob") is State.DEAD
    assert desk.state(new.message_id, "bob") is State.PENDING
    views = desk.expect(Channels, c.ListChannels(desk.operator)).channels
    assert [view.name for view in views] == ["general"]


def test_a_name_made_anew_sees_nothing_of_what_its_predecessor_sent_and_received(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "to the first bob")
    sent = desk.send(bob, "@ada", "from the first bob")
    desk.remove("bob")
    bob = desk.join("bob")
    assert desk.refused(c.ReadReceipts(bob, message_id=sent.message_id)).code is Code.UNKNOWN_MESSAGE
    history = desk.ask(c.ReadHistory(bob))
    assert getattr(history, "messages", None) == ()


def test_removing_the_last_subscriber_ends_the_channel(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.subscribe(ada, "dev")
    desk.subscribe(ada, "ops")
    desk.subscribe(bob, "ops")
    desk.remove("ada")
    assert ChannelVanished(ChannelName("dev")) in desk.outcome.changes
    assert ChannelVanished(ChannelName("ops")) not in desk.outcome.changes


def test_removing_a_name_that_nobody_has_is_refused(desk: Desk) -> None:
    assert desk.refused(c.RemoveMember(desk.operator, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


# Permissions


def test_only_who_manages_members_may_add_and_remove_them(desk: Desk) -> None:
    plain, manager = desk.join("plain", "log.read"), desk.join("boss", "members.manage")
    unnamed = attach(desk, Unnamed("client-1", "dev"))
    assert isinstance(unnamed, Attached)
    for session in (plain, unnamed.session):
        assert desk.refused(c.AddMember(session, name=MemberName("eve"))).code is Code.FORBIDDEN
        assert desk.refused(c.RemoveMember(session, name=MemberName("boss"))).code is Code.FORBIDDEN
    assert desk.expect(Issued, c.AddMember(manager, name=MemberName("eve"))).member == "eve"
    assert desk.expect(Done, c.RemoveMember(manager, name=MemberName("plain"))) == Done()
    assert sorted(desk.roster()) == ["boss", "eve"]


def test_only_who_may_read_the_log_reads_it(desk: Desk) -> None:
    plain, auditor = desk.join("plain", "members.manage"), desk.join("auditor", "log.read")
    for log in ("main", "activity"):
        assert desk.refused(c.ReadLog(plain, log=log, start=0)).code is Code.FORBIDDEN
        assert not isinstance(desk.ask(c.ReadLog(auditor, log=log, start=0)), Refusal)


def test_a_refusal_leaves_a_trace_with_who_was_refused_what(desk: Desk) -> None:
    plain = desk.join("plain")
    desk.refused(c.AddMember(plain, name=MemberName("eve")))
    desk.refused(c.Send(plain, content=content("@nobody")))
    refused = [event for event in desk.events() if isinstance(event, Refused)]
    assert refused == [
        Refused(code="forbidden", speaker="plain", protocol="hub", what="AddMember"),
        Refused(code="unknown_member", speaker="plain", protocol="hub", what="Send"),
    ]


# Subscriptions


def test_a_channel_comes_with_its_first_subscriber_and_goes_with_its_last(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    ada_changed, bob_changed = SubscriptionsChanged(MemberName("ada")), SubscriptionsChanged(MemberName("bob"))
    desk.subscribe(ada, "dev")
    changed, appeared = desk.outcome.changes
    assert changed == ada_changed
    assert isinstance(appeared, ChannelAppeared)
    assert (appeared.name, bool(appeared.id)) == ("dev", True)
    desk.subscribe(bob, "dev")
    assert desk.outcome.changes == [bob_changed]
    desk.ask(c.Unsubscribe(ada, channel=ChannelName("dev")))
    assert desk.outcome.changes == [ada_changed]
    desk.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    assert desk.outcome.changes == [bob_changed, ChannelVanished(ChannelName("dev"))]
    assert desk.refused(c.Send(ada, content=content("#dev"))).code is Code.UNKNOWN_CHANNEL


def test_subscribing_and_leaving_twice_is_doing_it_once(desk: Desk) -> None:
    ada = desk.join("ada")
    for _ in range(2):
        desk.subscribe(ada, "dev")
    for _ in range(2):
        desk.expect(Done, c.Unsubscribe(ada, channel=ChannelName("dev")))
    changes = [event for event in desk.events() if isinstance(event, Subscribed | Unsubscribed)]
    assert changes == [Subscribed("ada", "dev"), Unsubscribed("ada", "dev")]


def test_general_holds_everybody_and_nobody_can_leave_it(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.subscribe(ada, "general")
    assert desk.refused(c.Unsubscribe(ada, channel=ChannelName("general"))).code is Code.FORBIDDEN
    views = desk.expect(Channels, c.ListChannels(ada)).channels
    assert {view.name: view.subscribers for view in views} == {"general": ("ada",)}


def test_a_channel_has_a_name_by_the_rule_and_its_subscribers_are_members(desk: Desk) -> None:
    ada = desk.join("ada")
    assert desk.refused(c.Subscribe(ada, channel=ChannelName("inbox-bob"))).code is Code.INVALID_NAME
    client = attach(desk, Unnamed("client-1", "dev"))
    assert isinstance(client, Attached)
    assert desk.refused(c.Subscribe(client.session, channel=ChannelName("dev"))).code is Code.INVALID_REQUEST


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_subscriptions_are_kept_when_the_hub_comes_back(desk: Desk, how: str) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.subscribe(ada, "dev")
    desk.subscribe(bob, "dev")
    desk.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    getattr(desk, how)()
    desk.send(desk.attach("bob"), "#dev")
    assert [post.recipients for post in desk.outcome.posts] == [["ada"]]
