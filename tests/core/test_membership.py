"""Tests of identity: members, tokens, sessions and subscriptions."""

from pathlib import Path

import pytest

from tests.core.doubles import HOME_KEY, BrokerHarness, content
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


def attach(harness: BrokerHarness, credential: Credential, member: str | None = None) -> Attached | Refusal:
    name = None if member is None else MemberName(member)
    reply = harness.ask(c.Attach(protocol="hub", credential=credential, member=name))
    assert isinstance(reply, Attached | Refusal)
    return reply


def code(reply: Attached | Refusal) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


# Members


def test_a_new_member_is_on_the_roster_and_others_hear_of_it(harness: BrokerHarness) -> None:
    harness.add("ada", "log.read", "members.manage", "log.read", kind=MemberKind.HUMAN)
    assert harness.outcome.changes == [MemberAppeared(MemberName("ada"))]
    member = harness.roster()["ada"].member
    assert (member.kind, member.permissions) == (MemberKind.HUMAN, ("log.read", "members.manage"))
    assert member.created_at_ms == harness.clock_and_ids.time_ms
    assert Registered("ada", "operator", "member") in harness.events()


@pytest.mark.parametrize("name", ["ada", "Ada", "ADA"])
def test_names_that_differ_only_in_case_are_one_name(harness: BrokerHarness, name: str) -> None:
    harness.add("ada")
    refusal = harness.refused(c.AddMember(harness.operator, name=MemberName(name)))
    assert refusal.code is Code.NAME_TAKEN
    assert list(harness.roster()) == ["ada"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("all", Code.RESERVED_NAME), ("Hub", Code.RESERVED_NAME), ("_x", Code.INVALID_NAME), ("a b", Code.INVALID_NAME)],
)
def test_a_name_outside_the_rule_cannot_be_made(harness: BrokerHarness, name: str, expected: Code) -> None:
    assert harness.refused(c.AddMember(harness.operator, name=MemberName(name))).code is expected
    assert harness.roster() == {}


def test_a_member_survives_a_restart_and_a_crash_with_all_that_belongs_to_it(harness: BrokerHarness) -> None:
    token = harness.add("ada", "log.read", kind=MemberKind.SCRIPT)
    harness.subscribe(harness.attach("ada"), "dev")
    before = harness.roster()["ada"].member
    for again in (harness.crash, harness.restart):
        again()
        assert harness.roster()["ada"].member == before
        harness.attach_by_token(token)
        views = harness.expect(Channels, c.ListChannels(harness.operator)).channels
        assert {view.name: view.subscribers for view in views} == {"dev": ("ada",), "general": ("ada",)}


def test_a_member_that_was_never_committed_does_not_exist(harness: BrokerHarness) -> None:
    harness.decide(c.AddMember(harness.operator, name=MemberName("ghost"), token="0123456789abcdef"))
    harness.crash()
    assert harness.roster() == {}
    assert code(attach(harness, ByToken("0123456789abcdef"))) is Code.UNAUTHORIZED


# Tokens


def test_the_operator_may_choose_a_token(harness: BrokerHarness) -> None:
    chosen = "0123456789abcdef"
    assert harness.add("ada", token=chosen) == chosen
    reply = attach(harness, ByToken(chosen))
    assert isinstance(reply, Attached)
    assert (reply.member, reply.speaker) == ("ada", "ada")


@pytest.mark.parametrize("token", ["", "short", "0123456789abcde"])
def test_a_chosen_token_that_could_be_guessed_is_refused(harness: BrokerHarness, token: str) -> None:
    refusal = harness.refused(c.AddMember(harness.operator, name=MemberName("ada"), token=token))
    assert refusal.code is Code.INVALID_REQUEST
    assert harness.roster() == {}


def test_two_members_cannot_have_one_token(harness: BrokerHarness) -> None:
    harness.add("ada", token="0123456789abcdef")
    refusal = harness.refused(c.AddMember(harness.operator, name=MemberName("bob"), token="0123456789abcdef"))
    assert refusal.code is Code.INVALID_REQUEST
    assert list(harness.roster()) == ["ada"]


@pytest.mark.parametrize("token", ["", "wrong", "token-made-for-tests-0"])
def test_a_token_that_nobody_has_opens_nothing(harness: BrokerHarness, token: str) -> None:
    harness.add("ada")
    assert code(attach(harness, ByToken(token))) is Code.UNAUTHORIZED


def test_a_token_does_not_open_a_session_of_somebody_else(harness: BrokerHarness) -> None:
    token = harness.add("ada")
    harness.add("bob")
    assert code(attach(harness, ByToken(token), "bob")) is Code.UNAUTHORIZED
    assert code(attach(harness, ByToken(token), "ada")) is None


def test_rotating_kills_the_old_token_at_once_and_for_good(harness: BrokerHarness) -> None:
    old = harness.add("ada")
    new = harness.expect(Issued, c.RotateToken(harness.operator, name=MemberName("ada"))).token
    assert new != old
    for _ in range(2):
        assert code(attach(harness, ByToken(old))) is Code.UNAUTHORIZED
        assert code(attach(harness, ByToken(new))) is None
        harness.crash()


def test_a_member_may_rotate_its_own_token_and_nobody_elses(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.add("bob")
    assert harness.expect(Issued, c.RotateToken(ada, name=MemberName("ada"))).member == "ada"
    assert harness.refused(c.RotateToken(ada, name=MemberName("bob"))).code is Code.FORBIDDEN


def test_rotating_for_a_name_that_nobody_has_is_refused_with_the_nearest(harness: BrokerHarness) -> None:
    harness.add("reviewer")
    refusal = harness.refused(c.RotateToken(harness.operator, name=MemberName("reviewr")))
    assert (refusal.code, refusal.near) == (Code.UNKNOWN_MEMBER, ("reviewer",))


def test_no_token_is_ever_on_disk_as_it_is(tmp_path: Path) -> None:
    harness = BrokerHarness(lambda: SqliteStore(tmp_path, synchronous="OFF"), Limits(snapshot_rows=1))
    tokens = [harness.add("ada"), harness.add("bob", token="a chosen secret, 32 characters..")]
    tokens.append(harness.expect(Issued, c.RotateToken(harness.operator, name=MemberName("ada"))).token)
    attach(harness, ByToken("a wrong guess that is audited"))
    tokens.append("a wrong guess that is audited")
    on_disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    harness.broker.close()
    on_disk += b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"ada" in on_disk, "this is where members are kept"
    for token in tokens:
        assert token.encode() not in on_disk
        assert token.encode().hex().encode() not in on_disk


# Sessions


def test_the_homes_key_opens_a_session_of_any_member(harness: BrokerHarness) -> None:
    harness.add("ada")
    reply = attach(harness, ByHomeKey(HOME_KEY), "ada")
    assert isinstance(reply, Attached)
    assert (reply.member, reply.speaker) == ("ada", "ada")


def test_a_wrong_key_opens_nothing(harness: BrokerHarness) -> None:
    harness.add("ada")
    for member in (None, "ada"):
        assert code(attach(harness, ByHomeKey("not the key"), member)) is Code.UNAUTHORIZED


def test_a_place_opens_a_session_of_the_member_it_stands_for(harness: BrokerHarness) -> None:
    harness.add("ada")
    assert code(attach(harness, ByPlace(), "ada")) is None
    assert code(attach(harness, ByPlace(), "nobody")) is Code.UNKNOWN_MEMBER
    assert code(attach(harness, ByPlace())) is Code.INVALID_REQUEST


def test_one_without_an_identity_speaks_under_a_name_that_no_member_can_have(harness: BrokerHarness) -> None:
    reply = attach(harness, Unnamed("client-1", "dev"))
    assert isinstance(reply, Attached)
    assert (reply.member, reply.speaker) == (None, "client-1@dev")


def test_the_roster_shows_the_protocols_of_live_sessions(harness: BrokerHarness) -> None:
    harness.add("ada")
    first = harness.attach("ada", "peerbus")
    harness.attach("ada", "ac7")
    assert harness.roster()["ada"].sessions == ("peerbus", "ac7")
    harness.ask(c.Detach(first))
    assert harness.roster()["ada"].sessions == ("ac7",)
    harness.restart()
    assert harness.roster()["ada"].sessions == ()


def test_detaching_twice_is_no_error(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    assert harness.ask_all(c.Detach(ada), c.Detach(ada), c.Detach(SessionId("never was"))) == [Done(), Done(), Done()]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_when_a_member_was_last_seen_survives_as_far_as_it_was_committed(harness: BrokerHarness, how: str) -> None:
    harness.add("ada")
    harness.restart()  # so that nothing but the visit is new
    ada = harness.attach("ada")
    harness.clock_and_ids.time_ms += 1000
    harness.ask(c.Detach(ada))
    seen = harness.roster()["ada"].last_seen_ms
    assert seen == harness.clock_and_ids.time_ms
    harness.clock_and_ids.time_ms += 1000
    if how == "restart":
        harness.restart()
        assert harness.roster()["ada"].last_seen_ms == seen
    else:
        harness.crash()
        assert harness.roster()["ada"].last_seen_ms in (None, seen)


# Removal


def test_removing_a_member_ends_its_sessions_and_kills_its_token(harness: BrokerHarness) -> None:
    token = harness.add("ada")
    sessions = [harness.attach_by_token(token), harness.attach("ada", "peerbus")]
    harness.remove("ada")
    assert [session for session, _ in harness.outcome.ended] == sessions
    assert {why.code for _, why in harness.outcome.ended} == {Code.UNAUTHORIZED}
    assert harness.outcome.changes == [MemberVanished(MemberName("ada"))]
    for session in sessions:
        assert harness.refused(c.Fetch(session)).code is Code.UNKNOWN_SESSION
    assert Removed("ada", "operator") in harness.events()
    for _ in range(2):
        assert code(attach(harness, ByToken(token))) is Code.UNAUTHORIZED
        assert harness.roster() == {}
        harness.crash()


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_what_waits_for_a_removed_member_is_dead_and_its_sender_can_see_it(
    harness: BrokerHarness, how: str | None
) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    settled, waiting = harness.send(ada, "@bob"), harness.send(ada, "@bob")
    harness.advance(bob, 1)
    harness.remove("bob")
    if how is not None:
        getattr(harness, how)()
        ada = harness.attach("ada")
    assert harness.receipts(ada, settled.message_id)["bob"].state is State.ACKED
    receipt = harness.receipts(ada, waiting.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "member removed")


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_a_name_can_be_made_anew_and_starts_with_a_fresh_inbox(harness: BrokerHarness, how: str | None) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.subscribe(bob, "dev")
    old = harness.send(ada, "@bob", "for the first bob")
    harness.remove("bob")
    harness.add("bob")
    if how is not None:
        getattr(harness, how)()
    ada, bob = harness.attach("ada"), harness.attach("bob")
    assert harness.bodies(bob) == []
    assert harness.roster()["bob"].backlog == 0
    new = harness.send(ada, "@bob", "for the second bob")
    (delivery,) = harness.fetch(bob)
    assert (delivery.key, delivery.stream_seq) == (1, 1)
    assert harness.state(old.message_id, "bob") is State.DEAD
    assert harness.state(new.message_id, "bob") is State.PENDING
    views = harness.expect(Channels, c.ListChannels(harness.operator)).channels
    assert [view.name for view in views] == ["general"]


def test_a_name_made_anew_sees_nothing_of_what_its_predecessor_sent_and_received(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "to the first bob")
    sent = harness.send(bob, "@ada", "from the first bob")
    harness.remove("bob")
    bob = harness.join("bob")
    assert harness.refused(c.ReadReceipts(bob, message_id=sent.message_id)).code is Code.UNKNOWN_MESSAGE
    history = harness.ask(c.ReadHistory(bob))
    assert getattr(history, "messages", None) == ()


def test_removing_the_last_subscriber_ends_the_channel(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.subscribe(ada, "dev")
    harness.subscribe(ada, "ops")
    harness.subscribe(bob, "ops")
    harness.remove("ada")
    assert ChannelVanished(ChannelName("dev")) in harness.outcome.changes
    assert ChannelVanished(ChannelName("ops")) not in harness.outcome.changes


def test_removing_a_name_that_nobody_has_is_refused(harness: BrokerHarness) -> None:
    assert harness.refused(c.RemoveMember(harness.operator, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


# Permissions


def test_only_who_manages_members_may_add_and_remove_them(harness: BrokerHarness) -> None:
    plain, manager = harness.join("plain", "log.read"), harness.join("boss", "members.manage")
    unnamed = attach(harness, Unnamed("client-1", "dev"))
    assert isinstance(unnamed, Attached)
    for session in (plain, unnamed.session):
        assert harness.refused(c.AddMember(session, name=MemberName("eve"))).code is Code.FORBIDDEN
        assert harness.refused(c.RemoveMember(session, name=MemberName("boss"))).code is Code.FORBIDDEN
    assert harness.expect(Issued, c.AddMember(manager, name=MemberName("eve"))).member == "eve"
    assert harness.expect(Done, c.RemoveMember(manager, name=MemberName("plain"))) == Done()
    assert sorted(harness.roster()) == ["boss", "eve"]


def test_only_who_may_read_the_log_reads_it(harness: BrokerHarness) -> None:
    plain, auditor = harness.join("plain", "members.manage"), harness.join("auditor", "log.read")
    for log in ("main", "activity"):
        assert harness.refused(c.ReadLog(plain, log=log, start=0)).code is Code.FORBIDDEN
        assert not isinstance(harness.ask(c.ReadLog(auditor, log=log, start=0)), Refusal)


def test_a_refusal_leaves_a_trace_with_who_was_refused_what(harness: BrokerHarness) -> None:
    plain = harness.join("plain")
    harness.refused(c.AddMember(plain, name=MemberName("eve")))
    harness.refused(c.Send(plain, content=content("@nobody")))
    refused = [event for event in harness.events() if isinstance(event, Refused)]
    assert refused == [
        Refused(code="forbidden", speaker="plain", protocol="hub", what="AddMember"),
        Refused(code="unknown_member", speaker="plain", protocol="hub", what="Send"),
    ]


# Subscriptions


def test_a_channel_comes_with_its_first_subscriber_and_goes_with_its_last(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    ada_changed, bob_changed = SubscriptionsChanged(MemberName("ada")), SubscriptionsChanged(MemberName("bob"))
    harness.subscribe(ada, "dev")
    changed, appeared = harness.outcome.changes
    assert changed == ada_changed
    assert isinstance(appeared, ChannelAppeared)
    assert (appeared.name, bool(appeared.id)) == ("dev", True)
    harness.subscribe(bob, "dev")
    assert harness.outcome.changes == [bob_changed]
    harness.ask(c.Unsubscribe(ada, channel=ChannelName("dev")))
    assert harness.outcome.changes == [ada_changed]
    harness.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    assert harness.outcome.changes == [bob_changed, ChannelVanished(ChannelName("dev"))]
    assert harness.refused(c.Send(ada, content=content("#dev"))).code is Code.UNKNOWN_CHANNEL


def test_subscribing_and_leaving_twice_is_doing_it_once(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for _ in range(2):
        harness.subscribe(ada, "dev")
    for _ in range(2):
        harness.expect(Done, c.Unsubscribe(ada, channel=ChannelName("dev")))
    changes = [event for event in harness.events() if isinstance(event, Subscribed | Unsubscribed)]
    assert changes == [Subscribed("ada", "dev"), Unsubscribed("ada", "dev")]


def test_general_holds_everybody_and_nobody_can_leave_it(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.subscribe(ada, "general")
    assert harness.refused(c.Unsubscribe(ada, channel=ChannelName("general"))).code is Code.FORBIDDEN
    views = harness.expect(Channels, c.ListChannels(ada)).channels
    assert {view.name: view.subscribers for view in views} == {"general": ("ada",)}


def test_a_channel_has_a_name_by_the_rule_and_its_subscribers_are_members(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    assert harness.refused(c.Subscribe(ada, channel=ChannelName("inbox-bob"))).code is Code.INVALID_NAME
    client = attach(harness, Unnamed("client-1", "dev"))
    assert isinstance(client, Attached)
    assert harness.refused(c.Subscribe(client.session, channel=ChannelName("dev"))).code is Code.INVALID_REQUEST


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_subscriptions_are_kept_when_the_hub_comes_back(harness: BrokerHarness, how: str) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.subscribe(ada, "dev")
    harness.subscribe(bob, "dev")
    harness.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    getattr(harness, how)()
    harness.send(harness.attach("bob"), "#dev")
    assert [post.recipients for post in harness.outcome.posts] == [["ada"]]
