"""Tests of tokens that several members share. A name belongs to the token under which it was first used."""

import pytest

from tests.core.doubles import BrokerHarness
from tieline.contract import command as c
from tieline.contract.event import Registered, TakenOver
from tieline.contract.hub import MemberAppeared
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByShared, ByToken, ByUser, Credential, Origin
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Done, Issued


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


# Names whose token is configured no more.


def orphan(harness: BrokerHarness, *configured: str) -> None:
    """Make ada with a token, let a message wait for her, and restart the hub with the tokens `configured`."""
    harness.restart("old token")
    register(harness, "old token", "ada")
    harness.send(register(harness, "old token", "bob"), "@ada", "before")
    harness.restart(*configured)


def test_a_peer_whose_token_was_replaced_registers_under_the_new_one_and_gets_what_waits(
    harness: BrokerHarness,
) -> None:
    orphan(harness, "new token")
    assert harness.broker.shared_tokens.orphans() == ["ada", "bob"]
    assert harness.bodies(register(harness, "new token", "ada")) == ["before"]
    assert harness.events()[-1] == Registered("ada", "peerbus", "another shared token")
    assert harness.broker.shared_tokens.orphans() == ["bob"]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_name_that_was_taken_over_stays_with_the_new_token(harness: BrokerHarness, how: str) -> None:
    orphan(harness, "new token")
    register(harness, "new token", "ada")
    getattr(harness, how)()
    harness.restart("new token", "old token")
    assert code(ask(harness, ByShared("old token"), "ada")) is Code.NAME_TAKEN
    register(harness, "new token", "ada")
    assert [event for event in harness.events() if event == Registered("ada", "peerbus", "another shared token")] == [
        Registered("ada", "peerbus", "another shared token")
    ]


def test_no_token_takes_over_while_several_are_configured(harness: BrokerHarness) -> None:
    orphan(harness, "new token", "another token")
    for token in ("new token", "another token"):
        assert code(ask(harness, ByShared(token), "ada")) is Code.NAME_TAKEN


def test_a_token_that_is_configured_keeps_its_names_against_the_others(harness: BrokerHarness) -> None:
    orphan(harness, "old token", "new token")
    assert harness.broker.shared_tokens.orphans() == []
    assert code(ask(harness, ByShared("new token"), "ada")) is Code.NAME_TAKEN
    harness.restart("old token")
    assert code(ask(harness, ByShared("new token"), "ada")) is Code.NAME_TAKEN
    register(harness, "old token", "ada")


def test_a_token_that_the_hub_was_not_given_takes_over_nothing(harness: BrokerHarness) -> None:
    orphan(harness, "new token")
    assert code(ask(harness, ByShared("a third token"), "ada")) is Code.NAME_TAKEN
    assert harness.broker.shared_tokens.orphans() == ["ada", "bob"]


def test_a_hub_that_was_told_of_no_tokens_lets_nobody_take_over(harness: BrokerHarness) -> None:
    register(harness, "old token", "ada")
    assert code(ask(harness, ByShared("new token"), "ada")) is Code.NAME_TAKEN


def test_a_name_with_permissions_is_not_taken_over(harness: BrokerHarness) -> None:
    harness.restart("old token")
    register(harness, "old token", "ada")
    change = c.UpdateMember(harness.operator, name=MemberName("ada"), permissions=(MEMBERS_MANAGE,))
    assert not isinstance(harness.ask(change), Refusal)
    harness.restart("new token")
    refusal = ask(harness, ByShared("new token"), "ada")
    assert isinstance(refusal, Refusal)
    assert refusal.message == "the name 'ada' belongs to a token that is configured no more; an operator must decide"


def test_a_name_with_a_token_of_its_own_is_not_taken_over(harness: BrokerHarness) -> None:
    harness.restart("old token")
    register(harness, "old token", "ada")
    token = harness.expect(Issued, c.RotateToken(harness.operator, name=MemberName("ada"))).token
    harness.restart("new token")
    assert code(ask(harness, ByShared("new token"), "ada")) is Code.NAME_TAKEN
    assert code(ask(harness, ByToken(token), "ada")) is None


def test_a_name_that_is_kept_for_the_person_who_runs_the_hub_is_not_taken_over(harness: BrokerHarness) -> None:
    orphan(harness, "new token")
    harness.broker.kept_name = "Ada"
    harness.broker.roll_back()
    assert code(ask(harness, ByShared("new token"), "ada")) is Code.NAME_TAKEN


def test_a_name_made_otherwise_is_no_orphan(harness: BrokerHarness) -> None:
    harness.restart("new token")
    harness.add("ada")
    ask(harness, ByUser(), "bob")
    for name in ("ada", "bob"):
        assert code(ask(harness, ByShared("new token"), name)) is Code.NAME_TAKEN
    assert harness.broker.shared_tokens.orphans() == []


def test_an_orphan_written_in_another_case_is_a_wrong_name_and_stays_an_orphan(harness: BrokerHarness) -> None:
    orphan(harness, "new token")
    assert code(ask(harness, ByShared("new token"), "Ada")) is Code.INVALID_NAME
    assert harness.broker.shared_tokens.orphans() == ["ada", "bob"]


def test_looking_at_who_would_be_replaced_takes_over_nothing(harness: BrokerHarness) -> None:
    orphan(harness, "new token")
    attach = c.Attach(protocol="peerbus", credential=ByShared("new token"), member=MemberName("ada"), exclusive=True)
    assert harness.broker.replaced(attach) == []
    assert harness.broker.shared_tokens.orphans() == ["ada", "bob"]


def test_a_rolled_back_batch_takes_over_nothing(harness: BrokerHarness) -> None:
    orphan(harness, "new token")
    attach = c.Attach(protocol="peerbus", credential=ByShared("new token"), member=MemberName("ada"), exclusive=True)
    harness.decide(attach)
    harness.broker.roll_back()
    assert harness.broker.shared_tokens.orphans() == ["ada", "bob"]


def retoken(harness: BrokerHarness, name: str, token: str, session: SessionId | None = None) -> Done | Refusal:
    reply = harness.ask(c.Retoken(session or harness.operator, name=MemberName(name), token=token))
    assert isinstance(reply, Done | Refusal)
    return reply


def test_an_operator_decides_which_of_several_tokens_a_name_belongs_to(harness: BrokerHarness) -> None:
    orphan(harness, "new token", "another token")
    assert retoken(harness, "ada", "another token") == Done()
    assert harness.events()[-1] == Registered("ada", "operator", "another shared token")
    assert code(ask(harness, ByShared("new token"), "ada")) is Code.NAME_TAKEN
    assert harness.bodies(register(harness, "another token", "ada")) == ["before"]


def test_a_name_that_changes_its_token_ends_the_sessions_of_the_old_one_and_no_others(harness: BrokerHarness) -> None:
    harness.restart("one token", "another token")
    session = register(harness, "one token", "ada")
    own = harness.attach("ada")
    assert retoken(harness, "ada", "another token") == Done()
    assert [(each, why.code) for each, why in harness.outcome.ended] == [(session, Code.NAME_TAKEN)]
    assert retoken(harness, "ada", "another token") == Done()
    assert harness.outcome.ended == []
    assert harness.ask(c.Detach(own)) == Done()


@pytest.mark.parametrize(
    ("name", "token", "expected"),
    [
        ("nobody", "new token", Code.UNKNOWN_MEMBER),
        ("ada", "old token", Code.INVALID_REQUEST),
        ("ada", "a third token", Code.INVALID_REQUEST),
        ("cy", "new token", Code.INVALID_REQUEST),
    ],
)
def test_a_name_goes_to_a_configured_token_only_and_only_one_that_a_token_made(
    harness: BrokerHarness, name: str, token: str, expected: Code
) -> None:
    orphan(harness, "new token", "another token")
    harness.add("cy")
    refusal = retoken(harness, name, token)
    assert isinstance(refusal, Refusal)
    assert refusal.code is expected


def test_a_peer_cannot_give_names_to_its_token_not_even_its_own(harness: BrokerHarness) -> None:
    orphan(harness, "new token", "another token")
    session = register(harness, "new token", "mallory")
    for name in ("ada", "mallory"):
        refusal = retoken(harness, name, "new token", session)
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.FORBIDDEN
