"""The conversation loop before a hub of paper: order, credit and back-pressure, whatever the interleaving."""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.native.paper import DoneCall, PaperHub
from tieline.contract import command as c
from tieline.contract.delivery import Delivery, State
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByPlace
from tieline.contract.message import Content, Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Done, Fetched, Progress, Reply
from tieline.contract.target import to_member
from tieline.wire.conversation import Conversation, Parcel

BOB = MemberName("bob")
SESSION = SessionId("session-1")
ATTACH = c.Attach(protocol="paper", credential=ByPlace(), member=BOB)


def message(key: int, size: int = 1) -> Message:
    content = Content(target=to_member(BOB), body="x" * size)
    return Message(id=MessageId(f"m{key}"), offset=key, sender="alice", protocol="paper", sent_at_ms=0, content=content)


class PaperWire:
    """A wire that keeps what is put on it."""

    def __init__(self) -> None:
        self.conversation: Conversation | None = None
        self.batches: list[list[int]] = []
        self.declined: set[int] = set()
        self.steps: list[Progress] = []
        self.ended: list[Refusal] = []
        self.reading = True
        # After this many characters the wire is full; `None` for a wire that never is.
        self.room: int | None = None

    @property
    def keys(self) -> list[int]:
        return [key for batch in self.batches for key in batch]

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        assert parcels, "an empty write is no write"
        self.batches.append([key for _, key, _ in parcels])
        if self.room is not None:
            self.room -= sum(len(said.content.body) for said, _, _ in parcels)
            if self.room <= 0 and self.conversation is not None:
                self.conversation.pause_writing()
        return [parcel for parcel in parcels if parcel[1] not in self.declined]

    def write_progress(self, step: Progress) -> None:
        self.steps.append(step)

    def end(self, why: Refusal) -> None:
        self.ended.append(why)

    def pause_reading(self) -> None:
        assert self.reading, "paused once"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed only when paused"
        self.reading = True


class Table:
    """A conversation between a paper hub and a paper wire, attached and receiving."""

    def __init__(
        self, *, window: int | None = 10, limits: Limits | None = None, pending: int = 0, unoffered_only: bool = False
    ) -> None:
        """With `pending`, the first page is answered with that many deliveries; otherwise it is left to the test."""
        self.hub = PaperHub(limits)
        self.wire = PaperWire()
        self.talk = self.wire.conversation = Conversation(self.hub, self.wire)
        self.talk.open(ATTACH, lambda _: None)
        self.hub.answer(Attached(SESSION, BOB, "bob"))
        self.talk.receive(window=window, unoffered_only=unoffered_only)
        if pending:
            self.page(*range(1, pending + 1))

    def page(self, *keys: int, through: int | None = None, complete: bool = True, size: int = 1) -> None:
        """Answer the open fetch."""
        commands, _ = self.hub.open[0]
        assert isinstance(commands[0], c.Fetch)
        deliveries = tuple(Delivery(key, key, State.PENDING, message(key, size)) for key in keys)
        last = through if through is not None else max(keys, default=commands[0].after)
        self.hub.answer(Fetched(deliveries, last, complete))

    def offer(self, *keys: int, size: int = 1) -> None:
        """Push new deliveries, all in one turn of the loop."""
        for key in keys:
            self.talk.offer(message(key, size), key, key)

    @property
    def fetches(self) -> list[tuple[int, int]]:
        """What was fetched so far, as (after, limit)."""
        return [(fetch.after, fetch.limit) for fetch in self.hub.asked(c.Fetch) if isinstance(fetch, c.Fetch)]

    @property
    def offered(self) -> list[tuple[int, int]]:
        """What was noted as offered, as ranges."""
        return [(note.first, note.last) for note in self.hub.asked(c.Offered) if isinstance(note, c.Offered)]


async def turn() -> None:
    """Let the loop do what it has scheduled."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


# Opening and closing


async def test_the_protocol_hears_of_its_session_before_anything_is_offered() -> None:
    hub, wire = PaperHub(), PaperWire()
    heard: list[Attached | Refusal] = []
    talk = Conversation(hub, wire)
    talk.open(ATTACH, heard.append)
    assert hub.submitted == [ATTACH]
    assert heard == []
    hub.answer(Attached(SESSION, BOB, "bob"))
    assert heard == [Attached(SESSION, BOB, "bob")]
    assert (talk.session, talk.member) == (SESSION, BOB)
    assert hub.listening == {SESSION: (talk, None)}
    assert hub.asked(c.Fetch) == []


async def test_a_refused_attach_is_told_and_leaves_nothing_behind() -> None:
    hub, wire = PaperHub(), PaperWire()
    heard: list[Attached | Refusal] = []
    talk = Conversation(hub, wire)
    talk.open(ATTACH, heard.append)
    hub.answer(Refusal(Code.UNAUTHORIZED, "no"))
    assert heard == [Refusal(Code.UNAUTHORIZED, "no")]
    assert hub.listening == {}
    talk.close()
    assert hub.asked(c.Detach) == []


async def test_closing_forgets_the_listener_and_detaches_once() -> None:
    table = Table()
    table.talk.close()
    table.talk.close()
    assert table.hub.listening == {}
    assert table.hub.asked(c.Detach) == [c.Detach(SESSION)]


async def test_a_wire_that_is_gone_before_its_session_is_open_detaches_it_and_hears_nothing() -> None:
    hub, wire = PaperHub(), PaperWire()
    heard: list[Attached | Refusal] = []
    talk = Conversation(hub, wire)
    talk.open(ATTACH, heard.append)
    talk.close()
    assert hub.asked(c.Detach) == []
    hub.answer(Attached(SESSION, BOB, "bob"))
    assert hub.asked(c.Detach) == [c.Detach(SESSION)]
    assert heard == []
    assert hub.listening == {}


async def test_nothing_is_written_to_a_wire_that_closed_in_the_same_turn() -> None:
    table = Table()
    table.page()
    table.offer(1)
    table.talk.close()
    await turn()
    assert table.wire.keys == []
    assert table.offered == []


async def test_a_page_and_replies_that_come_after_closing_are_dropped() -> None:
    table = Table()
    heard: list[Sequence[Reply]] = []
    table.talk.submit((c.ListMembers(SESSION),), heard.append)
    table.talk.close()
    table.page(1, 2)
    table.hub.answer(Done())
    assert table.wire.keys == []
    assert heard == []


async def test_progress_and_the_end_go_to_the_wire() -> None:
    table = Table()
    step = Progress(MessageId("m1"), BOB, State.SEEN, 7)
    table.talk.progress(step)
    table.talk.end(Refusal(Code.UNAUTHORIZED, "removed"))
    assert table.wire.steps == [step]
    assert table.wire.ended == [Refusal(Code.UNAUTHORIZED, "removed")]


# Outbound, caught up


async def test_receiving_listens_for_the_member_and_reads_the_inbox_first() -> None:
    table = Table(window=3)
    assert table.hub.listening[SESSION] == (table.talk, BOB)
    assert table.fetches == [(0, 3)]
    table.page(1, 2)
    assert table.wire.batches == [[1, 2]]
    assert table.offered == [(1, 2)]


async def test_caught_up_pushes_go_straight_out_as_one_batch_a_turn() -> None:
    table = Table(pending=2)
    table.offer(3, 4, 5)
    assert table.wire.batches == [[1, 2]], "within the turn they are collected"
    await turn()
    table.offer(6)
    await turn()
    assert table.wire.batches == [[1, 2], [3, 4, 5], [6]]
    assert table.offered == [(1, 2), (3, 5), (6, 6)]
    assert table.fetches == [(0, 10)], "nothing is read again"


async def test_a_wire_is_caught_up_when_everything_was_handed_to_it() -> None:
    table = Table()
    assert not table.talk.caught_up
    table.page(1, complete=False)
    assert not table.talk.caught_up
    table.page(2)
    assert table.talk.caught_up
    table.offer(3)
    assert not table.talk.caught_up
    await turn()
    assert table.talk.caught_up


async def test_an_offer_that_a_page_already_covered_is_ignored() -> None:
    table = Table()
    table.page(1, 2, 3)
    table.offer(2, 3, 4)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]


async def test_an_offer_while_the_first_page_is_being_read_comes_with_the_page_alone() -> None:
    table = Table()
    table.offer(1)
    table.page(1)
    table.offer(2)
    await turn()
    assert table.wire.keys == [1, 2]


async def test_a_gap_in_the_offers_is_read_from_the_inbox() -> None:
    table = Table(pending=1)
    table.offer(3)
    await turn()
    assert table.wire.keys == [1]
    assert table.fetches == [(0, 10), (1, 9)]
    table.page(2, 3)
    table.offer(4)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]


async def test_keys_that_are_settled_leave_gaps_and_are_offered_as_separate_ranges() -> None:
    table = Table()
    table.page(1, 2, 5, 7, through=8)
    assert table.offered == [(1, 2), (5, 5), (7, 7)]
    table.offer(9)
    await turn()
    assert table.wire.keys == [1, 2, 5, 7, 9]


# Outbound, behind


async def test_a_full_window_stops_and_an_acknowledgement_resumes_from_the_inbox() -> None:
    table = Table(window=2)
    table.page()
    table.offer(1, 2, 3, 4)
    await turn()
    assert table.wire.keys == [1, 2]
    assert len(table.fetches) == 1, "without credit nothing is read"
    table.talk.settled(1)
    assert table.fetches[1:] == [(2, 1)]
    table.page(3, complete=False)
    assert table.wire.keys == [1, 2, 3]
    table.talk.settled(2)
    assert table.fetches[2:] == [(3, 2)]
    table.page(4)
    table.offer(5)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4, 5]
    assert len(table.fetches) == 3, "it has caught up"


async def test_a_page_never_asks_for_more_than_the_credit() -> None:
    table = Table(window=5)
    assert table.fetches == [(0, 5)]
    table.page(1, 2, 3, complete=False)
    assert table.fetches[1:] == [(3, 2)]


async def test_an_inbox_longer_than_a_page_is_read_page_by_page() -> None:
    table = Table(window=None)
    table.page(*range(1, 257), complete=False)
    assert table.fetches == [(0, 256), (256, 256)]
    table.page(257)
    assert table.wire.keys == list(range(1, 258))


async def test_acknowledging_more_than_was_written_gives_no_more_than_the_window() -> None:
    table = Table(window=2, pending=2)
    table.talk.settled(100)
    table.offer(3, 4, 5)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]


async def test_a_wire_that_takes_no_bytes_stops_and_catches_up_when_it_drains() -> None:
    table = Table()
    table.page()
    table.talk.pause_writing()
    table.offer(1, 2)
    await turn()
    assert table.wire.keys == []
    assert len(table.fetches) == 1
    table.talk.resume_writing()
    assert table.fetches[1:] == [(0, 10)]
    table.page(1, 2)
    table.offer(3)
    await turn()
    assert table.wire.keys == [1, 2, 3]


async def test_a_page_that_comes_while_the_wire_is_full_is_read_again_when_it_drains() -> None:
    table = Table()
    table.talk.pause_writing()
    table.page(1, 2)
    assert table.wire.keys == []
    table.talk.resume_writing()
    table.page(1, 2)
    assert table.wire.keys == [1, 2]
    assert table.offered == [(1, 2)]


async def test_a_page_of_large_messages_goes_out_only_as_far_as_the_wire_has_room() -> None:
    table = Table(window=None)
    table.wire.room = 3_000_000
    table.page(1, 2, 3, 4, 5, 6, 7, 8, size=1_000_000)
    written = len(table.wire.keys)
    assert 3 <= written < 8
    assert table.wire.keys == list(range(1, written + 1))
    assert table.offered[-1][1] == written, "what was not written was not offered"
    table.wire.room = None
    table.talk.resume_writing()
    assert table.fetches[1:] == [(written, 256)]
    table.page(*range(written + 1, 9))
    assert table.wire.keys == list(range(1, 9))


async def test_large_messages_pushed_in_one_turn_go_out_only_as_far_as_the_wire_has_room() -> None:
    table = Table(window=None)
    table.page()
    table.wire.room = 3_000_000
    table.offer(1, 2, 3, 4, 5, 6, 7, 8, size=1_000_000)
    await turn()
    written = len(table.wire.keys)
    assert 3 <= written < 8
    table.wire.room = None
    table.talk.resume_writing()
    table.page(*range(written + 1, 9))
    assert table.wire.keys == list(range(1, 9))


async def test_resuming_a_wire_that_is_caught_up_reads_nothing() -> None:
    table = Table(pending=1)
    table.talk.pause_writing()
    table.talk.resume_writing()
    table.talk.settled(1)
    assert len(table.fetches) == 1


# Deliveries that are not for the wire


async def test_what_the_wire_declines_is_not_noted_as_offered() -> None:
    table = Table()
    table.wire.declined = {2, 4}
    table.page(1, 2, 3)
    table.offer(4)
    await turn()
    assert table.offered == [(1, 1), (3, 3)]


async def test_what_the_wire_declines_uses_no_credit() -> None:
    table = Table(window=1)
    table.wire.declined = {1}
    table.page()
    table.offer(1, 2)
    await turn()
    assert table.fetches[1:] == [(1, 1)], "the second waits in the inbox, and there is credit for it"
    table.page(2)
    assert table.wire.keys == [1, 2]


async def test_only_what_nobody_was_offered_is_fetched_when_the_wire_asks_for_that() -> None:
    table = Table(window=None, unoffered_only=True)
    (fetch,) = table.hub.asked(c.Fetch)
    assert isinstance(fetch, c.Fetch)
    assert fetch.unoffered_until == 1


# Inbound


async def test_too_many_unanswered_commands_pause_reading_until_half_are_answered() -> None:
    table = Table(limits=Limits(inflight_max=4))
    table.page()
    answered: list[int] = []
    for number in range(5):
        table.talk.submit((c.ListMembers(SESSION),), partial(lambda number, _: answered.append(number), number))
        assert table.wire.reading is (number < 4)
    for left in (4, 3):
        table.hub.answer(Done())
        assert not table.wire.reading, f"{left} wait"
    table.hub.answer(Done())
    assert table.wire.reading
    assert answered == [0, 1, 2]


async def test_commands_of_one_submission_all_count() -> None:
    table = Table(limits=Limits(inflight_max=4))
    table.page()
    table.talk.submit([c.ListMembers(SESSION)] * 5)
    assert not table.wire.reading
    table.hub.answer(*[Done()] * 5)
    assert table.wire.reading


async def test_an_answer_that_comes_after_closing_leaves_the_wire_alone() -> None:
    table = Table(limits=Limits(inflight_max=1))
    table.page()
    table.talk.submit([c.ListMembers(SESSION)] * 2)
    assert not table.wire.reading
    table.talk.close()
    table.hub.answer(Done(), Done())
    assert not table.wire.reading


# Any interleaving


class Exchange(PaperHub):
    """A hub that decides what queued in batches, and publishes replies before offers, as the real one does."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[tuple[Sequence[c.Command], DoneCall | None] | None] = deque()
        self.last_key = 0
        self.settled: set[int] = set()

    def submit(self, commands: Sequence[c.Command], done: DoneCall | None = None) -> None:
        self.queue.append((commands, done))

    def send(self) -> None:
        """Somebody says something to the member."""
        self.queue.append(None)

    def work(self, count: int) -> None:
        """Decide up to this many of what queued, and publish."""
        calls: list[tuple[DoneCall, list[Reply]]] = []
        offers: list[int] = []
        for _ in range(min(count, len(self.queue))):
            item = self.queue.popleft()
            if item is None:
                self.last_key += 1
                offers.append(self.last_key)
                continue
            commands, done = item
            replies = [self._decide(command) for command in commands]
            if done is not None:
                calls.append((done, replies))
        for call, replies in calls:
            call(replies)
        for key in offers:
            for listener, member in list(self.listening.values()):
                if member is not None:
                    listener.offer(message(key), key, key)

    def _decide(self, command: c.Command) -> Reply:
        match command:
            case c.Attach():
                return Attached(SESSION, BOB, "bob")
            case c.Fetch():
                keys: list[int] = []
                at = command.after
                while at < self.last_key and len(keys) < command.limit:
                    at += 1
                    if at not in self.settled:
                        keys.append(at)
                deliveries = tuple(Delivery(key, key, State.PENDING, message(key)) for key in keys)
                return Fetched(deliveries, at, at >= self.last_key)
            case c.Advance():
                for first, last in command.ranges:
                    self.settled.update(range(first, last + 1))
                return Done()
            case _:
                return Done()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "work", "ack"]), st.integers(1, 4)),
        st.sampled_from([("turn", 0), ("pause", 0), ("resume", 0), ("receive", 0)]),
    ),
    max_size=60,
)


@pytest.mark.parametrize("window", [None, 1, 3])
@given(actions=ACTIONS, room=st.one_of(st.none(), st.integers(1, 5)), declined=st.sets(st.integers(1, 10), max_size=3))
def test_any_interleaving_writes_every_key_once_and_in_order(
    window: int | None, actions: list[tuple[str, int]], room: int | None, declined: set[int]
) -> None:
    asyncio.run(_interleave(window, actions, room, declined))


async def _interleave(window: int | None, actions: list[tuple[str, int]], room: int | None, declined: set[int]) -> None:
    hub, wire = Exchange(), PaperWire()
    wire.declined = declined
    talk = wire.conversation = Conversation(hub, wire)
    talk.open(ATTACH, lambda _: None)
    hub.work(1)
    unacked: deque[int] = deque()
    noticed = 0
    receiving = False

    def notice() -> None:
        nonlocal noticed
        fresh = wire.keys[noticed:]
        noticed += len(fresh)
        unacked.extend(key for key in fresh if key not in declined)
        assert window is None or len(unacked) <= window, "never more than the window"

    def ack(count: int) -> None:
        notice()
        for _ in range(min(count, len(unacked))):
            key = unacked.popleft()
            talk.settled(1)
            talk.submit((c.Advance(SESSION, ((key, key),)),))

    for action, count in actions:
        match action:
            case "send":
                for _ in range(count):
                    hub.send()
            case "work":
                hub.work(count)
            case "ack":
                ack(count)
            case "turn":
                await asyncio.sleep(0)
            case "pause":
                talk.pause_writing()
            case "resume":
                wire.room = room
                talk.resume_writing()
            case _:
                if not receiving:
                    receiving = True
                    talk.receive(window=window)
        notice()
    if not receiving:
        talk.receive(window=window)
    wire.room = None
    for _ in range(1000):
        talk.resume_writing()
        hub.work(100)
        await asyncio.sleep(0)
        ack(100)
        if not hub.queue and len(wire.keys) == hub.last_key:
            break
    assert wire.keys == list(range(1, hub.last_key + 1))


async def test_a_session_that_is_left_ends_and_the_wire_may_open_another() -> None:
    hub, wire = PaperHub(), PaperWire()
    talk = Conversation(hub, wire)
    talk.open(ATTACH, lambda _: None)
    hub.answer(Attached(SESSION, BOB, "bob"))
    talk.hold(True)
    talk.leave()
    assert hub.asked(c.Detach) == [c.Detach(SESSION)]
    assert hub.listening == {}
    assert not wire.reading, "what the wire was told stays true"
    talk.open(ATTACH, lambda _: None)
    hub.answer(Attached(SessionId("session-2"), BOB, "bob"))
    talk.hold(False)
    assert wire.reading
    talk.close()
    assert hub.asked(c.Detach) == [c.Detach(SESSION), c.Detach(SessionId("session-2"))]
