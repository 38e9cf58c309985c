"""Tokens: a member may have several, with a label and an end, and each can be revoked alone."""

import msgspec
import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import START_MS, Desk
from tieline.contract import command as c
from tieline.contract.event import Registered
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.member import ByToken, TokenView
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, Done, Issued, TokenIssued, Tokens

ADA = MemberName("ada")
CHOSEN = "a token of my own choice"


def tokens(desk: Desk, session: SessionId, name: MemberName = ADA) -> tuple[TokenView, ...]:
    return desk.expect(Tokens, c.ListTokens(session, name=name)).tokens


def opens(desk: Desk, token: str) -> bool:
    reply = desk.ask(c.Attach(protocol="hub", credential=ByToken(token)))
    return isinstance(reply, Attached)


def test_one_more_token_opens_sessions_beside_the_first(desk: Desk) -> None:
    first = desk.add("ada")
    ada = desk.attach_by_token(first)
    desk.clock_and_ids.time_ms += 5
    issued = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="laptop", expires_at_ms=START_MS + 100))
    assert issued.member == "ada"
    assert issued.view == TokenView(issued.view.id, "laptop", "ada", START_MS + 5, START_MS + 100, None)
    assert opens(desk, first)
    assert opens(desk, issued.token)
    listed = tokens(desk, ada)
    assert [view.label for view in listed] == ["", "laptop"]
    assert [view.last_used_ms for view in listed] == [START_MS + 5, START_MS + 5]
    assert Registered("ada", "ada", "one more token") in desk.events()


def test_a_token_can_be_chosen(desk: Desk) -> None:
    ada = desk.join("ada")
    assert desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, token=CHOSEN)).token == CHOSEN
    assert opens(desk, CHOSEN)
    assert desk.refused(c.IssueToken(ada, name=ADA, token=CHOSEN)).code is Code.INVALID_REQUEST
    assert desk.refused(c.IssueToken(ada, name=ADA, token="short")).code is Code.INVALID_REQUEST


def test_a_token_that_has_expired_opens_nothing_and_is_not_listed(desk: Desk) -> None:
    ada = desk.join("ada")
    token = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, expires_at_ms=START_MS + 10)).token
    desk.clock_and_ids.time_ms += 9
    assert opens(desk, token)
    desk.clock_and_ids.time_ms += 1
    assert not opens(desk, token)
    assert len(tokens(desk, ada)) == 1
    assert desk.refused(c.IssueToken(ada, name=ADA, expires_at_ms=START_MS + 10)).code is Code.INVALID_REQUEST


def test_when_a_token_expires_its_own_sessions_end_and_no_others(desk: Desk) -> None:
    first = desk.add("ada")
    ada = desk.attach_by_token(first)
    issued = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="laptop", expires_at_ms=START_MS + 100))
    laptop = desk.attach_by_token(issued.token)
    desk.pass_ms(99)
    assert desk.outcome.ended == []
    desk.pass_ms(1)
    assert [(session, why.code) for session, why in desk.outcome.ended] == [(laptop, Code.UNAUTHORIZED)]
    assert [view.label for view in tokens(desk, ada)] == [""]
    desk.pass_ms(1)
    assert desk.outcome.ended == []


def test_a_token_that_is_given_again_for_longer_lasts_longer(desk: Desk) -> None:
    ada = desk.attach_by_token(desk.add("ada"))
    issued = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="", expires_at_ms=START_MS + 100, token=CHOSEN))
    desk.expect(Done, c.RevokeToken(ada, name=ADA, token_id=issued.view.id))
    desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="", expires_at_ms=START_MS + 200, token=CHOSEN))
    desk.pass_ms(150)
    assert opens(desk, CHOSEN)
    desk.pass_ms(50)
    assert not opens(desk, CHOSEN)


def test_revoking_one_ends_its_own_sessions_and_no_others(desk: Desk) -> None:
    ada = desk.join("ada")
    second = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA))
    other = desk.attach_by_token(second.token)
    desk.expect(Done, c.RevokeToken(ada, name=ADA, token_id=second.view.id))
    assert [session for session, _ in desk.outcome.ended] == [other]
    assert desk.outcome.ended[0][1].code is Code.UNAUTHORIZED
    assert not opens(desk, second.token)
    assert len(tokens(desk, ada)) == 1
    assert desk.refused(c.RevokeToken(ada, name=ADA, token_id=second.view.id)).code is Code.UNKNOWN_TOKEN


def test_whoever_revokes_its_own_token_hears_that_it_is_done_and_ends(desk: Desk) -> None:
    ada = desk.join("ada")
    (view,) = tokens(desk, ada)
    desk.expect(Done, c.RevokeToken(ada, name=ADA, token_id=view.id))
    assert [session for session, _ in desk.outcome.ended] == [ada]


def test_rotating_replaces_all_of_them(desk: Desk) -> None:
    first = desk.add("ada")
    ada = desk.attach_by_token(first)
    second = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA)).token
    fresh = desk.expect(Issued, c.RotateToken(ada, name=ADA)).token
    assert [opens(desk, token) for token in (first, second, fresh)] == [False, False, True]
    assert len(tokens(desk, ada)) == 1


def test_tokens_are_ones_own_business_and_that_of_those_who_manage_members(desk: Desk) -> None:
    ada, bob, mo = desk.join("ada"), desk.join("bob"), desk.join("mo", "members.manage")
    (view,) = tokens(desk, ada)
    for command in (
        c.IssueToken(bob, name=ADA),
        c.ListTokens(bob, name=ADA),
        c.RevokeToken(bob, name=ADA, token_id=view.id),
    ):
        assert desk.refused(command).code is Code.FORBIDDEN
    assert desk.expect(TokenIssued, c.IssueToken(mo, name=ADA)).view.created_by == "mo"
    assert len(tokens(desk, mo)) == len(tokens(desk, desk.operator)) == 2
    desk.expect(Done, c.RevokeToken(mo, name=ADA, token_id=view.id))
    assert desk.refused(c.ListTokens(mo, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_tokens_are_there_after_a_restart_and_revoked_ones_are_not(desk: Desk, how: str) -> None:
    ada = desk.join("ada")
    kept = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, label="kept", expires_at_ms=START_MS + 1000))
    gone = desk.expect(TokenIssued, c.IssueToken(ada, name=ADA))
    desk.expect(Done, c.RevokeToken(ada, name=ADA, token_id=gone.view.id))
    getattr(desk, how)()
    assert opens(desk, kept.token)
    assert not opens(desk, gone.token)
    listed = tokens(desk, desk.operator)
    assert [(view.id, view.label, view.expires_at_ms) for view in listed][1:] == [
        (kept.view.id, "kept", START_MS + 1000)
    ]


def test_a_removed_member_has_no_tokens(desk: Desk) -> None:
    first = desk.add("ada")
    second = desk.expect(TokenIssued, c.IssueToken(desk.operator, name=ADA)).token
    desk.remove("ada")
    assert not opens(desk, first)
    assert not opens(desk, second)


def test_a_member_has_only_so_many_and_expired_ones_make_room(make_desk: MakeDesk) -> None:
    desk = make_desk(msgspec.structs.replace(DEFAULT_LIMITS, tokens_max=2))
    ada = desk.join("ada")
    desk.expect(TokenIssued, c.IssueToken(ada, name=ADA, expires_at_ms=START_MS + 1))
    assert desk.refused(c.IssueToken(ada, name=ADA)).code is Code.TOO_MANY_TOKENS
    desk.clock_and_ids.time_ms += 1
    desk.expect(TokenIssued, c.IssueToken(ada, name=ADA))
    assert len(tokens(desk, ada)) == 2


def test_a_label_has_a_limit(desk: Desk) -> None:
    assert desk.refused(c.IssueToken(desk.join("ada"), name=ADA, label="x" * 5000)).code is Code.INVALID_REQUEST
