"""The client's side of the hub's own protocol: requests as awaitables, and deliveries as an async iterator.

Used by: the SDK (`tieline.client`), which connects over a socket, and code inside the hub (`native.in_process`). Uses:
a carrier (a connection to the hub). A frame is one JSON object, such as a request or an answer. All frames of one turn
of the event loop are sent together, as one batch (a JSON array).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from itertools import count
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from tieline.contract.keys import Range, extend_ranges, one_key
from tieline.contract.refusal import Code
from tieline.wire.json_text import VALUES_MAX, has_many_values
from tieline.wire.native import frames as f
from tieline.wire.native.derived import Requests
from tieline.wire.native.errors import Disconnected, HubRefused

_A = TypeVar("_A", bound=f.Frame)
_T = TypeVar("_T")

Delivery = f.Deliver
"""A message that the hub pushed to this member, with the key by which the member acknowledges it."""


class Keyed(Protocol):
    """Interface of any object with the key of a delivery. The client needs only the key to report on the delivery."""

    @property
    def key(self) -> int:
        """The key of the delivery in its member's inbox."""


class Carrier(Protocol):
    """Interface of a connection to a hub. It carries batches (JSON arrays of requests or answers), as bytes."""

    def send(self, payload: bytes) -> None:
        """Send one batch (a JSON array of frames) to the hub."""

    async def drain(self) -> None:
        """Wait until the connection can take more bytes to send."""

    def close(self) -> None:
        """Close the connection."""


class Receiver(Protocol):
    """Interface of an object that gets each batch from a connection to a hub.

    It is also told when the connection ends.
    """

    def receive_batch(self, payload: bytes | str) -> None:
        """Handle `payload`, a batch that came from the hub (a JSON array of frames: answers and deliveries)."""

    def connection_lost(self, why: str) -> None:
        """Handle the end of the connection. `why` is the reason. The connection calls this once, as its last call."""


class Arriving(Generic[_T]):
    """Queue of items that the hub sends without a request, such as deliveries.

    After the queue has ended, readers get the items that are left, and then an exception. Unlike asyncio's queue, an
    empty queue uses almost no memory, because most clients never use three of their four queues.
    """

    __slots__ = ("_ended", "_items", "_readers")

    def __init__(self) -> None:
        self._items: deque[_T] | None = None
        self._readers: list[asyncio.Future[None]] = []
        self._ended: Exception | None = None

    def put(self, item: _T) -> None:
        """Add an item to the queue, and wake the readers that wait."""
        if self._items is None:
            self._items = deque()
        self._items.append(item)
        self._wake()

    def end(self, why: Exception) -> None:
        """End the queue, because the connection has ended. Readers get the exception `why` after the last item."""
        self._ended = why
        self._wake()

    def empty(self) -> bool:
        """Return true if no item waits in the queue."""
        return not self._items

    async def get(self) -> _T:
        """Wait for the next item and return it.

        If the queue has ended and no item is left, raise the exception given to `end`.
        """
        while not self._items:
            if self._ended is not None:
                raise self._ended
            self._items = None
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            try:
                await reader
            finally:
                self._readers.remove(reader)
        return self._items.popleft()

    def _wake(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)


class Client(Requests):
    """Session of a program with a hub. Use it from one event loop, as an async context manager.

    Simple requests with one answer are methods of the base class `Requests`.
    """

    def __init__(self) -> None:
        self._carrier: Carrier | None = None
        self._numbers = count(1)
        # Requests that wait for their answers, by number.
        self._waiting: dict[int, asyncio.Future[f.Answer]] = {}
        # Encoded frames to send at the end of this turn of the loop. A frame is encoded at once, so that an encoding
        # error is raised to the caller who made the frame.
        self._outgoing: list[bytes] = []
        # Keys to acknowledge at the end of this turn, as ranges.
        self._acks: list[Range] = []
        self._flush_scheduled = False
        self._welcome: asyncio.Future[f.Welcome] = asyncio.get_running_loop().create_future()
        self._deliveries: Arriving[f.Deliver] = Arriving()
        self._progress: Arriving[f.Progress] = Arriving()
        self._did: Arriving[f.Did] = Arriving()
        self._said: Arriving[f.Said] = Arriving()
        # The reason why the connection ended; `None` while it is open.
        self._lost: Exception | None = None
        self.welcome: f.Welcome | None = None

    # Lifecycle.

    async def greet(self, carrier: Carrier, hello: f.Hello) -> None:
        """Log in over the connection `carrier`. `hello` is the first frame, with the credentials.

        Wait until the hub has opened the session. Raises `HubError` if the hub refuses or disconnects.
        """
        self._carrier = carrier
        carrier.send(f.encode_batch([hello]))
        self.welcome = await self._welcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the requests and acknowledgements that are not sent yet, and disconnect."""
        self._flush()
        if self._carrier is not None and self._lost is None:
            await self._carrier.drain()
            self._carrier.close()
        self._end(Disconnected("this client was closed"))

    # Outcomes of deliveries.

    def ack(self, delivery: Keyed, *, evidence: str = "") -> None:
        """Tell the hub that a delivery was handled. `evidence` may say how this is known.

        The acknowledgement is sent at the end of this turn of the event loop.
        """
        if evidence:
            self._put(f.Ack(one_key(delivery.key), evidence))
            return
        extend_ranges(self._acks, one_key(delivery.key))
        self._schedule()

    def see(self, *deliveries: Keyed, evidence: str) -> None:
        """Tell the hub that deliveries were read. `evidence` says how this is known.

        The deliveries are not acknowledged yet.
        """
        if deliveries:
            self._put(f.See(tuple((delivery.key, delivery.key) for delivery in deliveries), evidence))

    async def discard(self, *deliveries: f.Deliver | f.Item, reason: str) -> None:
        """Tell the hub that this member will not handle the deliveries, and the reason. The hub tells their senders."""
        if deliveries:
            n = next(self._numbers)
            keys = tuple((delivery.key, delivery.key) for delivery in deliveries)
            await self._ask(n, f.Discard(n, keys, reason), f.Done)

    async def follow(self, message_id: str, until: str = "acked") -> tuple[f.ReceiptView, ...]:
        """Start to follow a message, and return its current receipts. `progress` yields the later changes.

        `until` is the delivery state to wait for. The hub refuses if the protocol of a recipient can never report this
        state.
        """
        n = next(self._numbers)
        return await self._all_receipts(await self._ask(n, f.Follow(n, message_id, until), f.Receipts))

    async def progress(self) -> AsyncIterator[f.Progress]:
        """Yield each change of a delivery of a message that this client follows.

        Raises `HubError` when the connection ends.
        """
        while True:
            yield await self._progress.get()

    # Receiving.

    def __aiter__(self) -> AsyncIterator[f.Deliver]:
        return self.deliveries()

    async def deliveries(self) -> AsyncIterator[f.Deliver]:
        """Yield deliveries as the hub pushes them. The session must have been opened with `receive`.

        Raises `HubError` when the connection ends.
        """
        while True:
            yield await self._deliveries.get()

    def next_delivery(self) -> Coroutine[Any, Any, f.Deliver]:
        """Wait for the next delivery that the hub pushes, and return it. Raises `HubError` when the connection ends."""
        return self._deliveries.get()

    # Reading.

    async def receipts(self, message_id: str) -> tuple[f.ReceiptView, ...]:
        """Return the receipts of a message: for each recipient, the state and the history of the delivery."""
        n = next(self._numbers)
        return await self._all_receipts(await self._ask(n, f.ReadReceipts(n, message_id), f.Receipts))

    async def _all_receipts(self, first: f.Receipts) -> tuple[f.ReceiptView, ...]:
        found, page = list(first.receipts), first
        while page.more:
            n = next(self._numbers)
            page = await self._ask(n, f.ReadReceipts(n, first.id, found[-1].member), f.Receipts)
            found += page.receipts
        return tuple(found)

    # Activity, and messages as they are sent.

    async def record_activity(self, *events: dict[str, Any]) -> int:
        """Report actions of this member to the activity log. Return the number of stored events."""
        n = next(self._numbers)
        return (await self._ask(n, f.RecordActivity(n, events), f.Recorded)).count

    async def doings(self) -> AsyncIterator[f.Did]:
        """Yield new activity of the members that this client follows with `follow_activity`.

        Raises `HubError` when the connection ends.
        """
        while True:
            yield await self._did.get()

    async def tail(self, after: int = -1, *, everything: bool = False) -> AsyncIterator[f.Message]:
        """Yield the messages after the log offset `after` that this member may see. Then yield each new message.

        `everything` asks for the messages of all members, which needs a permission. A second call of `tail` ends the
        first call: its iterator then yields nothing more.
        """
        n = next(self._numbers)
        await self._ask(n, f.FollowAll(n, after, everything), f.Done)
        while True:
            said = await self._said.get()
            # Skip messages of an earlier view.
            for message in said.messages if said.n == n else ():
                yield message

    # Called by the carrier.

    def receive_batch(self, payload: bytes | str) -> None:
        """Handle `payload`, a batch of frames (answers and deliveries) that came from the hub.

        The connection calls this.
        """
        try:
            batch = f.decode_hub_batch(payload)
        except f.BadBatch as error:
            self._end(Disconnected(f"the hub sent what is not a batch of frames: {error}"))
            return
        for frame in batch:
            match frame:
                case f.Deliver():
                    self._deliveries.put(frame)
                case f.Progress():
                    self._progress.put(frame)
                case f.Did():
                    self._did.put(frame)
                case f.Said():
                    self._said.put(frame)
                case f.Welcome():
                    if not self._welcome.done():
                        self._welcome.set_result(frame)
                case f.Refused(n=None):
                    self._end(HubRefused(frame.code, frame.message, frame.near))
                case _:
                    assert frame.n is not None, "the connection ends with a refusal that has no number"
                    future = self._waiting.pop(frame.n, None)
                    if future is not None and not future.done():
                        future.set_result(frame)

    def connection_lost(self, why: str) -> None:
        """Handle the end of the connection. `why` is the reason. The connection calls this."""
        self._end(Disconnected(why))

    # Inside.

    async def _ask(self, n: int, frame: f.Frame, expected: type[_A]) -> _A:
        if self._lost is not None:
            raise self._lost
        self._put(frame)
        future: asyncio.Future[f.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[n] = future
        try:
            answer = await future
        finally:
            self._waiting.pop(n, None)
        if isinstance(answer, f.Refused):
            raise HubRefused(answer.code, answer.message, answer.near)
        if not isinstance(answer, expected):
            raise HubRefused(Code.INVALID_REQUEST, f"the hub answered {type(answer).__name__}")
        return answer

    def _put(self, frame: f.Frame) -> None:
        encoded = f.encode_struct(frame)
        if len(encoded) > self._batch_bytes_max():
            text = f"a request of {len(encoded)} bytes does not fit into a frame that the hub takes"
            raise HubRefused(Code.MESSAGE_TOO_LARGE, text)
        # The brackets of the batch are a value, too.
        if has_many_values(b"[" + encoded):
            raise HubRefused(Code.MESSAGE_TOO_LARGE, f"a request has at most {VALUES_MAX} values")
        self._outgoing.append(encoded)
        self._schedule()

    def _schedule(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._acks:
            self._outgoing.append(f.encode_struct(f.Ack(tuple(self._acks))))
            self._acks.clear()
        if self._outgoing and self._carrier is not None and self._lost is None:
            encoded, self._outgoing = self._outgoing, []
            for batch in f.split_batch(encoded, self._batch_bytes_max()):
                self._carrier.send(batch)

    def _batch_bytes_max(self) -> int:
        """Return the size in bytes of the largest batch that the hub accepts."""
        assert self.welcome is not None, "nobody asks before the hub has welcomed us"
        return self.welcome.frame_bytes_max

    def _end(self, why: Exception) -> None:
        if self._lost is not None:
            return
        self._lost = why
        if not self._welcome.done():
            self._welcome.set_exception(why)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(why)
        for arriving in (self._deliveries, self._progress, self._did, self._said):
            arriving.end(why)


def to_json(value: msgspec.Struct | tuple[msgspec.Struct, ...]) -> bytes:
    """Return a value of the SDK as JSON, in the form that the hub's documentation describes."""
    return msgspec.json.encode(value)
