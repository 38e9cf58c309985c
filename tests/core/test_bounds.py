"""Tests that everything which a member or a stranger can cause has a limit, such as the number of log rows."""

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import channel as ch
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Refused
from tieline.contract.identifiers import ChannelName, MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByToken, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, ChannelState, History, Issued, ObjectiveState, Receipts


def refusals(harness: BrokerHarness) -> list[Refused]:
    return [event for event in harness.events() if isinstance(event, Refused)]


def test_many_refusals_of_a_kind_share_a_row(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    for _ in range(100):
        harness.refused(c.Send(ada, content=content("@nobody")))
    assert [(row.code, row.speaker, row.count) for row in refusals(harness)] == [(Code.UNKNOWN_MEMBER, "ada", 1)]
    harness.clock_and_ids.time_ms += harness.broker.limits.refusal_row_ms
    harness.refused(c.Send(ada, content=content("@nobody")))
    assert [row.count for row in refusals(harness)] == [1, 100]


def test_refusals_of_different_kinds_and_speakers_have_rows_of_their_own(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for session in (ada, bob):
        harness.refused(c.Send(session, content=content("@nobody")))
        harness.refused(c.Send(session, content=content("#nowhere")))
    assert len(refusals(harness)) == 4


def test_a_stranger_cannot_write_what_it_calls_itself_into_the_log(harness: BrokerHarness) -> None:
    harness.refused(c.Attach(protocol="hub", credential=ByToken("wrong"), member=MemberName("x" * 1_000_000)))
    assert max(len(row.event) for row in harness.log()) < 1000


def test_strangers_who_invent_names_share_the_rows_of_their_cause(harness: BrokerHarness) -> None:
    for number in range(400):
        harness.refused(_stranger(f"invented-{number}"))
    harness.pass_ms(harness.limits.refusal_row_ms)
    rows = refusals(harness)
    assert [(row.code, row.speaker, row.protocol, row.what, row.count) for row in rows] == [
        (Code.UNAUTHORIZED, "", "hub", "Attach", 1),
        (Code.UNAUTHORIZED, "", "hub", "Attach", 399),
    ]
    assert [row.claimed for row in rows] == [("invented-0",), ("invented-1", "invented-2", "invented-3")]


def test_refusals_that_were_counted_when_the_hub_stops_are_in_the_log(harness: BrokerHarness) -> None:
    for number in range(400):
        harness.refused(_stranger(f"invented-{number}"))
    harness.restart()
    assert [row.count for row in refusals(harness)] == [1, 399]


def test_clients_without_an_identity_share_rows_too(harness: BrokerHarness) -> None:
    for number in range(50):
        session = harness.expect(
            Attached, c.Attach(protocol="paper", credential=Unnamed(f"client-{number}", "dev"))
        ).session
        harness.refused(c.Send(session, content=content("@nobody")))
    assert [(row.speaker, row.claimed) for row in refusals(harness)] == [("", ("client-0@dev",))]


def test_what_strangers_add_to_the_log_in_a_day_is_bounded(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(refusal_rows_max=5))
    asked = 0
    for _ in range(24 * 60):
        for protocol in ("paper", "stone"):
            harness.refused(_stranger(f"invented-{asked}", protocol))
            asked += 1
        harness.pass_ms(60_000)
    rows = refusals(harness)
    assert len(rows) <= 25 * (5 + 2)
    assert asked - sum(row.count for row in rows) <= 2 * 60 + 2


def test_a_cause_that_is_new_has_its_row_at_once_however_many_refusals_came_before(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(refusal_rows_max=2))
    ada = harness.join("ada")
    for _ in range(10):
        harness.refused(_stranger("mallory"))
        harness.pass_ms(harness.limits.refusal_row_ms)
    harness.refused(_stranger("mallory", "stone"))
    harness.refused(c.Send(ada, content=content("@nobody")))
    assert [(row.speaker, row.protocol) for row in refusals(harness)][-2:] == [("", "stone"), ("ada", "hub")]


def test_a_members_refusals_add_few_rows_in_an_hour(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(refusal_rows_max=5))
    ada = harness.join("ada")
    for _ in range(300):
        harness.refused(c.Send(ada, content=content("@nobody")))
        harness.pass_ms(harness.limits.refusal_row_ms)
    assert len(refusals(harness)) <= 2 * 5 + 1
    assert {row.speaker for row in refusals(harness)} == {"ada"}


def test_past_their_limit_the_oldest_cause_is_forgotten_and_has_its_row_at_once_when_it_comes_again(
    harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieline.core.refusals._KINDS_MAX", 2)
    for what in ("a", "b", "a", "c", "b", "a"):
        harness.ask(c.RecordRefusal(protocol="paper", code=Code.INVALID_REQUEST, what=what))
    assert [(row.what, row.count) for row in refusals(harness)] == [("a", 1), ("b", 1), ("c", 1), ("a", 1)]


def test_a_name_that_cannot_be_written_down_is_refused_like_any_other(harness: BrokerHarness) -> None:
    harness.refused(_stranger("half \ud800 a pair"))
    assert refusals(harness)[0].claimed == ("half ? a pair",)


def test_data_that_cannot_be_written_down_is_refused(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    refusal = harness.refused(c.Send(ada, content=content("@ada", data={"half a pair": "\ud800"})))
    assert refusal.code is Code.INVALID_MESSAGE
    assert "the data cannot be written down" in refusal.message
    assert harness.bodies(ada) == []


def _stranger(name: str, protocol: str = "hub") -> c.Attach:
    return c.Attach(protocol=protocol, credential=ByToken("wrong"), member=MemberName(name))


def test_evidence_is_short(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    long = "x" * (harness.broker.limits.text_bytes_max + 1)
    assert (
        harness.refused(c.Advance(bob, ranges=((1, 1),), state=State.SEEN, evidence=long)).code is Code.INVALID_REQUEST
    )


def test_too_many_streams_are_refused_and_known_ones_go_on(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(streams_max=2))
    ada = harness.join("ada")
    harness.add("bob")
    for topic in ("one", "two"):
        harness.send(ada, "@bob", topic=topic)
    assert harness.refused(c.Send(ada, content=content("@bob", topic="three"))).code is Code.TOO_MANY_STREAMS
    harness.send(ada, "@bob", topic="one")


def test_a_member_with_too_many_streams_still_hears_everybody_without_a_topic(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(streams_max=2))
    ada, carol = harness.join("ada"), harness.join("carol")
    harness.add("bob")
    for topic in ("one", "two"):
        harness.send(ada, "@bob", topic=topic)
    assert harness.send(carol, "@bob").recipients == 1
    assert harness.send(carol, "#general").recipients == 2


@pytest.mark.parametrize("settle", ["ack", "remove"])
def test_a_settled_message_is_followed_no_more(harness: BrokerHarness, settle: str) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    assert harness.broker.followers.by_offset
    if settle == "ack":
        harness.advance(bob, 1)
    else:
        harness.remove("bob")
    assert not harness.broker.followers.by_offset
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    assert not harness.broker.followers.by_offset


def test_too_many_followed_messages_are_refused(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(follows_max=1))
    ada = harness.join("ada")
    harness.add("bob")
    one, two = harness.send(ada, "@bob"), harness.send(ada, "@bob")
    for _ in range(2):
        harness.expect(Receipts, c.Follow(ada, message_id=one.message_id))
    assert harness.refused(c.Follow(ada, message_id=two.message_id)).code is Code.TOO_MANY_FOLLOWED


def test_sessions_of_a_token_end_with_it(harness: BrokerHarness) -> None:
    by_token, by_key = harness.join("ada"), harness.attach("ada")
    harness.expect(Issued, c.RotateToken(harness.operator, name=MemberName("ada")))
    assert [(session, why.code) for session, why in harness.outcome.ended] == [(by_token, Code.UNAUTHORIZED)]
    assert harness.refused(c.Send(by_token, content=content("*"))).code is Code.UNKNOWN_SESSION
    harness.send(by_key, "@ada")


def test_a_member_that_rotates_its_own_token_stays_connected(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.expect(Issued, c.RotateToken(ada, name=MemberName("ada")))
    harness.send(ada, "@ada")


def test_what_does_not_fit_one_wire_is_dead_only_if_there_is_no_other(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    ackless = harness.attach("bob", acknowledges=False)
    first = harness.send(ada, "@bob")
    harness.advance(ackless, 1, State.DEAD, "too_large")
    assert [delivery.key for delivery in harness.fetch(bob)] == [1]
    harness.ask(c.Detach(bob))
    harness.advance(ackless, 1, State.DEAD, "too_large")
    (receipt,) = harness.expect(Receipts, c.ReadReceipts(ada, message_id=first.message_id)).receipts
    assert (receipt.state, receipt.steps[-1].evidence) == (State.DEAD, "too_large")


# A member's own share of what everybody needs.


def test_one_member_cannot_take_all_channels(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(channels_max=5, member_channels_max=3, subscriptions_max=4))
    ada, bob = harness.join("ada"), harness.join("bob")
    for name in ("a", "b", "c"):
        harness.subscribe(ada, name)
    refusal = harness.refused(c.Subscribe(ada, channel=ChannelName("d")))
    assert (refusal.code, refusal.message) == (Code.TOO_MANY_CHANNELS, "ada has made 3 channels already")
    assert harness.refused(c.CreateChannel(ada, name=ChannelName("d"))).code is Code.TOO_MANY_CHANNELS
    harness.subscribe(bob, "d")
    harness.subscribe(ada, "d")
    harness.subscribe(bob, "e")
    refusal = harness.refused(c.Subscribe(ada, channel=ChannelName("e")))
    assert (refusal.code, refusal.message) == (Code.TOO_MANY_CHANNELS, "ada is in 4 channels already")
    harness.ask(c.Unsubscribe(ada, channel=ChannelName("a")))
    harness.restart()
    ada = harness.attach("ada")
    harness.subscribe(ada, "e")


def test_one_who_is_in_as_many_channels_as_may_be_makes_no_other(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(subscriptions_max=2))
    ada = harness.join("ada")
    for name in ("a", "b"):
        harness.subscribe(ada, name)
    for command in (c.Subscribe(ada, channel=ChannelName("c")), c.CreateChannel(ada, name=ChannelName("c"))):
        refusal = harness.refused(command)
        assert (refusal.code, refusal.message) == (Code.TOO_MANY_CHANNELS, "ada is in 2 channels already")
    assert harness.refused(c.ViewChannel(ada, channel="c")).code is Code.UNKNOWN_CHANNEL


def test_one_sender_cannot_take_all_streams_of_a_recipient(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(topics_max=2))
    ada, eve, _ = harness.join("ada"), harness.join("eve"), harness.join("bob")
    for topic in ("one", "two", "one"):
        harness.send(ada, "@bob", topic=topic)
    assert harness.refused(c.Send(ada, content=content("@bob", topic="three"))).code is Code.TOO_MANY_STREAMS
    harness.send(ada, "@bob")
    harness.send(eve, "@bob", topic="three")


def test_one_session_cannot_follow_all_that_may_be_followed(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(session_follows_max=2))
    ada, eve, bob = harness.join("ada"), harness.join("eve"), harness.join("bob")
    sent = [harness.send(ada, "@bob").message_id for _ in range(3)]
    for message_id in sent[:2]:
        harness.expect(Receipts, c.Follow(ada, message_id=message_id))
    assert harness.refused(c.Follow(ada, message_id=sent[2])).code is Code.TOO_MANY_FOLLOWED
    harness.expect(Receipts, c.Follow(eve, message_id=harness.send(eve, "@bob").message_id))
    harness.ask(c.Advance(bob, ranges=((1, 4),), state=State.ACKED))
    assert len(harness.outcome.progress) == 3
    harness.expect(Receipts, c.Follow(ada, message_id=sent[2]))


def test_one_member_cannot_take_all_objectives(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(member_objectives_max=1))
    ada, eve = (harness.join(name, "objectives.create") for name in ("ada", "eve"))

    def create(session: SessionId) -> c.CreateObjective:
        return c.CreateObjective(session=session, title="t", outcome="o", assignee=MemberName("ada"))

    harness.expect(ObjectiveState, create(ada))
    assert harness.refused(create(ada)).code is Code.TOO_MANY_OBJECTIVES
    harness.expect(ObjectiveState, create(eve))


def test_one_command_moves_only_so_many_ranges(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(ranges_max=2))
    bob = harness.join("bob")
    ranges = ((1, 1), (3, 3), (5, 5))
    assert harness.refused(c.Advance(bob, ranges=ranges, state=State.ACKED)).code is Code.INVALID_REQUEST
    assert harness.refused(c.Discard(bob, ranges=ranges, reason="old")).code is Code.INVALID_REQUEST


def test_a_channel_has_only_so_many_names(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(channel_names_max=2))
    ada = harness.join("ada")
    made = harness.expect(ChannelState, c.CreateChannel(ada, name=ChannelName("a"))).channel
    for name in ("b", "c"):
        harness.expect(ChannelState, c.ChangeChannel(ada, channel=made.id, change=ch.Rename(name)))
    assert harness.refused(c.ChangeChannel(ada, channel=made.id, change=ch.Rename("d"))).code is Code.TOO_MANY_CHANNELS


def test_a_name_that_is_free_again_costs_the_same_however_many_channels_there_are(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits())
    ada, bob = harness.join("ada"), harness.join("bob")
    made = harness.expect(ChannelState, c.CreateChannel(ada, name=ChannelName("dev"))).channel
    harness.expect(Accepted, c.Send(ada, content=content("#dev", "of the first"), allow_empty=True))
    harness.expect(ChannelState, c.ChangeChannel(ada, channel=made.id, change=ch.Rename("old")))
    harness.subscribe(bob, "dev")
    for _ in range(2):
        assert harness.expect(History, c.ReadHistory(bob, peer="#dev")).messages == ()
        harness.restart()
        bob = harness.attach("bob")
    ada = harness.attach("ada")
    harness.ask(c.Unsubscribe(ada, channel=ChannelName("old")))
    harness.ask(c.Unsubscribe(bob, channel=ChannelName("dev")))
    harness.subscribe(bob, "dev")
    assert [message.content.body for message in harness.expect(History, c.ReadHistory(bob, peer="#dev")).messages] == [
        "of the first"
    ]


def test_near_names_are_looked_for_a_few_times_in_a_batch(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits())
    ada = harness.join("ada")
    for _ in range(2):
        replies = harness.ask_all(*(c.Send(ada, content=content("@adda")) for _ in range(100)))
        near = [reply.near for reply in replies if isinstance(reply, Refusal)]
        assert len(near) == 100
        assert near[:16] == [("ada",)] * 16
        assert set(near[16:]) == {()}
