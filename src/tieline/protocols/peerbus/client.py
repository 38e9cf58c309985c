"""The adapter: a client of a peerbus broker (server), for a host (the program that uses the adapter) written in Python.

Used by: the host. Uses: a WebSocket. The adapter reconnects under the same name, so that the broker sends
unacknowledged messages again. The adapter checks the signature of each message. It gives the message to the host,
unless the host had the same id before. It acknowledges a message only when the host says that it has consumed the
message. So the host gets each id once, even if the broker sends it several times.

The protocol has no frame that confirms a sent message. But the broker answers a `peers` request only after all earlier
messages on the connection are durable. So `confirm` sends a `peers` request and waits for the answer. If the connection
is lost, unconfirmed messages are sent again with the same ids, and the broker ignores the repeats.
"""

import asyncio
import contextlib
import random
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tieline.protocols.peerbus import canonical, codec
from tieline.protocols.peerbus.codec import Deliver, Envelope, FrameError, Peers
from tieline.wire.address import split_pin
from tieline.wire.backoff import Backoff
from tieline.wire.tls import client_context

REDIAL = Backoff(wait_ms_max=5000, jitter=0, attempts_max=None)
_WELL_SECONDS = 5.0
"""Seconds after which a connection counts as healthy.

If a healthy connection is lost, the wait before the first attempt to reconnect is short again.
"""
SEEN_MAX = 4096
"""Largest number of ids of consumed messages that the adapter (the client) remembers.

It is also the limit of received messages that the host program has not consumed.
"""
UNCONFIRMED_MAX = 1024
"""Largest number of sent messages that the broker (server) has not confirmed as durable.

At this limit, `send` waits.
"""
ANSWER_SECONDS = 5.0  # a working broker answers in milliseconds
SOURCE = "peer-bus"

_FINAL_CODES = frozenset({1002, 1003, 1007, 1008})
"""WebSocket close codes after which the adapter (the client) does not reconnect.

The next handshake would fail in the same way.
"""


class Rejected(Exception):
    """Exception: the broker (peerbus's server) refused the name, the token or the version.

    Another attempt would fail too.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason or 'rejected'} ({code})")
        self.code = code
        self.reason = reason


class Tally(Struct):
    """Counts of received messages that the adapter (the client) did not give to its host program, by reason.

    It also has the number of connections so far.
    """

    forged: int = 0
    """Number of messages that were dropped without an acknowledgement, because their signature is wrong."""
    keyless: int = 0
    """Number of messages that were dropped, because they have no key. Without a key, they cannot be acknowledged."""
    malformed: int = 0
    """Number of received texts that were dropped, because they are not frames (messages) of this protocol."""
    repeated: int = 0
    """Number of messages that were not given to the host program, because it had received them before."""
    connections: int = 0


class Delivery(Struct, frozen=True):
    """One received message for the host (the program that uses the adapter).

    The host must acknowledge the message by `Adapter.ack`.
    """

    envelope: Envelope
    key: str

    @property
    def sender(self) -> str:
        """Name of the message's sender, from the signed envelope."""
        return self.envelope.sender

    def json(self) -> Any:
        """Return the body of the message, decoded from JSON.

        Half a surrogate pair becomes the replacement character. A number that is too large becomes infinity.
        """
        return codec.decode_body(self.envelope.body)


class _Link:
    """One connection to the broker (peerbus's server) on which the peer is registered."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket
        # Futures of the waiting callers, in the order of their questions.
        self.questions: deque[asyncio.Future[tuple[str, ...]]] = deque()

    async def send(self, frame: bytes) -> None:
        await self.websocket.send(frame, text=True)

    async def ask(self) -> tuple[str, ...]:
        answer: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self.questions.append(answer)
        await self.send(codec.encode_peers())
        return await answer

    def answered(self, names: tuple[str, ...]) -> None:
        if self.questions:
            answer = self.questions.popleft()
            if not answer.done():
                answer.set_result(names)

    def lost(self) -> None:
        for answer in self.questions:
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the broker is lost"))
                # The caller may be gone: mark the exception as retrieved.
                answer.exception()


class Adapter:
    """Client of a broker (peerbus's server). It connects under one name, and reconnects by itself.

    Use it as an async context manager, and iterate over it to get the messages.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        token: str,
        secret: bytes | str,
        seen_max: int = SEEN_MAX,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.tally = Tally()
        self._url = url
        self._token = token
        self._secret = secret.encode() if isinstance(secret, str) else secret
        if len(self._secret) < canonical.SECRET_BYTES_MIN:
            raise ValueError(f"the secret needs at least {canonical.SECRET_BYTES_MIN} bytes")
        self._chance = chance
        self._seen_max = seen_max
        # Ids of messages that the host consumed, oldest first; and keys of messages that the host has but did not
        # consume yet.
        self._seen: dict[str, None] = {}
        self._open: dict[str, str] = {}
        # Wakes the reader, which stops while the host holds the maximum of messages.
        self._room = asyncio.Event()
        # True if this connection skipped deliveries because the host holds the maximum. The next one brings them again.
        self._passed_over = False
        self._inbound: asyncio.Queue[Delivery | None] = asyncio.Queue()
        # Messages sent and not confirmed, by number.
        self._unconfirmed: dict[int, bytes] = {}
        self._number = 0
        self._link: _Link | None = None
        self._linked = asyncio.Event()
        self._failure: Exception | None = None
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        try:
            await self._connected()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect from the broker (server).

        The broker sends unacknowledged messages again on the next connection under this name.
        """
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    # Speaking.

    async def send(self, to: str, body: object) -> str:
        """Send a message to the peer `to`, and return the message's id.

        Call `confirm` to wait until the message is durable.
        """
        return await self._send(to, codec.MESSAGE, codec.encode_body(body))

    async def broadcast(self, body: object) -> str:
        """Send a message to every other peer that is connected now, and return the message's id."""
        return await self._send(codec.ALL, codec.BROADCAST, codec.encode_body(body))

    async def confirm(self) -> None:
        """Wait until every sent message is durable at the broker (server), even if the connection breaks meanwhile."""
        while self._unconfirmed:
            link = await self._connected()
            last = self._number
            if await self._ask(link) is not None:
                self._confirmed(last)

    async def peers(self, timeout: float = ANSWER_SECONDS) -> list[str]:
        """Ask the broker for the names of all connected peers, and return them. The adapter's own name is included."""
        async with asyncio.timeout(timeout):
            while True:
                names = await self._ask(await self._connected())
                if names is not None:
                    return list(names)

    async def _send(self, to: str, kind: str, body: bytes) -> str:
        if len(self._unconfirmed) >= UNCONFIRMED_MAX:
            await self.confirm()
        ident = secrets.token_hex(16)
        fields = (codec.VERSION, ident, canonical.sound(self.name), canonical.sound(to), _now(), SOURCE, kind)
        frame = codec.encode_envelope(fields, body, self._secret)
        if len(frame) > codec.FRAME_BYTES_MAX:
            raise ValueError(f"the message has {len(frame)} bytes, more than {codec.FRAME_BYTES_MAX}")
        if self._failure is not None:
            raise self._failure
        self._number += 1
        self._unconfirmed[self._number] = frame
        if self._link is not None:
            await self._put(self._link, frame)
        return ident

    def _confirmed(self, last: int) -> None:
        for number in [number for number in self._unconfirmed if number <= last]:
            del self._unconfirmed[number]

    # Listening.

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self.deliveries()

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Yield the received messages, each message id only once.

        The host (the program that uses the adapter) must call `ack` when it has consumed a message.
        """
        while (delivery := await self._inbound.get()) is not None:
            yield delivery
        # End the next iteration too.
        self._inbound.put_nowait(None)
        if isinstance(self._failure, Rejected):
            raise self._failure

    async def ack(self, delivery: Delivery) -> None:
        """Acknowledge a message that the host (the program that uses the adapter) has consumed.

        The broker (server) then does not send the message again.
        """
        ident = delivery.envelope.id
        key = self._open.pop(ident, delivery.key)
        self._seen[ident] = None
        if len(self._seen) > self._seen_max:
            del self._seen[next(iter(self._seen))]
        self._room.set()
        # Without a connection the message comes again, and is acknowledged then.
        if (link := self._link) is not None:
            await self._put(link, codec.encode_ack(key))
            if self._passed_over and len(self._open) <= self._seen_max // 2:
                await link.websocket.close()

    # Inside.

    async def _connected(self) -> _Link:
        while self._link is None:
            if self._failure is not None:
                raise self._failure
            await self._linked.wait()
        return self._link

    async def _put(self, link: _Link, frame: bytes) -> None:
        try:
            await link.send(frame)
        except ConnectionClosed:
            self._drop(link)

    async def _ask(self, link: _Link) -> tuple[str, ...] | None:
        # The answer may come after deliveries that the host has no room for, so the reader must read on.
        self._room.set()
        try:
            return await link.ask()
        except (ConnectionError, ConnectionClosed):
            self._drop(link)
            return None

    def _drop(self, link: _Link) -> None:
        """Forget a lost connection. Callers that need a connection then wait for the next connection."""
        if self._link is link:
            self._link = None
            self._linked.clear()

    async def _run(self) -> None:
        attempts = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                started = loop.time()
                with contextlib.suppress(OSError, ConnectionClosed, InvalidHandshake, EOFError):
                    await self._attend()
                if self._passed_over:
                    # This connection was closed to get the skipped deliveries again: reconnect at once.
                    self._passed_over = False
                    continue
                if loop.time() - started > _WELL_SECONDS:
                    attempts = 0
                # The random part only adds time, by this protocol's rule.
                await asyncio.sleep(REDIAL.wait_seconds(attempts) * (1 + self._chance() / 2))
                attempts += 1
        except Exception as error:  # noqa: BLE001 - every error is reported to the adapter's user
            self._failure = error
        finally:
            if self._failure is None:
                self._failure = ConnectionError("the adapter is closed")
            self._linked.set()
            self._inbound.put_nowait(None)

    async def _attend(self) -> None:
        """Run one connection to the broker (server) until it ends.

        The steps are: connect, register, send unconfirmed messages again, and read frames (protocol messages).
        """
        async with connect(
            split_pin(self._url)[0],
            compression=None,
            max_size=codec.FRAME_BYTES_MAX,
            proxy=None,
            ping_interval=None,
            ssl=client_context(self._url),
        ) as websocket:
            await self._register(websocket)
            link = _Link(websocket)
            self.tally.connections += 1
            reading = asyncio.create_task(self._read(link))
            try:
                await self._say_again(link)
                await reading
            finally:
                self._drop(link)
                link.lost()
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _register(self, websocket: ClientConnection) -> None:
        try:
            await websocket.send(codec.encode_register(self.name, self._token), text=True)
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = codec.decode_push(await websocket.recv(decode=False))
        except ConnectionClosed as closed:
            if closed.rcvd is not None and closed.rcvd.code in _FINAL_CODES:
                raise Rejected(closed.rcvd.code, closed.rcvd.reason) from closed
            raise
        except FrameError as error:
            raise ConnectionError(f"this is no broker: {error}") from error
        if not isinstance(answer, Peers):
            raise ConnectionError("the broker did not answer the handshake")

    async def _say_again(self, link: _Link) -> None:
        """Send the unconfirmed messages again on the new connection `link`, in order.

        After that, callers can send new messages on this connection.
        """
        sent = 0
        while waiting := [number for number in self._unconfirmed if number > sent]:
            for number in waiting:
                frame = self._unconfirmed.get(number)
                if frame is not None:
                    await link.send(frame)
            sent = waiting[-1]
        self._link = link
        self._linked.set()

    async def _read(self, link: _Link) -> None:
        while True:
            while len(self._open) >= self._seen_max and not link.questions:
                # The host holds the maximum of messages, so the reader stops. The broker keeps the rest.
                self._room.clear()
                await self._room.wait()
            frame = await link.websocket.recv(decode=False)
            try:
                push = codec.decode_push(frame)
            except FrameError:
                self.tally.malformed += 1
                continue
            match push:
                case Deliver():
                    await self._receive(link, push)
                case Peers():
                    link.answered(push.names)
                case None:
                    pass

    async def _receive(self, link: _Link, push: Deliver) -> None:
        ident = push.envelope.id
        if not push.key:
            self.tally.keyless += 1
        elif not push.envelope.verify(self._secret):
            self.tally.forged += 1
        elif ident in self._seen:
            self.tally.repeated += 1
            await link.send(codec.encode_ack(push.key))
        elif ident in self._open:
            self.tally.repeated += 1
            self._open[ident] = push.key
        elif self._passed_over or len(self._open) >= self._seen_max:
            # This delivery was read while waiting for an answer. All later deliveries are skipped too, which keeps the
            # order.
            self._passed_over = True
        else:
            self._open[ident] = push.key
            self._inbound.put_nowait(Delivery(push.envelope, push.key))


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
