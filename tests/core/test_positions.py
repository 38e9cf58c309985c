"""Tests of positions in streams: a member reports the last number that it received, and gets later messages again."""

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import Position, State
from tieline.contract.identifiers import SessionId
from tieline.contract.limits import Limits
from tieline.contract.reply import Fetched, Streams, StreamView

DAY_MS = 24 * 3600 * 1000


def streams(harness: BrokerHarness, session: SessionId, *positions: Position) -> Streams:
    return harness.expect(Streams, c.ReadStreams(session, positions=positions))


def acknowledge(harness: BrokerHarness, session: SessionId, *keys: int) -> None:
    for key in keys:
        harness.advance(session, key)


def test_every_stream_of_a_member_is_told_by_topic_and_peer(harness: BrokerHarness) -> None:
    ada, bob, eve = harness.join("ada"), harness.join("bob"), harness.join("eve")
    for sender, topic in ((ada, "chat"), (ada, "chat"), (eve, "chat"), (ada, "")):
        harness.send(sender, "@bob", topic=topic)
    told = streams(harness, bob)
    assert told.streams == (
        StreamView(topic="", peer="ada", position=None, last_seq=1),
        StreamView(topic="chat", peer="ada", position=None, last_seq=2),
        StreamView(topic="chat", peer="eve", position=None, last_seq=1),
    )
    assert (told.replay, told.stale) == ((), False)


def test_settled_deliveries_after_a_position_are_replayed_in_order(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for _ in range(5):
        harness.send(ada, "@bob", topic="chat")
    acknowledge(harness, bob, 1, 2, 3, 4)
    told = streams(harness, bob, Position("chat", 2))
    assert [(item.key, item.stream_seq) for item in told.replay] == [(3, 3), (4, 4)]
    assert not told.stale


def test_a_position_without_a_peer_is_for_each_peer_that_has_none_of_its_own(harness: BrokerHarness) -> None:
    ada, bob, eve = harness.join("ada"), harness.join("bob"), harness.join("eve")
    for sender in (ada, eve, ada, eve):
        harness.send(sender, "@bob", topic="chat")
    acknowledge(harness, bob, 1, 2, 3, 4)
    told = streams(harness, bob, Position("chat", 1), Position("chat", 2, "eve"))
    assert [item.key for item in told.replay] == [3]
    assert [(view.peer, view.position) for view in told.streams] == [("ada", 1), ("eve", 2)]


def test_what_was_offered_is_replayed_to_whoever_is_given_each_delivery_once(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.attach_by_token(harness.add("bob"), acknowledges=False)
    for _ in range(4):
        harness.send(ada, "@bob", topic="chat")
    harness.offered(bob, 1, 3)
    told = streams(harness, bob, Position("chat", 1))
    assert [item.key for item in told.replay] == [2, 3]
    assert not told.stale


def test_a_position_ahead_of_the_hub_asks_for_nothing(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", topic="chat")
    assert streams(harness, bob, Position("chat", 99)).replay == ()


def test_what_retention_forgot_makes_a_position_stale(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(retention_ms=DAY_MS))
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", topic="chat")
    harness.advance(bob, 1)
    harness.pass_ms(2 * DAY_MS)
    assert streams(harness, bob, Position("chat", 0)).stale
    assert not streams(harness, bob, Position("chat", 1)).stale


def test_streams_go_on_after_a_crash(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", topic="chat")
    harness.advance(bob, 1)
    harness.crash()
    told = streams(harness, harness.attach("bob"), Position("chat", 0))
    assert [item.key for item in told.replay] == [1]


def test_a_fetch_gives_replayed_deliveries_among_the_unsettled_ones_page_by_page(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for _ in range(6):
        harness.send(ada, "@bob")
    acknowledge(harness, bob, 1, 2, 4, 5)
    replay = streams(harness, bob, Position("", 1)).replay
    assert [item.key for item in replay] == [2, 4, 5]
    given: list[tuple[int, State]] = []
    after, complete = 0, False
    while not complete:
        page = harness.expect(
            Fetched, c.Fetch(bob, after=after, limit=2, replay=tuple(item for item in replay if item.key > after))
        )
        assert len(page.deliveries) <= 2
        given += [(delivery.key, delivery.state) for delivery in page.deliveries]
        after, complete = page.through, page.complete
    acked, pending = State.ACKED, State.PENDING
    assert given == [(2, acked), (3, pending), (4, acked), (5, acked), (6, pending)]


def test_much_that_is_missing_is_found_page_by_page_and_nothing_of_it_is_left_out(harness: BrokerHarness) -> None:
    ada, bob, eve = harness.join("ada"), harness.join("bob"), harness.join("eve")
    harness.subscribe(bob, "dev")
    total = 1500
    sends = [c.Send(ada, content=content("@bob" if number % 3 else "#dev", topic="chat")) for number in range(total)]
    others = [c.Send(ada, content=content("@eve", topic="chat")) for _ in range(100)]
    harness.ask_all(*sends, *others, c.Send(eve, content=content("@bob", topic="chat")))
    harness.ask(c.Advance(bob, ranges=((1, total - 10),), state=State.ACKED))
    positions = (Position("chat", 2, "ada"), Position("chat", 0, "eve"))
    found: list[int] = []
    following, pages = None, 0
    while True:
        told = harness.expect(Streams, c.ReadStreams(bob, positions=positions, following=following))
        assert not told.stale
        found += [item.stream_seq for item in told.replay]
        pages += 1
        following = told.following
        if following is None:
            break
    # Unsettled deliveries are pushed without a request.
    assert sorted(found) == list(range(3, total - 9))
    assert pages > 1
