"""The client: requests as awaitables, deliveries as an async iterator, both batched by turns of the event loop."""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tieline.client.carriers import Carrier, dial_socket
from tieline.client.errors import Disconnected, HubRefused, HubUnreachable
from tieline.client.requests import Requests
from tieline.contract.keys import Range, extend_ranges, one_key
from tieline.contract.refusal import Code
from tieline.wire.home import HUB_SOCKET, find_home, read_key, read_running
from tieline.wire.native import frames as f

URL_VARIABLE = "TIELINE_URL"
TOKEN_VARIABLE = "TIELINE_TOKEN"
MEMBER_VARIABLE = "TIELINE_AGENT"

_A = TypeVar("_A", bound=f.Frame)

Delivery = f.Deliver
"""A message for this member, with the key to acknowledge it by."""


async def connect(
    *,
    member: str | None = None,
    token: str | None = None,
    url: str | None = None,
    home: Path | None = None,
    receive: bool = False,
    window: int = 256,
) -> "Client":
    """Open a session with a hub.

    The hub is at `url`, else at the environment's `TIELINE_URL`, else in `home` (or `TIELINE_HOME`, or the platform's
    state folder). With a `token` (or `TIELINE_TOKEN`) the session is the member of that token. On the hub's machine
    the key in its home is enough to be `member` (or `TIELINE_AGENT`); without a member the session is an operator,
    who can manage members and read the log but cannot send. With `receive` the hub pushes deliveries, of which up to
    `window` may be unacknowledged.
    """
    token = token or os.environ.get(TOKEN_VARIABLE)
    member = member or os.environ.get(MEMBER_VARIABLE)
    url = url or (os.environ.get(URL_VARIABLE) if home is None else None)
    client = Client()
    key = None
    if url is not None:
        from tieline.client.websocket import dial_url  # noqa: PLC0415 - most sessions are local, and need none of it

        carrier = await dial_url(url, client)
    else:
        folder = find_home(home)
        running = read_running(folder)
        if running is None:
            raise HubUnreachable(f"no hub is running in {folder}: start one with 'tieline serve --home {folder}'")
        key = read_key(folder) if token is None else None
        carrier = await dial_socket(folder / HUB_SOCKET, client)
    hello = f.Hello(token=token, key=key, member=member, receive=receive, window=window)
    await client.greet(carrier, hello)
    return client


class Client(Requests):
    """A session with a hub. Use it from one event loop, as an async context manager.

    Simple requests with one answer are methods of `Requests`.
    """

    def __init__(self) -> None:
        self._carrier: Carrier | None = None
        self._numbers = count(1)
        # Requests that wait for their answers, by number.
        self._waiting: dict[int, asyncio.Future[f.Answer]] = {}
        # Frames to send at the end of this turn of the loop. They are encoded when asked for, so that a frame that
        # cannot be encoded fails there.
        self._outgoing: list[bytes] = []
        # Keys to acknowledge at the end of this turn, as ranges.
        self._acks: list[Range] = []
        self._flush_scheduled = False
        self._welcome: asyncio.Future[f.Welcome] = asyncio.get_running_loop().create_future()
        self._deliveries: asyncio.Queue[f.Deliver | None] = asyncio.Queue()
        self._progress: asyncio.Queue[f.Progress | None] = asyncio.Queue()
        self._did: asyncio.Queue[f.Did | None] = asyncio.Queue()
        self._said: asyncio.Queue[f.Said | None] = asyncio.Queue()
        # The reason why the connection ended; `None` while it is open.
        self._lost: Exception | None = None
        self.welcome: f.Welcome | None = None

    # Lifecycle.

    async def greet(self, carrier: Carrier, hello: f.Hello) -> None:
        """Say hello and wait to be welcomed. `connect` does this."""
        self._carrier = carrier
        carrier.send(f.encode_batch([hello]))
        self.welcome = await self._welcome

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Send the remaining frames and disconnect."""
        self._flush()
        if self._carrier is not None and self._lost is None:
            await self._carrier.drain()
            self._carrier.close()
        self._end(Disconnected("this client was closed"))

    # Outcomes of deliveries.

    def ack(self, delivery: f.Deliver | f.Item) -> None:
        """Acknowledge a delivery, at the end of this turn of the loop. A second acknowledgement has no effect."""
        extend_ranges(self._acks, one_key(delivery.key))
        self._schedule()

    def see(self, *deliveries: f.Deliver | f.Item, evidence: str) -> None:
        """Show evidence that deliveries were read."""
        if deliveries:
            self._put(f.See(tuple((delivery.key, delivery.key) for delivery in deliveries), evidence))

    async def discard(self, *deliveries: f.Deliver | f.Item, reason: str) -> None:
        """Say that deliveries will not be handled, and why; their senders learn both."""
        if deliveries:
            n = next(self._numbers)
            keys = tuple((delivery.key, delivery.key) for delivery in deliveries)
            await self._ask(n, f.Discard(n, keys, reason), f.Done)

    async def follow(self, message_id: str, until: str = "acked") -> tuple[f.ReceiptView, ...]:
        """Receipts of a message now; later steps come from `progress`."""
        n = next(self._numbers)
        return await self._all_receipts(await self._ask(n, f.Follow(n, message_id, until), f.Receipts))

    async def progress(self) -> AsyncIterator[f.Progress]:
        """Steps of the messages that this session follows, as they happen."""
        while (step := await self._progress.get()) is not None:
            yield step
        # Other readers, now or later, must end too.
        self._progress.put_nowait(None)
        raise self._lost or Disconnected("the connection ended")

    # Receiving.

    def __aiter__(self) -> AsyncIterator[f.Deliver]:
        return self.deliveries()

    async def deliveries(self) -> AsyncIterator[f.Deliver]:
        """Deliveries as the hub pushes them. Ends with `Disconnected`."""
        while (delivery := await self._deliveries.get()) is not None:
            yield delivery
        # Other readers, now or later, must end too.
        self._deliveries.put_nowait(None)
        raise self._lost or Disconnected("the connection ended")

    # Reading.

    async def receipts(self, message_id: str) -> tuple[f.ReceiptView, ...]:
        """Receipts of a message, one for each recipient."""
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
        """Report what this member did."""
        n = next(self._numbers)
        return (await self._ask(n, f.RecordActivity(n, events), f.Recorded)).count

    async def doings(self) -> AsyncIterator[f.Did]:
        """Activity of followed members, as it happens."""
        while (did := await self._did.get()) is not None:
            yield did
        # Other readers, now or later, must end too.
        self._did.put_nowait(None)
        raise self._lost or Disconnected("the connection ended")

    async def tail(self, after: int = -1, *, everything: bool = False) -> AsyncIterator[f.Message]:
        """All messages that this member may see, from this offset on, as they come. One such view per connection."""
        n = next(self._numbers)
        await self._ask(n, f.FollowAll(n, after, everything), f.Done)
        while (said := await self._said.get()) is not None:
            # Skip messages of an earlier view.
            for message in said.messages if said.n == n else ():
                yield message
        self._said.put_nowait(None)
        raise self._lost or Disconnected("the connection ended")

    # Called by the carrier.

    def receive_batch(self, payload: bytes | str) -> None:
        """A batch came from the hub."""
        try:
            batch = f.decode_hub_batch(payload)
        except f.BadBatch as error:
            self._end(Disconnected(f"the hub sent what is not a batch of frames: {error}"))
            return
        for frame in batch:
            match frame:
                case f.Deliver():
                    self._deliveries.put_nowait(frame)
                case f.Progress():
                    self._progress.put_nowait(frame)
                case f.Did():
                    self._did.put_nowait(frame)
                case f.Said():
                    self._said.put_nowait(frame)
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
        """The connection ended."""
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
        """The largest batch that the hub takes."""
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
        self._deliveries.put_nowait(None)
        self._progress.put_nowait(None)
        self._did.put_nowait(None)
        self._said.put_nowait(None)


def to_json(value: msgspec.Struct | tuple[msgspec.Struct, ...]) -> bytes:
    """A value of the SDK as the JSON that the hub documents."""
    return msgspec.json.encode(value)
