"""A client of the Agent Relay Protocol that stays connected: it comes back, takes its session up, and loses nothing.

Above: agents and scripts. Below: `lifecycle`, which decides, and `link`, which has the socket. It refuses to know the
hub's side.

**Sending.** `send` returns once the hub has the message on disk, and `request` once the recipient answered. What has no
answer when the connection is lost is sent again on the next one, in the same order under the same ids, which the hub
takes once. At most `unanswered_max` wait for an answer, then callers wait for each other; so they do while the socket
is full, and after a BUSY.

**Receiving.** `async for delivery in client` acknowledges a delivery when the next one is asked for: the body of the
loop was done with it. Whoever leaves the loop by an error was not, and gets it again in the next session; and a loop
cannot stand still because somebody forgot to acknowledge. Whoever handles several at once takes them by `receive` and
acknowledges each. A delivery that the application had is not given to it again. The hub gives at most `max_inflight`
that are not acknowledged; whatever comes beyond that is not read until the application takes what is there.
"""

import asyncio
import contextlib
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import DEFAULT_TOPIC, Envelope, ErrorCode
from tieline.protocols.agent_relay.lifecycle import (
    Accepted,
    Answer,
    Expected,
    Lifecycle,
    Memory,
    Novelty,
    Pause,
    Payload,
    RelayClosed,
    RelayEnded,
    RelayError,
    RelayFatal,
    RelayRefused,
    RelayUnreachable,
    Request,
    Requests,
    State,
    refusal_of,
)
from tieline.protocols.agent_relay.link import Link, frame, new_id
from tieline.wire import unix
from tieline.wire.backoff import Backoff

__all__ = [
    "Accepted",
    "Answer",
    "Backoff",
    "Delivery",
    "RelayClient",
    "RelayClosed",
    "RelayEnded",
    "RelayError",
    "RelayFatal",
    "RelayRefused",
    "RelayUnreachable",
    "State",
]

MAX_INFLIGHT = 256
UNANSWERED_MAX = 256  # sends on their way before the next waits
TIMEOUT_MS = 30_000  # how long a blocking send waits if nobody says
HEARTBEAT_MS = 5000  # until WELCOME says another
HANDSHAKE_SECONDS = 5.0  # a broker that works answers in milliseconds
GOODBYE_SECONDS = 1.0  # a broker that hangs does not keep its client from ending

Observer = Callable[[State, str], None]
"""Called with each new state, and why it came."""


class Delivery:
    """A message for this client."""

    __slots__ = ("_client", "body", "correlation", "data", "envelope", "id", "kind", "sender", "seq", "thread", "topic")

    def __init__(self, client: "RelayClient", envelope: Envelope) -> None:
        payload, meta = envelope.payload, envelope.payload_meta or {}
        self._client = client
        # All of it, for what has no name below.
        self.envelope = envelope
        self.id = envelope.id
        self.sender = envelope.sender or ""
        self.topic = envelope.topic or ""
        self.seq = _seq(envelope)
        self.body = str(payload.get("body", ""))
        self.kind: str = payload.get("kind", "message")
        self.data: Payload = payload.get("data") or {}
        self.thread: str | None = payload.get("thread")
        # Whether its sender waits for an answer.
        sync = meta.get("sync")
        self.correlation: str | None = sync.get("correlationId") if isinstance(sync, dict) else None

    def ack(self, response: Any = None, data: Any = None) -> None:
        """Be done with it; the first time counts. If its sender waits, this is the answer."""
        self._client.acknowledge(self, response, data)

    def nack(self, code: str = "BUSY", message: str = "") -> None:
        """Not take it: it comes again in the next session."""
        self._client.decline(self, code, message)


class RelayClient:
    """An agent at a relay. `async with RelayClient(path, name) as client` opens and closes it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str,
        *,
        token: str | None = None,
        max_inflight: int = MAX_INFLIGHT,
        unanswered_max: int = UNANSWERED_MAX,
        backoff: Backoff | None = None,
        chance: random.Random | None = None,
        on_state: Observer | None = None,
    ) -> None:
        self.path = Path(path)
        self.name = name
        self.on_state = on_state
        # Topics to hear, also after a reconnection.
        self.topics: set[str] = set()
        # The last error of the hub that belongs to nothing asked here and is not fatal.
        self.last_error: RelayRefused | None = None
        self._token = token
        self._max_inflight = max_inflight
        chance = chance or random.Random()  # noqa: S311 - for jitter, not for secrets
        self._lifecycle = Lifecycle(backoff or Backoff(), chance)
        self._memory = Memory()
        self._requests = Requests()
        self._slots = asyncio.Semaphore(unanswered_max)
        self._pause = Pause(chance)
        # Ends the pause that a BUSY began, if there is one.
        self._busy: asyncio.TimerHandle | None = None
        # What the application has not taken yet.
        self._deliveries: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._link: Link | None = None
        # What the hub said in its last WELCOME.
        self._frame_bytes_max = codec.FRAME_BYTES_MAX
        self._heartbeat_ms: float = HEARTBEAT_MS
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        # Why there will be no more connections, once that is so.
        self._final: RelayEnded | None = None
        self._finished = False

    @property
    def state(self) -> State:
        """Where it stands."""
        return self._lifecycle.state

    # Lifecycle.

    async def open(self) -> None:
        """Connect, and wait until it is ready. Raises `RelayFatal`, or `RelayUnreachable` after the last attempt."""
        if self._final is not None:
            raise self._final
        assert self._task is None, "a client is opened once"
        unix.check_path(self.path)
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())
        try:
            await self._opened
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Say BYE and hang up. What has no answer yet raises `RelayClosed`."""
        if self._final is None:
            self._final = RelayClosed("this client was closed")
        link = self._link
        if link is not None and self.state is State.READY:
            link.send("BYE", {"reason": "closed"})
            link.read(True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await asyncio.shield(link.closed)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Speaking.

    async def send(  # noqa: PLR0913 - a message has that many parts
        self,
        to: str,
        body: str,
        *,
        topic: str | None = None,
        kind: str = "message",
        data: Payload | None = None,
        thread: str | None = None,
        ttl_ms: int | None = None,
        requires_ack: bool | None = None,
        wire_id: str | None = None,
    ) -> Accepted:
        """Say something to a name, `#channel` or `*`; returns once it is durable. Raises `RelayRefused`.

        One that is cancelled may have been said or not; saying it again under the same `wire_id` makes sure.
        """
        wire_id = wire_id or new_id()
        payload = _present(kind=kind, body=body, data=data, thread=thread)
        meta = _present(ttl_ms=ttl_ms, requires_ack=requires_ack) or None
        said = frame("SEND", payload, id=wire_id, to=to, topic=topic, payload_meta=meta)
        accepted: Accepted = await self._ask(wire_id, said, Expected.ACCEPTANCE)
        return accepted

    async def request(
        self,
        to: str,
        body: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        topic: str | None = None,
        kind: str = "message",
        data: Payload | None = None,
        thread: str | None = None,
    ) -> Answer:
        """Say something to one agent and wait for its answer. Raises `RelayRefused`, with `TIMEOUT` when none came."""
        wire_id = new_id()
        payload = _present(kind=kind, body=body, data=data, thread=thread)
        meta = {"sync": {"correlationId": wire_id, "timeoutMs": timeout_ms, "blocking": True}}
        said = frame("SEND", payload, id=wire_id, to=to, topic=topic, payload_meta=meta)
        try:
            # The hub's clock starts when it has the message, and ends with the hub; the caller's is here.
            async with asyncio.timeout(timeout_ms / 1000):
                answer: Answer = await self._ask(wire_id, said, Expected.ANSWER)
        except TimeoutError:
            raise RelayRefused(ErrorCode.TIMEOUT, f"no answer from {to} within {timeout_ms} ms") from None
        return answer

    async def subscribe(self, topic: str) -> None:
        """Hear a topic, now and after every reconnection; returns once the hub has it."""
        await self._membership("SUBSCRIBE", topic)
        self.topics.add(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Hear a topic no more."""
        self.topics.discard(topic)
        await self._membership("UNSUBSCRIBE", topic)

    async def ask(self, kind: str, payload: Payload | None = None) -> Payload:
        """Put a question of the protocol (`STATUS`, `LIST_AGENTS`, `INBOX`, …); gives the payload of its answer."""
        wire_id = new_id()
        reply: Payload = await self._ask(wire_id, frame(kind, payload or {}, id=wire_id), Expected.REPLY)
        return reply

    # Receiving.

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        with contextlib.suppress(RelayClosed):
            while True:
                delivery = await self.receive()
                yield delivery
                delivery.ack()

    async def receive(self) -> Delivery:
        """Take the next delivery, and acknowledge it yourself. Raises `RelayEnded`; what is left then comes again."""
        while self._final is None and not self._deliveries:
            self._arrived.clear()
            await self._arrived.wait()
        if self._final is not None:
            raise self._final
        delivery = self._deliveries.popleft()
        if self._link is not None and len(self._deliveries) <= self._max_inflight // 2:
            self._link.read(True)
        return delivery

    def acknowledge(self, delivery: Delivery, response: Any = None, data: Any = None) -> None:
        """Be done with a delivery, as `Delivery.ack` says. Raises `RelayRefused` if the answer fits no frame."""
        payload: Payload = {"ack_id": delivery.id, "seq": delivery.seq}
        payload |= _present(correlationId=delivery.correlation, response=response, responseData=data)
        written = frame("ACK", payload)
        self._check_size(written)
        # If it is not written now, or is lost, the delivery comes again and is acknowledged then.
        if self._memory.settle(delivery.id, payload if delivery.correlation is not None else None):
            self._write(written)

    def decline(self, delivery: Delivery, code: str, message: str) -> None:
        """Not take a delivery, as `Delivery.nack` says."""
        if self._memory.release(delivery.id):
            self._write(frame("NACK", {"ack_id": delivery.id, "code": code, "message": message}))

    # What a connection tells.

    def link_drained(self, link: Link) -> None:
        """There is room to write."""
        if link is self._link:
            self._pump()

    def link_received(self, link: Link, envelope: Envelope) -> None:
        """A frame came."""
        if link is not self._link:
            return
        match envelope.type:
            case "DELIVER":
                self._delivered(link, envelope)
            case codec.CHANNEL_MESSAGE:
                self._keep(link, envelope)
            case "WELCOME" | "SYNC" if self.state is State.HANDSHAKING:
                self._welcomed(link, envelope.payload)
            case "NACK" if self.state is State.HANDSHAKING and self._memory.session_id is not None:
                # STALE: what we lack is not kept any more.
                self._memory.forget_session()
                self._hello(link)
            case "ERROR":
                self._erred(link, envelope)
            case "BUSY":
                self._pause_sending(envelope.payload.get("retry_after_ms"))
            case "BYE":
                link.abort(f"the hub said goodbye: {envelope.payload.get('reason', '')}")
            case _:
                self._requests.receive(envelope)

    # The connection.

    async def _live(self) -> None:
        """Connect, again and again, until there is a reason not to."""
        try:
            self._shift(State.CONNECTING)
            while True:
                why = await self._connect()
                if self._final is not None:
                    return
                wait_seconds = self._lifecycle.lost()
                if wait_seconds is None:
                    tried = f"after {self._lifecycle.attempts} attempts to come back"
                    self._final = RelayUnreachable(f"no hub at {self.path} {tried}: {why}")
                    return
                self._tell(why)
                await asyncio.sleep(wait_seconds)
                self._shift(State.CONNECTING)
        finally:
            self._finish()

    async def _connect(self) -> str:
        """One connection, from its start to its end; returns why it ended."""
        link = Link(self)
        try:
            await unix.connect(self.path, lambda: link)
        except OSError as error:
            return error.strerror or str(error)
        self._link = link
        try:
            self._shift(State.HANDSHAKING)
            link.expect(HANDSHAKE_SECONDS)
            self._greet(link)
            await link.closed
        finally:
            self._link = None
            link.abort("this client was closed")
        return link.why

    def _greet(self, link: Link) -> None:
        """Take the session up if there is one, else begin one."""
        memory = self._memory
        if memory.session_id is None:
            self._hello(link)
            return
        payload = self._identity() | {"session_id": memory.session_id, "streams": memory.streams()}
        resume = frame("RESUME", payload | _present(resume_token=memory.resume_token))
        if codec.payload_bytes(resume) <= self._frame_bytes_max:
            link.write(resume)
        else:
            self._hello(link)

    def _hello(self, link: Link) -> None:
        token = self._memory.resume_token
        link.send("HELLO", self._identity() | _present(session=token and {"resume_token": token}))

    def _identity(self) -> Payload:
        capabilities = {
            "ack": True,
            "resume": True,
            "accept": True,
            "supports_topics": True,
            "max_inflight": self._max_inflight,
        }
        return _present(agent=self.name, capabilities=capabilities, token=self._token)

    def _welcomed(self, link: Link, payload: Payload) -> None:
        token, server = payload.get("resume_token"), payload.get("server")
        self._memory.open(str(payload.get("session_id")), token if isinstance(token, str) else None)
        if isinstance(server, dict):
            self._frame_bytes_max = int(_positive(server.get("max_frame_bytes"), self._frame_bytes_max))
            self._heartbeat_ms = _positive(server.get("heartbeat_ms"), self._heartbeat_ms)
        link.watch(self._heartbeat_ms)
        self._shift(State.READY)
        for topic in self.topics:
            link.send("SUBSCRIBE", {}, topic=topic)
        self._requests.rewind()
        self._pump()
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _shift(self, state: State) -> None:
        self._lifecycle.to(state)
        self._tell("")

    def _tell(self, why: str) -> None:
        if self.on_state is not None:
            # Later, so that an observer may do anything, and its errors are its own.
            asyncio.get_running_loop().call_soon(self.on_state, self.state, why)

    def _finish(self) -> None:
        """Nothing more will come: let everybody who waits know."""
        if self._finished:
            return
        self._finished = True
        final = self._final = self._final or RelayClosed("this client was closed")
        if self._busy is not None:
            self._busy.cancel()
        self._requests.fail(final)
        self._arrived.set()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(final)
        if self.state is not State.DISCONNECTED:
            self._lifecycle.to(State.DISCONNECTED)
        self._tell(str(final))

    # What was asked, and its answers.

    async def _membership(self, kind: str, topic: str) -> None:
        """SUBSCRIBE has no answer unless it is refused; a question behind it, under the same id, has one."""
        wire_id = new_id()
        frames = frame(kind, {}, id=wire_id, topic=topic) + frame("STATUS", {}, id=wire_id)
        await self._ask(wire_id, frames, Expected.REPLY)

    async def _ask(self, wire_id: str, written: bytes, expected: Expected) -> Any:
        self._check_size(written)
        async with self._slots:
            if self._final is not None:
                raise self._final
            if wire_id in self._requests:
                raise RelayRefused(ErrorCode.CONFLICT, f"the id {wire_id!r} is being sent already")
            outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            request = Request(wire_id, written, expected, lambda found: _settle(outcome, found))
            self._requests.add(request)
            self._pump()
            try:
                return await outcome
            finally:
                self._requests.drop(request)

    def _pump(self) -> None:
        """Write requests, as long as the hub and the socket take them."""
        link = self._link
        while link is not None and link.writable and self.state is State.READY and self._busy is None:
            written = self._requests.next_frame()
            if written is None:
                return
            link.write(written)

    def _pause_sending(self, retry_after_ms: object) -> None:
        loop = asyncio.get_running_loop()
        until = self._pause.busy(loop.time(), _positive(retry_after_ms, 0))
        if self._busy is not None:
            self._busy.cancel()
        self._busy = loop.call_at(until, self._go_on)

    def _go_on(self) -> None:
        self._busy = None
        self._pump()

    def _erred(self, link: Link, envelope: Envelope) -> None:
        error = refusal_of(envelope.payload)
        if envelope.payload.get("fatal") is True:
            # A hub that stops comes back; any other end would only repeat itself.
            if error.code != ErrorCode.SHUTTING_DOWN:
                self._final = RelayFatal(error.code, error.message)
                self._finish()
            link.abort(str(error))
        elif not self._requests.receive(envelope):
            self.last_error = error

    # What came.

    def _delivered(self, link: Link, envelope: Envelope) -> None:
        seq = _seq(envelope)
        match self._memory.receive(envelope.id, envelope.topic or DEFAULT_TOPIC, envelope.sender or "", seq):
            case Novelty.NEW:
                self._keep(link, envelope)
            case Novelty.DONE:
                link.send("ACK", self._memory.answer(envelope.id) or {"ack_id": envelope.id, "seq": seq})
            case Novelty.HELD:
                pass

    def _keep(self, link: Link, envelope: Envelope) -> None:
        self._deliveries.append(Delivery(self, envelope))
        self._arrived.set()
        if len(self._deliveries) > self._max_inflight:
            # Only what needs no acknowledgement comes beyond it.
            link.read(False)

    # Frames.

    def _write(self, written: bytes) -> None:
        if self._link is not None and self.state is State.READY:
            self._link.write(written)

    def _check_size(self, written: bytes) -> None:
        """The hub would hang up on a frame that is too large, so it is refused here."""
        size = codec.payload_bytes(written)
        if size > self._frame_bytes_max:
            text = f"a frame of {size} bytes exceeds the hub's maximum of {self._frame_bytes_max}"
            raise RelayRefused(ErrorCode.TOO_LARGE, text)


def _present(**values: Any) -> Payload:
    return {key: value for key, value in values.items() if value is not None}


def _seq(envelope: Envelope) -> int:
    return int(_positive((envelope.delivery or {}).get("seq"), 0))


def _positive(value: object, otherwise: float) -> float:
    return value if isinstance(value, int | float) and value > 0 else otherwise


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, RelayError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
