"""Tests of the session pump with a fake hub that handles commands in batches, in any order of events."""

import asyncio
from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.native.fake_hub import DoneCall, FakeHub
from tests.wire.table import ATTACH, BOB, SESSION, FakeWire, message
from tieline.contract import command as c
from tieline.contract.delivery import Delivery, State
from tieline.contract.reply import Attached, Done, Fetched, Reply
from tieline.wire.session_pump import SessionPump


class OrderedHub(FakeHub):
    """Test double: a hub that handles queued commands in batches, and sends replies before offers like the real one."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: deque[tuple[Sequence[c.Command], DoneCall | None] | None] = deque()
        self.last_key = 0
        self.settled: set[int] = set()

    def submit(self, commands: Sequence[c.Command], done: DoneCall | None = None) -> None:
        self.queue.append((commands, done))

    def send(self) -> None:
        """Queue a message of another member to this session's member."""
        self.queue.append(None)

    def work(self, count: int) -> None:
        """Handle up to `count` queued commands and messages, and send the replies and offers."""
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
                return Attached(session=SESSION, member=BOB, speaker="bob")
            case c.Fetch():
                keys: list[int] = []
                at = command.after
                while at < self.last_key and len(keys) < command.limit:
                    at += 1
                    if at not in self.settled:
                        keys.append(at)
                deliveries = tuple(Delivery(key, key, State.PENDING, message(key)) for key in keys)
                return Fetched(deliveries=deliveries, through=at, complete=at >= self.last_key)
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
    hub, wire = OrderedHub(), FakeWire()
    wire.declined = declined
    talk = wire.pump = SessionPump(hub, wire)
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
            talk.acknowledged(1)
            talk.submit((c.Advance(SESSION, ranges=((key, key),)),))

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
