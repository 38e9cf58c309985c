"""Test helper: a session pump between a fake hub and a fake wire (the protocol's side of a session)."""

import asyncio
from collections.abc import Sequence

from tests.wire.native.fake_hub import FakeHub
from tieline.contract import command as c
from tieline.contract.delivery import Delivery, State
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByPlace
from tieline.contract.message import Content, Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Fetched, Progress
from tieline.contract.target import to_member
from tieline.wire.session_pump import Parcel, SessionPump

BOB = MemberName("bob")
SESSION = SessionId("session-1")
ATTACH = c.Attach(protocol="fake", credential=ByPlace(), member=BOB)


def message(key: int, size: int = 1) -> Message:
    content = Content(target=to_member(BOB), body="x" * size)
    return Message(id=MessageId(f"m{key}"), offset=key, sender="alice", protocol="fake", sent_at_ms=0, content=content)


class FakeWire:
    """Test double: a wire (the protocol's side of a session) that records the written deliveries."""

    def __init__(self) -> None:
        self.pump: SessionPump | None = None
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
            if self.room <= 0 and self.pump is not None:
                self.pump.pause_writing()
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
    """Test helper: a session pump between a fake hub and a fake protocol, with an open session that receives."""

    def __init__(
        self, *, window: int | None = 10, limits: Limits | None = None, pending: int = 0, unoffered_only: bool = False
    ) -> None:
        """Open the session.

        With `pending`, answer the first fetch with that many deliveries. Otherwise the test answers it.
        """
        self.hub = FakeHub(limits)
        self.wire = FakeWire()
        self.talk = self.wire.pump = SessionPump(self.hub, self.wire)
        self.talk.open(ATTACH, lambda _: None)
        self.hub.answer(Attached(session=SESSION, member=BOB, speaker="bob"))
        self.talk.receive(window=window, unoffered_only=unoffered_only)
        if pending:
            self.page(*range(1, pending + 1))

    def page(self, *keys: int, through: int | None = None, complete: bool = True, size: int = 1) -> None:
        """Answer the open fetch with deliveries of these keys. `through` is the last key that the answer covers."""
        commands, _ = self.hub.open[0]
        assert isinstance(commands[0], c.Fetch)
        deliveries = tuple(Delivery(key, key, State.PENDING, message(key, size)) for key in keys)
        last = through if through is not None else max(keys, default=commands[0].after)
        self.hub.answer(Fetched(deliveries=deliveries, through=last, complete=complete))

    def offer(self, *keys: int, size: int = 1) -> None:
        """Offer new deliveries with these keys, all in one turn of the loop."""
        for key in keys:
            self.talk.offer(message(key, size), key, key)

    @property
    def fetches(self) -> list[tuple[int, int]]:
        """Return the fetches so far, each as (after, limit)."""
        return [(fetch.after, fetch.limit) for fetch in self.hub.asked(c.Fetch) if isinstance(fetch, c.Fetch)]

    @property
    def offered(self) -> list[tuple[int, int]]:
        """Return the deliveries that the pump reported as offered, as ranges of keys."""
        return [(note.first, note.last) for note in self.hub.asked(c.Offered) if isinstance(note, c.Offered)]


async def turn() -> None:
    """Let the event loop run its scheduled callbacks."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
