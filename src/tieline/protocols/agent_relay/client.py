"""A client of the Agent Relay Protocol that stays connected: it reconnects, resumes its session, and loses nothing.

Used by: agents and scripts. Uses: `lifecycle`, which remembers what was sent and decides when to connect again, and
`link`, which has the socket. This module knows nothing about the code of the hub.

**Sending.** `send` returns once the hub has the message on disk, and `request` once the recipient answered. If the
connection is lost before an answer comes, the client sends the message again on the next connection. It keeps the order
and the ids, and the hub accepts each id once. At most `unanswered_max` calls wait for an answer; further callers wait
for a free slot. Callers also wait while the socket is full, and after a BUSY.

**Receiving.** `async for delivery in client` acknowledges a delivery when the loop asks for the next one, because the
loop body has then finished with it. If the loop ends with an error, the current delivery stays unacknowledged and comes
again in the next session. So a forgotten acknowledgement can never block a loop. An application that handles several
deliveries at once gets them by `receive` and acknowledges each. If the hub repeats a delivery that the application
still has or has acknowledged, the client does not give it to the application again. The hub sends at most
`max_inflight` unacknowledged deliveries. If more deliveries than `max_inflight` are buffered, the client stops reading
until the application takes some of them.
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
from tieline.protocols.agent_relay.codec import DEFAULT_TOPIC, Envelope
from tieline.protocols.agent_relay.error_code import ErrorCode
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
UNANSWERED_MAX = 256  # sends in flight before the next send waits
TIMEOUT_MS = 30_000  # default timeout of a blocking send
HEARTBEAT_MS = 5000  # used until the hub's WELCOME gives another value
HANDSHAKE_SECONDS = 5.0  # a working broker answers in milliseconds
GOODBYE_SECONDS = 1.0  # a broker that hangs cannot block the client's close

Observer = Callable[[State, str], None]
"""Callback that gets each new state of the client, and the reason for the change."""


class Delivery:
    """One message that the client received: its fields, and methods to acknowledge or decline the message."""

    __slots__ = ("_client", "body", "correlation", "data", "envelope", "id", "kind", "sender", "seq", "thread", "topic")

    def __init__(self, client: "RelayClient", envelope: Envelope) -> None:
        payload, meta = envelope.payload, envelope.payload_meta or {}
        self._client = client
        # The whole envelope, for the parts that have no attribute below.
        self.envelope = envelope
        self.id = envelope.id
        self.sender = envelope.sender or ""
        self.topic = envelope.topic or ""
        self.seq = _seq(envelope)
        # A body that is not a text is JSON here; `envelope` has it as it came.
        self.body = codec.text_of(payload.get("body", ""))
        self.kind: str = payload.get("kind", "message")
        self.data: Payload = payload.get("data") or {}
        self.thread: str | None = payload.get("thread")
        # The correlation id, if the sender waits for an answer.
        sync = meta.get("sync")
        self.correlation: str | None = sync.get("correlationId") if isinstance(sync, dict) else None

    def ack(self, response: Any = None, data: Any = None) -> None:
        """Acknowledge the delivery. Only the first call has an effect.

        If the sender waits for an answer, `response` and `data` are the answer.
        """
        self._client.acknowledge(self, response, data)

    def nack(self, code: str = "BUSY", message: str = "") -> None:
        """Decline the delivery: tell the hub a code and a reason.

        The hub sends the delivery again in the next session.
        """
        self._client.decline(self, code, message)


class RelayClient:
    """Client of agent-relay for one agent.

    `async with RelayClient(path, name) as client` opens and closes the client.
    """

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
        # Topics to subscribe to, also after a reconnection.
        self.topics: set[str] = set()
        # The last non-fatal error of the hub that answers no request of this client.
        self.last_error: RelayRefused | None = None
        self._token = token
        self._max_inflight = max_inflight
        chance = chance or random.Random()  # noqa: S311 - for jitter, not for secrets
        self._lifecycle = Lifecycle(backoff or Backoff(), chance)
        self._memory = Memory()
        self._requests = Requests()
        self._slots = asyncio.Semaphore(unanswered_max)
        self._pause = Pause(chance)
        # Timer that ends the pause after a BUSY; `None` if there is no pause.
        self._busy: asyncio.TimerHandle | None = None
        # Deliveries that the application has not taken yet.
        self._deliveries: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._link: Link | None = None
        # Limits from the hub's last WELCOME.
        self._frame_bytes_max = codec.FRAME_BYTES_MAX
        self._heartbeat_ms: float = HEARTBEAT_MS
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        # The reason why the client makes no more connections; `None` until then.
        self._final: RelayEnded | None = None
        self._finished = False

    @property
    def state(self) -> State:
        """Current state of the client's connection, for example `READY`."""
        return self._lifecycle.state

    # Lifecycle.

    async def open(self) -> None:
        """Connect, and wait until the session is open.

        Raise `RelayFatal` if the hub ends the session for good, or `RelayUnreachable` after the last attempt.
        """
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
        """Send BYE and close the connection. Calls that still wait for an answer raise `RelayClosed`."""
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
        """Send a message to a name, `#channel` or `*`. Return when the hub has stored it.

        Raise `RelayRefused` if the hub refuses the message. If the call is cancelled, the message may or may not have
        been sent. To make sure that it is sent once, send it again with the same `wire_id`.
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
        """Send a message to one agent, wait for its answer, and return the answer.

        Raise `RelayRefused` if the hub refuses the message, or if no answer came in time. In the second case, the code
        of the error is `TIMEOUT`.
        """
        wire_id = new_id()
        payload = _present(kind=kind, body=body, data=data, thread=thread)
        meta = {"sync": {"correlationId": wire_id, "timeoutMs": timeout_ms, "blocking": True}}
        said = frame("SEND", payload, id=wire_id, to=to, topic=topic, payload_meta=meta)
        try:
            # The hub's timeout starts when the hub has the message, and is lost if the hub stops. The caller's timeout
            # is here.
            async with asyncio.timeout(timeout_ms / 1000):
                answer: Answer = await self._ask(wire_id, said, Expected.ANSWER)
        except TimeoutError:
            raise RelayRefused(ErrorCode.TIMEOUT, f"no answer from {to} within {timeout_ms} ms") from None
        return answer

    async def subscribe(self, topic: str) -> None:
        """Subscribe to a topic, now and after every reconnection.

        Return when the hub has confirmed the subscription.
        """
        await self._membership("SUBSCRIBE", topic)
        self.topics.add(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self.topics.discard(topic)
        await self._membership("UNSUBSCRIBE", topic)

    async def ask(self, kind: str, payload: Payload | None = None) -> Payload:
        """Send a query and return the payload of its answer. `kind` is the type of the query, such as `STATUS`."""
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
        """Wait for the next delivery and return it. The caller must acknowledge the delivery.

        Raise `RelayEnded` if the client has ended. If the client ends before a received delivery was returned, the hub
        sends this delivery again in the next session.
        """
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
        """Acknowledge a delivery; `Delivery.ack` calls this. Raise `RelayRefused` if the answer is too large."""
        payload: Payload = {"ack_id": delivery.id, "seq": delivery.seq}
        payload |= _present(correlationId=delivery.correlation, response=response, responseData=data)
        written = frame("ACK", payload)
        self._check_size(written)
        # If the ACK is not written now, or is lost, the delivery comes again and is acknowledged then.
        if self._memory.mark_acked(delivery.id, payload if delivery.correlation is not None else None):
            self._write(written)

    def decline(self, delivery: Delivery, code: str, message: str) -> None:
        """Decline a delivery, with a code and a reason for the hub. `Delivery.nack` calls this."""
        if self._memory.release(delivery.id):
            self._write(frame("NACK", {"ack_id": delivery.id, "code": code, "message": message}))

    # Callbacks of the connection.

    def link_drained(self, link: Link) -> None:
        """Send the waiting requests, because the socket accepts bytes again. The link (the connection) calls this."""
        if link is self._link:
            self._pump()

    def link_received(self, link: Link, envelope: Envelope) -> None:
        """Handle one received frame (a protocol message of the hub). The link (the connection) calls this.

        The frame is a delivery, an answer, a part of the handshake, or an error.
        """
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
                # STALE: the hub no longer keeps the deliveries that this client lacks.
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
        """Connect, and reconnect whenever the connection is lost. Return when the client ends.

        The client ends if `close` was called, if the hub ended the session for good, or after the last failed attempt.
        """
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
        """Make one connection, and wait until it ends. Return the reason of the end as text."""
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
        """Send the first frame on a connection: RESUME if the last session can be resumed, otherwise HELLO.

        HELLO opens a new session.
        """
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
            # Call the observer later, so that it may do anything and its errors stay its own.
            asyncio.get_running_loop().call_soon(self.on_state, self.state, why)

    def _finish(self) -> None:
        """End the client. All waiting calls raise the final error, and the state becomes DISCONNECTED."""
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

    # Requests and their answers.

    async def _membership(self, kind: str, topic: str) -> None:
        """Send SUBSCRIBE or UNSUBSCRIBE (the value of `kind`), and wait for the result.

        Raise an error if the hub refuses.

        The hub answers such a frame only if it refuses. So the client also sends a STATUS query with the same id, which
        the hub always answers.
        """
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
            request = Request(wire_id, written, expected, lambda found: _resolve(outcome, found))
            self._requests.add(request)
            self._pump()
            try:
                return await outcome
            finally:
                self._requests.drop(request)

    def _pump(self) -> None:
        """Send the waiting requests, in order. Stop if the hub is busy or the socket is full."""
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
            # A hub that shuts down comes back; after any other fatal error a new connection would only fail again.
            if error.code != ErrorCode.SHUTTING_DOWN:
                self._final = RelayFatal(error.code, error.message)
                self._finish()
            link.abort(str(error))
        elif not self._requests.receive(envelope):
            self.last_error = error

    # Received deliveries.

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
            # Only messages that need no acknowledgement can exceed the limit.
            link.read(False)

    # Frames.

    def _write(self, written: bytes) -> None:
        if self._link is not None and self.state is State.READY:
            self._link.write(written)

    def _check_size(self, written: bytes) -> None:
        """Raise `RelayRefused` if `written` (an encoded frame) is larger than the hub's limit.

        The hub would close the connection if it received such a frame.
        """
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


def _resolve(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, RelayError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
