"""Tokens that several names share: each name belongs to the token that it was first made under."""

import pytest

from tests.core.doubles import Desk
from tieline.contract import command as c
from tieline.contract.event import Registered, TakenOver
from tieline.contract.hub import MemberAppeared
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByShared, ByToken, ByUser, Credential, Origin
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Issued


def ask(desk: Desk, credential: Credential, name: str | None, *, exclusive: bool = True) -> Attached | Refusal:
    member = None if name is None else MemberName(name)
    command = c.Attach(protocol="peerbus", credential=credential, member=member, exclusive=exclusive)
    reply = desk.ask(command)
    assert isinstance(reply, Attached | Refusal)
    return reply


def register(desk: Desk, token: str, name: str) -> SessionId:
    reply = ask(desk, ByShared(token), name)
    assert isinstance(reply, Attached), reply
    return reply.session


def code(reply: Attached | Refusal) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def test_a_free_name_is_made_under_the_token_and_others_hear_of_it(desk: Desk) -> None:
    register(desk, "one token", "ada")
    assert desk.outcome.changes == [MemberAppeared(MemberName("ada"))]
    assert desk.roster()["ada"].member.origin is Origin.SHARED
    assert Registered("ada", "peerbus", "shared member") in desk.events()


def test_one_token_makes_many_names(desk: Desk) -> None:
    for name in ("ada", "bob", "cy"):
        register(desk, "one token", name)
    assert list(desk.roster()) == ["ada", "bob", "cy"]


@pytest.mark.parametrize("how", [None, "restart", "crash"])
@pytest.mark.parametrize("connected", [True, False])
def test_a_name_belongs_to_its_token_online_or_not_and_for_good(desk: Desk, how: str | None, connected: bool) -> None:
    session = register(desk, "one token", "ada")
    if not connected:
        desk.ask(c.Detach(session))
    if how is not None:
        getattr(desk, how)()
    assert code(ask(desk, ByShared("another token"), "ada")) is Code.NAME_TAKEN
    register(desk, "one token", "ada")


def test_the_newest_session_takes_over_and_what_waits_is_there_for_it(desk: Desk) -> None:
    old = register(desk, "one token", "ada")
    bob = register(desk, "one token", "bob")
    desk.send(bob, "@ada", "before")
    desk.offered(old, 1)
    new = register(desk, "one token", "ada")
    assert [session for session, _ in desk.outcome.ended] == [old]
    assert TakenOver("ada", old, new) in desk.events()
    desk.send(bob, "@ada", "after")
    assert desk.bodies(new) == ["before", "after"]


@pytest.mark.parametrize("name", ["Ada", "ADA"])
def test_a_name_that_differs_only_in_case_is_no_name_for_its_own_token_and_taken_for_others(
    desk: Desk, name: str
) -> None:
    register(desk, "one token", "ada")
    assert code(ask(desk, ByShared("one token"), name)) is Code.INVALID_NAME
    assert code(ask(desk, ByShared("another token"), name)) is Code.NAME_TAKEN
    token = desk.add("bob")
    assert code(ask(desk, ByToken(token), "Bob")) is Code.INVALID_NAME
    assert code(ask(desk, ByToken(token), "ada")) is Code.UNAUTHORIZED


def test_a_name_made_otherwise_is_not_for_a_shared_token(desk: Desk) -> None:
    desk.add("ada")
    ask(desk, ByUser(), "bob")
    for name in ("ada", "bob"):
        assert code(ask(desk, ByShared("one token"), name)) is Code.NAME_TAKEN
    register(desk, "one token", "cy")
    assert code(ask(desk, ByUser(), "cy")) is Code.NAME_TAKEN


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, Code.INVALID_REQUEST), ("a b", Code.INVALID_NAME), ("", Code.INVALID_NAME), ("hub", Code.RESERVED_NAME)],
)
def test_a_session_needs_a_name_that_follows_the_rule(desk: Desk, name: str | None, expected: Code) -> None:
    assert code(ask(desk, ByShared("one token"), name)) is expected
    assert desk.roster() == {}


def test_a_member_token_given_later_opens_the_same_member(desk: Desk) -> None:
    register(desk, "one token", "ada")
    token = desk.expect(Issued, c.RotateToken(desk.operator, name=MemberName("ada"))).token
    assert code(ask(desk, ByToken(token), "ada")) is None
    register(desk, "one token", "ada")


def test_a_removed_name_is_free_for_any_token(desk: Desk) -> None:
    register(desk, "one token", "ada")
    desk.remove("ada")
    register(desk, "another token", "ada")
    desk.restart()
    assert code(ask(desk, ByShared("one token"), "ada")) is Code.NAME_TAKEN


def test_everybody_means_such_members_only_while_they_are_connected(desk: Desk) -> None:
    ada, bob = register(desk, "t", "ada"), register(desk, "t", "bob")
    desk.add("cy")
    register(desk, "t", "dan")
    desk.ask(c.Detach(bob))
    assert sorted(desk.receipts(ada, desk.send(ada, "*").message_id)) == ["cy", "dan"]


def test_a_token_is_kept_hashed(desk: Desk) -> None:
    register(desk, "a token that nobody may read", "ada")
    assert b"a token that nobody may read" not in b"".join(row.event for row in desk.log())
    assert [len(owner) for _, owner in desk.store.restore().owners] == [32]
