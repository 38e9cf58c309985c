"""What a member or a stranger can provoke has bounds."""

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Refused
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.member import ByToken
from tieline.contract.refusal import Code
from tieline.contract.reply import Issued, Receipts


def refusals(desk: Desk) -> list[Refused]:
    return [event for event in desk.events() if isinstance(event, Refused)]


def test_many_refusals_of_a_kind_share_a_row(desk: Desk) -> None:
    ada = desk.join("ada")
    for _ in range(100):
        desk.refused(c.Send(ada, content("@nobody")))
    assert [(row.code, row.speaker, row.count) for row in refusals(desk)] == [(Code.UNKNOWN_MEMBER, "ada", 1)]
    desk.nature.time_ms += desk.broker.limits.refusal_row_ms
    desk.refused(c.Send(ada, content("@nobody")))
    assert [row.count for row in refusals(desk)] == [1, 100]


def test_refusals_of_different_kinds_and_speakers_have_rows_of_their_own(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for session in (ada, bob):
        desk.refused(c.Send(session, content("@nobody")))
        desk.refused(c.Send(session, content("#nowhere")))
    assert len(refusals(desk)) == 4


def test_a_stranger_cannot_write_what_it_calls_itself_into_the_log(desk: Desk) -> None:
    desk.refused(c.Attach(protocol="hub", credential=ByToken("wrong"), member=MemberName("x" * 1_000_000)))
    assert max(len(row.event) for row in desk.log()) < 1000


def test_evidence_is_short(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    long = "x" * (desk.broker.limits.text_bytes_max + 1)
    assert desk.refused(c.Advance(bob, ((1, 1),), State.SEEN, long)).code is Code.INVALID_REQUEST


def test_too_many_streams_are_refused_and_known_ones_go_on(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(streams_max=2))
    ada = desk.join("ada")
    desk.add("bob")
    for topic in ("one", "two"):
        desk.send(ada, "@bob", topic=topic)
    assert desk.refused(c.Send(ada, content("@bob", topic="three"))).code is Code.TOO_MANY_STREAMS
    desk.send(ada, "@bob", topic="one")


def test_a_member_with_too_many_streams_still_hears_everybody_without_a_topic(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(streams_max=2))
    ada, carol = desk.join("ada"), desk.join("carol")
    desk.add("bob")
    for topic in ("one", "two"):
        desk.send(ada, "@bob", topic=topic)
    assert desk.send(carol, "@bob").recipients == 1
    assert desk.send(carol, "#general").recipients == 2


@pytest.mark.parametrize("settle", ["ack", "remove"])
def test_a_settled_message_is_followed_no_more(desk: Desk, settle: str) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.expect(Receipts, c.Follow(ada, sent.message_id))
    assert desk.broker.followers
    if settle == "ack":
        desk.advance(bob, 1)
    else:
        desk.remove("bob")
    assert not desk.broker.followers
    desk.expect(Receipts, c.Follow(ada, sent.message_id))
    assert not desk.broker.followers


def test_too_many_followed_messages_are_refused(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(follows_max=1))
    ada = desk.join("ada")
    desk.add("bob")
    one, two = desk.send(ada, "@bob"), desk.send(ada, "@bob")
    for _ in range(2):
        desk.expect(Receipts, c.Follow(ada, one.message_id))
    assert desk.refused(c.Follow(ada, two.message_id)).code is Code.TOO_MANY_FOLLOWED


def test_sessions_of_a_token_end_with_it(desk: Desk) -> None:
    by_token, by_key = desk.join("ada"), desk.attach("ada")
    desk.expect(Issued, c.RotateToken(desk.operator, MemberName("ada")))
    assert [(session, why.code) for session, why in desk.outcome.ended] == [(by_token, Code.UNAUTHORIZED)]
    assert desk.refused(c.Send(by_token, content("*"))).code is Code.UNKNOWN_SESSION
    desk.send(by_key, "@ada")


def test_a_member_that_rotates_its_own_token_stays_connected(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.expect(Issued, c.RotateToken(ada, MemberName("ada")))
    desk.send(ada, "@ada")


def test_what_does_not_fit_one_wire_is_dead_only_if_there_is_no_other(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    mute = desk.attach("bob", acknowledges=False)
    first = desk.send(ada, "@bob")
    desk.advance(mute, 1, State.DEAD, "too_large")
    assert [delivery.key for delivery in desk.fetch(bob)] == [1]
    desk.ask(c.Detach(bob))
    desk.advance(mute, 1, State.DEAD, "too_large")
    (receipt,) = desk.expect(Receipts, c.ReadReceipts(ada, first.message_id)).receipts
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "too_large")
