"""Tokens that several names share: each name belongs to the token that it was first made under."""

import pytest

from tests.core.doubles import BrokerHarness
from tieline.contract import command as c
from tieline.contract.event import Registered, TakenOver
from tieline.contract.hub import MemberAppeared
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByShared, ByToken, ByUser, Credential, Origin
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Issued


def ask(
    harness: BrokerHarness, credential: Credential, name: str | None, *, exclusive: bool = True
) -> Attached | Refusal:
    member = None if name is None else MemberName(name)
    command = c.Attach(protocol="peerbus", credential=credential, member=member, exclusive=exclusive)
    reply = harness.ask(command)
    assert isinstance(reply, Attached | Refusal)
    return reply


def register(harness: BrokerHarness, token: str, name: str) -> SessionId:
    reply = ask(harness, ByShared(token), name)
    assert isinstance(reply, Attached), reply
    return reply.session


def code(reply: Attached | Refusal) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def test_a_free_name_is_made_under_the_token_and_others_hear_of_it(harness: BrokerHarness) -> None:
    register(harness, "one token", "ada")
    assert harness.outcome.changes == [MemberAppeared(MemberName("ada"))]
    assert harness.roster()["ada"].member.origin is Origin.SHARED
    assert Registered("ada", "peerbus", "shared member") in harness.events()


def test_one_token_makes_many_names(harness: BrokerHarness) -> None:
    for name in ("ada", "bob", "cy"):
        register(harness, "one token", name)
    assert list(harness.roster()) == ["ada", "bob", "cy"]


@pytest.mark.parametrize("how", [None, "restart", "crash"])
@pytest.mark.parametrize("connected", [True, False])
def test_a_name_belongs_to_its_token_online_or_not_and_for_good(
    harness: BrokerHarness, how: str | None, connected: bool
) -> None:
    session = register(harness, "one token", "ada")
    if not connected:
        harness.ask(c.Detach(session))
    if how is not None:
        getattr(harness, how)()
    assert code(ask(harness, ByShared("another token"), "ada")) is Code.NAME_TAKEN
    register(harness, "one token", "ada")


def test_the_newest_session_takes_over_and_what_waits_is_there_for_it(harness: BrokerHarness) -> None:
    old = register(harness, "one token", "ada")
    bob = register(harness, "one token", "bob")
    harness.send(bob, "@ada", "before")
    harness.offered(old, 1)
    new = register(harness, "one token", "ada")
    assert [session for session, _ in harness.outcome.ended] == [old]
    assert TakenOver("ada", old, new) in harness.events()
    harness.send(bob, "@ada", "after")
    assert harness.bodies(new) == ["before", "after"]


@pytest.mark.parametrize("name", ["Ada", "ADA"])
def test_a_name_that_differs_only_in_case_is_no_name_for_its_own_token_and_taken_for_others(
    harness: BrokerHarness, name: str
) -> None:
    register(harness, "one token", "ada")
    assert code(ask(harness, ByShared("one token"), name)) is Code.INVALID_NAME
    assert code(ask(harness, ByShared("another token"), name)) is Code.NAME_TAKEN
    token = harness.add("bob")
    assert code(ask(harness, ByToken(token), "Bob")) is Code.INVALID_NAME
    assert code(ask(harness, ByToken(token), "ada")) is Code.UNAUTHORIZED


def test_a_name_made_otherwise_is_not_for_a_shared_token(harness: BrokerHarness) -> None:
    harness.add("ada")
    ask(harness, ByUser(), "bob")
    for name in ("ada", "bob"):
        assert code(ask(harness, ByShared("one token"), name)) is Code.NAME_TAKEN
    register(harness, "one token", "cy")
    assert code(ask(harness, ByUser(), "cy")) is Code.NAME_TAKEN


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, Code.INVALID_REQUEST), ("a b", Code.INVALID_NAME), ("", Code.INVALID_NAME), ("hub", Code.RESERVED_NAME)],
)
def test_a_session_needs_a_name_that_follows_the_rule(harness: BrokerHarness, name: str | None, expected: Code) -> None:
    assert code(ask(harness, ByShared("one token"), name)) is expected
    assert harness.roster() == {}


def test_a_member_token_given_later_opens_the_same_member(harness: BrokerHarness) -> None:
    register(harness, "one token", "ada")
    token = harness.expect(Issued, c.RotateToken(harness.operator, name=MemberName("ada"))).token
    assert code(ask(harness, ByToken(token), "ada")) is None
    register(harness, "one token", "ada")


def test_a_removed_name_is_free_for_any_token(harness: BrokerHarness) -> None:
    register(harness, "one token", "ada")
    harness.remove("ada")
    register(harness, "another token", "ada")
    harness.restart()
    assert code(ask(harness, ByShared("one token"), "ada")) is Code.NAME_TAKEN


def test_everybody_means_such_members_only_while_they_are_connected(harness: BrokerHarness) -> None:
    ada, bob = register(harness, "t", "ada"), register(harness, "t", "bob")
    harness.add("cy")
    register(harness, "t", "dan")
    harness.ask(c.Detach(bob))
    assert sorted(harness.receipts(ada, harness.send(ada, "*").message_id)) == ["cy", "dan"]


def test_a_token_is_kept_hashed(harness: BrokerHarness) -> None:
    register(harness, "a token that nobody may read", "ada")
    assert b"a token that nobody may read" not in b"".join(row.event for row in harness.log())
    assert [len(owner) for _, owner in harness.store.restore().owners] == [32]
