"""Tests of tokens: a member may have several, with a label and an end, and each can be revoked alone."""

import msgspec
import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import START_MS, BrokerHarness
from tieline.contract import command as c
from tieline.contract.event import Registered
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.member import ByToken, TokenView
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, Done, Issued, TokenIssued, Tokens

ADA = MemberName("ada")
CHOSEN = "a token of my own choice"


def tokens(harness: BrokerHarness, session: SessionId, name: MemberName = ADA) -> tuple[TokenView, ...]:
    return harness.expect(Tokens, c.ListTokens(session, name=name)).tokens


def opens(harness: BrokerHarness, token: str) -> bool:
    reply = harness.ask(c.Attach(protocol="hub", credential=ByToken(token)))
    return isinstance(reply, Attached)


def test_one_more_token_opens_sessions_beside_the_first(harness: BrokerHarness) -> None:
    first = harness.add("ada")
    ada = harness.attach_by_token(first)
    harness.clock_and_ids.time_ms += 5
    issued = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="laptop", expires_at_ms=START_MS + 100))
    assert issued.member == "ada"
    assert issued.view == TokenView(issued.view.id, "laptop", "ada", START_MS + 5, START_MS + 100, None)
    assert opens(harness, first)
    assert opens(harness, issued.token)
    listed = tokens(harness, ada)
    assert [view.label for view in listed] == ["", "laptop"]
    assert [view.last_used_ms for view in listed] == [START_MS + 5, START_MS + 5]
    assert Registered("ada", "ada", "one more token: laptop") in harness.events()


def test_a_token_can_be_chosen(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    assert harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, token=CHOSEN)).token == CHOSEN
    assert opens(harness, CHOSEN)
    assert harness.refused(c.IssueToken(ada, name=ADA, token=CHOSEN)).code is Code.INVALID_REQUEST
    assert harness.refused(c.IssueToken(ada, name=ADA, token="short")).code is Code.INVALID_REQUEST


def test_a_token_that_has_expired_opens_nothing_and_is_not_listed(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    token = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, expires_at_ms=START_MS + 10)).token
    harness.clock_and_ids.time_ms += 9
    assert opens(harness, token)
    harness.clock_and_ids.time_ms += 1
    assert not opens(harness, token)
    assert len(tokens(harness, ada)) == 1
    assert harness.refused(c.IssueToken(ada, name=ADA, expires_at_ms=START_MS + 10)).code is Code.INVALID_REQUEST


def test_when_a_token_expires_its_own_sessions_end_and_no_others(harness: BrokerHarness) -> None:
    first = harness.add("ada")
    ada = harness.attach_by_token(first)
    issued = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="laptop", expires_at_ms=START_MS + 100))
    laptop = harness.attach_by_token(issued.token)
    harness.pass_ms(99)
    assert harness.outcome.ended == []
    harness.pass_ms(1)
    assert [(session, why.code) for session, why in harness.outcome.ended] == [(laptop, Code.UNAUTHORIZED)]
    assert [view.label for view in tokens(harness, ada)] == [""]
    harness.pass_ms(1)
    assert harness.outcome.ended == []


def test_a_token_that_is_given_again_for_longer_lasts_longer(harness: BrokerHarness) -> None:
    ada = harness.attach_by_token(harness.add("ada"))
    issued = harness.expect(
        TokenIssued, c.IssueToken(ada, name=ADA, label="", expires_at_ms=START_MS + 100, token=CHOSEN)
    )
    harness.expect(Done, c.RevokeToken(ada, name=ADA, token_id=issued.view.id))
    harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="", expires_at_ms=START_MS + 200, token=CHOSEN))
    harness.pass_ms(150)
    assert opens(harness, CHOSEN)
    harness.pass_ms(50)
    assert not opens(harness, CHOSEN)


def test_revoking_one_ends_its_own_sessions_and_no_others(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    second = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA))
    other = harness.attach_by_token(second.token)
    harness.expect(Done, c.RevokeToken(ada, name=ADA, token_id=second.view.id))
    assert [session for session, _ in harness.outcome.ended] == [other]
    assert harness.outcome.ended[0][1].code is Code.UNAUTHORIZED
    assert not opens(harness, second.token)
    assert len(tokens(harness, ada)) == 1
    assert harness.refused(c.RevokeToken(ada, name=ADA, token_id=second.view.id)).code is Code.UNKNOWN_TOKEN


def test_whoever_revokes_its_own_token_hears_that_it_is_done_and_ends(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    (view,) = tokens(harness, ada)
    harness.expect(Done, c.RevokeToken(ada, name=ADA, token_id=view.id))
    assert [session for session, _ in harness.outcome.ended] == [ada]


def test_rotating_replaces_all_of_them(harness: BrokerHarness) -> None:
    first = harness.add("ada")
    ada = harness.attach_by_token(first)
    second = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA)).token
    fresh = harness.expect(Issued, c.RotateToken(ada, name=ADA)).token
    assert [opens(harness, token) for token in (first, second, fresh)] == [False, False, True]
    assert len(tokens(harness, ada)) == 1


def test_tokens_are_ones_own_business_and_that_of_those_who_manage_members(harness: BrokerHarness) -> None:
    ada, bob, mo = harness.join("ada"), harness.join("bob"), harness.join("mo", "members.manage")
    (view,) = tokens(harness, ada)
    for command in (
        c.IssueToken(bob, name=ADA),
        c.ListTokens(bob, name=ADA),
        c.RevokeToken(bob, name=ADA, token_id=view.id),
    ):
        assert harness.refused(command).code is Code.FORBIDDEN
    assert harness.expect(TokenIssued, c.IssueToken(mo, name=ADA)).view.created_by == "mo"
    assert len(tokens(harness, mo)) == len(tokens(harness, harness.operator)) == 2
    harness.expect(Done, c.RevokeToken(mo, name=ADA, token_id=view.id))
    assert harness.refused(c.ListTokens(mo, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_tokens_are_there_after_a_restart_and_revoked_ones_are_not(harness: BrokerHarness, how: str) -> None:
    ada = harness.join("ada")
    kept = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="kept", expires_at_ms=START_MS + 1000))
    gone = harness.expect(TokenIssued, c.IssueToken(ada, name=ADA))
    harness.expect(Done, c.RevokeToken(ada, name=ADA, token_id=gone.view.id))
    getattr(harness, how)()
    assert opens(harness, kept.token)
    assert not opens(harness, gone.token)
    listed = tokens(harness, harness.operator)
    assert [(view.id, view.label, view.expires_at_ms) for view in listed][1:] == [
        (kept.view.id, "kept", START_MS + 1000)
    ]


def test_a_removed_member_has_no_tokens(harness: BrokerHarness) -> None:
    first = harness.add("ada")
    second = harness.expect(TokenIssued, c.IssueToken(harness.operator, name=ADA)).token
    harness.remove("ada")
    assert not opens(harness, first)
    assert not opens(harness, second)


def test_a_member_has_only_so_many_and_expired_ones_make_room(make_harness: MakeHarness) -> None:
    harness = make_harness(msgspec.structs.replace(DEFAULT_LIMITS, tokens_max=2))
    ada = harness.join("ada")
    harness.expect(TokenIssued, c.IssueToken(ada, name=ADA, expires_at_ms=START_MS + 1))
    assert harness.refused(c.IssueToken(ada, name=ADA)).code is Code.TOO_MANY_TOKENS
    harness.clock_and_ids.time_ms += 1
    harness.expect(TokenIssued, c.IssueToken(ada, name=ADA))
    assert len(tokens(harness, ada)) == 2


def test_a_label_has_a_limit(harness: BrokerHarness) -> None:
    assert harness.refused(c.IssueToken(harness.join("ada"), name=ADA, label="x" * 5000)).code is Code.INVALID_REQUEST
