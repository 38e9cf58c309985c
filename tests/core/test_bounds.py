"""What a member or a stranger can provoke has bounds."""

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import channel as ch
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Refused
from tieline.contract.identifiers import ChannelName, MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByToken, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, ChannelState, History, Issued, ObjectiveState, Receipts


def refusals(desk: Desk) -> list[Refused]:
    return [event for event in desk.events() if isinstance(event, Refused)]


def test_many_refusals_of_a_kind_share_a_row(desk: Desk) -> None:
    ada = desk.join("ada")
    for _ in range(100):
        desk.refused(c.Send(ada, content=content("@nobody")))
    assert [(row.code, row.speaker, row.count) for row in refusals(desk)] == [(Code.UNKNOWN_MEMBER, "ada", 1)]
    desk.clock_and_ids.time_ms += desk.broker.limits.refusal_row_ms
    desk.refused(c.Send(ada, content=content("@nobody")))
    assert [row.count for row in refusals(desk)] == [1, 100]


def test_refusals_of_different_kinds_and_speakers_have_rows_of_their_own(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for session in (ada, bob):
        desk.refused(c.Send(session, content=content("@nobody")))
        desk.refused(c.Send(session, content=content("#nowhere")))
    assert len(refusals(desk)) == 4


def test_a_stranger_cannot_write_what_it_calls_itself_into_the_log(desk: Desk) -> None:
    desk.refused(c.Attach(protocol="hub", credential=ByToken("wrong"), member=MemberName("x" * 1_000_000)))
    assert max(len(row.event) for row in desk.log()) < 1000


def test_strangers_who_invent_names_share_the_rows_of_their_cause(desk: Desk) -> None:
    for number in range(400):
        desk.refused(_stranger(f"invented-{number}"))
    desk.pass_ms(desk.limits.refusal_row_ms)
    rows = refusals(desk)
    assert [(row.code, row.speaker, row.protocol, row.what, row.count) for row in rows] == [
        (Code.UNAUTHORIZED, "", "hub", "Attach", 1),
        (Code.UNAUTHORIZED, "", "hub", "Attach", 399),
    ]
    assert [row.claimed for row in rows] == [("invented-0",), ("invented-1", "invented-2", "invented-3")]


def test_refusals_that_were_counted_when_the_hub_stops_are_in_the_log(desk: Desk) -> None:
    for number in range(400):
        desk.refused(_stranger(f"invented-{number}"))
    desk.restart()
    assert [row.count for row in refusals(desk)] == [1, 399]


def test_clients_without_an_identity_share_rows_too(desk: Desk) -> None:
    for number in range(50):
        session = desk.expect(
            Attached, c.Attach(protocol="paper", credential=Unnamed(f"client-{number}", "dev"))
        ).session
        desk.refused(c.Send(session, content=content("@nobody")))
    assert [(row.speaker, row.claimed) for row in refusals(desk)] == [("", ("client-0@dev",))]


def test_what_strangers_add_to_the_log_in_a_day_is_bounded(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(refusal_rows_max=5))
    asked = 0
    for _ in range(24 * 60):
        for protocol in ("paper", "stone"):
            desk.refused(_stranger(f"invented-{asked}", protocol))
            asked += 1
        desk.pass_ms(60_000)
    rows = refusals(desk)
    assert len(rows) <= 25 * (5 + 2)
    assert asked - sum(row.count for row in rows) <= 2 * 60 + 2


def test_a_cause_that_is_new_has_its_row_at_once_however_many_refusals_came_before(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(refusal_rows_max=2))
    ada = desk.join("ada")
    for _ in range(10):
        desk.refused(_stranger("mallory"))
        desk.pass_ms(desk.limits.refusal_row_ms)
    desk.refused(_stranger("mallory", "stone"))
    desk.refused(c.Send(ada, content=content("@nobody")))
    assert [(row.speaker, row.protocol) for row in refusals(desk)][-2:] == [("", "stone"), ("ada", "hub")]


def test_a_members_refusals_add_few_rows_in_an_hour(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(refusal_rows_max=5))
    ada = desk.join("ada")
    for _ in range(300):
        desk.refused(c.Send(ada, content=content("@nobody")))
        desk.pass_ms(desk.limits.refusal_row_ms)
    assert len(refusals(desk)) <= 2 * 5 + 1
    assert {row.speaker for row in refusals(desk)} == {"ada"}


def test_a_name_that_cannot_be_written_down_is_refused_like_any_other(desk: Desk) -> None:
    desk.refused(_stranger("half \ud800 a pair"))
    assert refusals(desk)[0].claimed == ("half ? a pair",)


def _stranger(name: str, protocol: str = "hub") -> c.Attach:
    return c.Attach(protocol=protocol, credential=ByToken("wrong"), member=MemberName(name))


def test_evidence_is_short(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    long = "x" * (desk.broker.limits.text_bytes_max + 1)
    assert desk.refused(c.Advance(bob, ranges=((1, 1),), state=State.SEEN, evidence=long)).code is Code.INVALID_REQUEST


def test_too_many_streams_are_refused_and_known_ones_go_on(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(streams_max=2))
    ada = desk.join("ada")
    desk.add("bob")
    for topic in ("one", "two"):
        desk.send(ada, "@bob", topic=topic)
    assert desk.refused(c.Send(ada, content=content("@bob", topic="three"))).code is Code.TOO_MANY_STREAMS
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
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    assert desk.broker.followers.by_offset
    if settle == "ack":
        desk.advance(bob, 1)
    else:
        desk.remove("bob")
    assert not desk.broker.followers.by_offset
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    assert not desk.broker.followers.by_offset


def test_too_many_followed_messages_are_refused(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(follows_max=1))
    ada = desk.join("ada")
    desk.add("bob")
    one, two = desk.send(ada, "@bob"), desk.send(ada, "@bob")
    for _ in range(2):
        desk.expect(Receipts, c.Follow(ada, message_id=one.message_id))
    assert desk.refused(c.Follow(ada, message_id=two.message_id)).code is Code.TOO_MANY_FOLLOWED


def test_sessions_of_a_token_end_with_it(desk: Desk) -> None:
    by_token, by_key = desk.join("ada"), desk.attach("ada")
    desk.expect(Issued, c.RotateToken(desk.operator, name=MemberName("ada")))
    assert [(session, why.code) for session, why in desk.outcome.ended] == [(by_token, Code.UNAUTHORIZED)]
    assert desk.refused(c.Send(by_token, content=content("*"))).code is Code.UNKNOWN_SESSION
    desk.send(by_key, "@ada")


def test_a_member_that_rotates_its_own_token_stays_connected(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.expect(Issued, c.RotateToken(ada, name=MemberName("ada")))
    desk.send(ada, "@ada")


def test_what_does_not_fit_one_wire_is_dead_only_if_there_is_no_other(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    ackless = desk.attach("bob", acknowledges=False)
    first = desk.send(ada, "@bob")
    desk.advance(ackless, 1, State.DEAD, "too_large")
    assert [delivery.key for delivery in desk.fetch(bob)] == [1]
    desk.ask(c.Detach(bob))
    desk.advance(ackless, 1, State.DEAD, "too_large")
    (receipt,) = desk.expect(Receipts, c.ReadReceipts(ada, message_id=first.message_id)).receipts
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "too_large")


# A member's own share of what everybody needs.


def test_one_member_cannot_take_all_channels(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(channels_max=5, member_channels_max=3, subscriptions_max=4))
    ada, bob = desk.join("ada"), desk.join("bob")
    for name in ("a", "b", "c"):
        desk.subscribe(ada, name)
    refusal = desk.refused(c.Subscribe(ada, channel=ChannelName("d")))
    assert (refusal.code, refusal.message) == (Code.TOO_MANY_CHANNELS, "ada has made 3 channels already")
    assert desk.refused(c.CreateChannel(ada, name=ChannelName("d"))).code is Code.TOO_MANY_CHANNELS
    desk.subscribe(bob, "d")
    desk.subscribe(ada, "d")
    desk.subscribe(bob, "e")
    refusal = desk.refused(c.Subscribe(ada, channel=ChannelName("e")))
    assert (refusal.code, refusal.message) == (Code.TOO_MANY_CHANNELS, "ada is in 4 channels already")
    desk.ask(c.Unsubscribe(ada, channel=ChannelName("a")))
    desk.restart()
    ada = desk.attach("ada")
    desk.subscribe(ada, "e")


def test_one_sender_cannot_take_all_streams_of_a_recipient(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(topics_max=2))
    ada, eve, _ = desk.join("ada"), desk.join("eve"), desk.join("bob")
    for topic in ("one", "two", "one"):
        desk.send(ada, "@bob", topic=topic)
    assert desk.refused(c.Send(ada, content=content("@bob", topic="three"))).code is Code.TOO_MANY_STREAMS
    desk.send(ada, "@bob")
    desk.send(eve, "@bob", topic="three")


def test_one_session_cannot_follow_all_that_may_be_followed(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(session_follows_max=2))
    ada, eve, bob = desk.join("ada"), desk.join("eve"), desk.join("bob")
    sent = [desk.send(ada, "@bob").message_id for _ in range(3)]
    for message_id in sent[:2]:
        desk.expect(Receipts, c.Follow(ada, message_id=message_id))
    assert desk.refused(c.Follow(ada, message_id=sent[2])).code is Code.TOO_MANY_FOLLOWED
    desk.expect(Receipts, c.Follow(eve, message_id=desk.send(eve, "@bob").message_id))
    desk.ask(c.Advance(bob, ranges=((1, 4),), state=State.ACKED))
    assert len(desk.outcome.progress) == 3
    desk.expect(Receipts, c.Follow(ada, message_id=sent[2]))


def test_one_member_cannot_take_all_objectives(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(member_objectives_max=1))
    ada, eve = (desk.join(name, "objectives.create") for name in ("ada", "eve"))

    def create(session: SessionId) -> c.CreateObjective:
        return c.CreateObjective(session=session, title="t", outcome="o", assignee=MemberName("ada"))

    desk.expect(ObjectiveState, create(ada))
    assert desk.refused(create(ada)).code is Code.TOO_MANY_OBJECTIVES
    desk.expect(ObjectiveState, create(eve))


def test_one_command_moves_only_so_many_ranges(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(ranges_max=2))
    bob = desk.join("bob")
    ranges = ((1, 1), (3, 3), (5, 5))
    assert desk.refused(c.Advance(bob, ranges=ranges, state=State.ACKED)).code is Code.INVALID_REQUEST
    assert desk.refused(c.Discard(bob, ranges=ranges, reason="old")).code is Code.INVALID_REQUEST


def test_a_channel_has_only_so_many_names(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(channel_names_max=2))
    ada = desk.join("ada")
    made = desk.expect(ChannelState, c.CreateChannel(ada, name=ChannelName("a"))).channel
    for name in ("b", "c"):
        desk.expect(ChannelState, c.ChangeChannel(ada, channel=made.id, change=ch.Rename(name)))
    assert desk.refused(c.ChangeChannel(ada, channel=made.id, change=ch.Rename("d"))).code is Code.TOO_MANY_CHANNELS


def test_a_name_that_is_free_again_costs_the_same_however_many_channels_there_are(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits())
    ada, bob = desk.join("ada"), desk.join("bob")
    made = desk.expect(ChannelState, c.CreateChannel(ada, name=ChannelName("dev"))).channel
    desk.expect(Accepted, c.Send(ada, content=content("#dev", "of the first"), allow_empty=True))
    desk.expect(ChannelState, c.ChangeChannel(ada, channel=made.id, change=ch.Rename("old")))
    desk.subscribe(bob, "dev")
    for _ in range(2):
        assert desk.expect(History, c.ReadHistory(bob, peer="#dev")).messages == ()
        desk.restart()
        bob = desk.attach("bob")
    ada = desk.attach("ada")
    desk.ask(c.Unsubscribe(ada, channel=ChannelName("old")))
    desk.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    desk.subscribe(bob, "dev")
    assert [message.content.body for message in desk.expect(History, c.ReadHistory(bob, peer="#dev")).messages] == [
        "of the first"
    ]


def test_near_names_are_looked_for_a_few_times_in_a_batch(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits())
    ada = desk.join("ada")
    for _ in range(2):
        replies = desk.ask_all(*(c.Send(ada, content=content("@adda")) for _ in range(100)))
        near = [reply.near for reply in replies if isinstance(reply, Refusal)]
        assert len(near) == 100
        assert near[:16] == [("ada",)] * 16
        assert set(near[16:]) == {()}
