"""The state of a client, without I/O: connection states, pauses, open requests, and the memory for resuming.

Used by: `client`, which has the socket. Uses: `codec`. This module knows nothing about sockets, clocks and tasks: the
caller reports each event and the current time. The source of random numbers is a parameter, so that tests can replace
it.

```
DISCONNECTED → CONNECTING → HANDSHAKING → READY
                    ↑             ↓         ↓
                 BACKOFF ←────────┴─────────┘
```
"""

import random
from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any

from msgspec import Struct

from tieline.protocols.agent_relay.codec import Envelope
from tieline.wire.backoff import Backoff

KNOWN_MAX = 16_384
"""Most ids of acknowledged deliveries that the client remembers. If there are more, it forgets the older half.

A hub that is killed may lose the last acknowledgements, and then sends their deliveries again. The client recognizes
these deliveries, because a hub never loses as many acknowledgements as the client remembers.
"""

ANSWERS_MAX = 64
"""Most answers that the client remembers. If an answer was lost, the client can send the remembered answer again."""

POSITIONS_MAX = 10_000
"""Most streams (one for each topic and sender) whose last sequence number the client remembers.

A hub remembers as many for one recipient.
"""

_CALM_SECONDS = 2.0
"""Seconds without a BUSY after which the next pause is short again.

A BUSY is the hub's request to send more slowly. A hub sends at most one BUSY a second.
"""

_DOUBLINGS_MAX = 16  # with more doublings the pause is at its maximum anyway

_BEATS = 4
"""Number of beats during one heartbeat interval. At each beat, the client checks if the hub is silent."""

_BEATS_ASK = 6
"""Number of beats (regular checks) with a silent hub after which the client sends a PING.

This is one and a half heartbeat intervals. Usually the hub sends a PING sooner, after one interval in which the client
sent nothing.
"""


Payload = dict[str, Any]


class RelayError(Exception):
    """Base class of all errors of agent-relay's client."""


class RelayRefused(RelayError):
    """Exception: the hub refused one request. `code` is one of the protocol's error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class RelayEnded(RelayError):
    """Exception: there is no connection, and the client will not reconnect. Each subclass stands for one reason."""


class RelayFatal(RelayEnded, RelayRefused):
    """Exception: the hub ended the session for good, with an error code."""


class RelayUnreachable(RelayEnded):
    """Exception: the client could not reach a hub in any of its attempts."""


class RelayClosed(RelayEnded):
    """Exception: the application has closed the client."""


class State(Enum):
    """State of a client's connection: disconnected, connecting, in the handshake, ready, or waiting to reconnect."""

    DISCONNECTED = "not begun, closed, or given up"
    CONNECTING = "reaching for the socket"
    HANDSHAKING = "waiting for WELCOME or SYNC"
    READY = "the session is open"
    BACKOFF = "waiting for the next attempt"


# spec 10
TRANSITIONS: dict[State, frozenset[State]] = {
    State.DISCONNECTED: frozenset({State.CONNECTING}),
    State.CONNECTING: frozenset({State.HANDSHAKING, State.BACKOFF, State.DISCONNECTED}),
    State.HANDSHAKING: frozenset({State.READY, State.BACKOFF, State.DISCONNECTED}),
    State.READY: frozenset({State.BACKOFF, State.DISCONNECTED}),
    State.BACKOFF: frozenset({State.CONNECTING, State.DISCONNECTED}),
}


class Lifecycle:
    """The connection state of one client, and the number of reconnection attempts since the client was last ready."""

    __slots__ = ("_chance", "attempts", "backoff", "state")

    def __init__(self, backoff: Backoff, chance: random.Random) -> None:
        self.backoff = backoff
        self._chance = chance
        self.state = State.DISCONNECTED
        # Attempts since the client was last ready. The first connection of a client does not count.
        self.attempts = 0

    def to(self, state: State) -> None:
        """Change the connection state to `state`. `TRANSITIONS` must allow this change from the current state."""
        assert state in TRANSITIONS[self.state], f"{state.name} does not follow {self.state.name}"
        self.state = state
        if state is State.READY:
            self.attempts = 0

    def lost(self) -> float | None:
        """Note that the connection was lost. Return the seconds to wait before the next attempt.

        The state becomes BACKOFF. If no attempt is left, the state becomes DISCONNECTED, and the result is `None`.
        """
        if self.backoff.is_over(self.attempts):
            self.to(State.DISCONNECTED)
            return None
        wait = self.backoff.wait_seconds(self.attempts, self._chance.random)
        self.attempts += 1
        self.to(State.BACKOFF)
        return wait


class Pause:
    """Computes how long the client stops sending after a BUSY (the hub's request to slow down).

    The pause gets longer with each further BUSY.
    """

    __slots__ = ("_chance", "_count", "_until")

    MULTIPLIER = 2
    JITTER = 0.15
    # Sends to recipients that are not behind wait too, because BUSY does not name the recipient.
    SECONDS_MAX = 2.0

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0
        self._until = float("-inf")

    def busy(self, now: float, retry_after_ms: float) -> float:
        """Note a BUSY of the hub, and return the time at which the pause ends.

        `retry_after_ms` is the shortest pause that the hub asks for, so jitter only makes the pause longer.
        """
        self._count = 0 if now > self._until + _CALM_SECONDS else min(self._count + 1, _DOUBLINGS_MAX)
        asked = retry_after_ms / 1000 * self.MULTIPLIER**self._count * (1 + self.JITTER * self._chance.random())
        self._until = max(self._until, now + min(asked, self.SECONDS_MAX))
        return self._until


class Beat(Enum):
    """Result of `Silence.beat`, the regular check of a silent hub: do nothing, send a PING, or close the connection."""

    FINE = "nothing"
    ASK = "a PING: the other side was silent for longer than it should be"
    DEAD = "hanging up: it was silent for two"


class Silence:
    """Counts for how many beats (regular checks) the hub has been silent.

    It counts beats instead of time. So a client that was suspended for a while does not think that the hub was silent.
    """

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent = 0

    @staticmethod
    def seconds(heartbeat_ms: float) -> float:
        """Return the seconds between two beats (regular checks if the hub is silent).

        `heartbeat_ms` is the heartbeat interval.
        """
        return heartbeat_ms / 1000 / _BEATS

    def heard(self) -> None:
        """Reset the count of silent beats, because bytes came from the hub."""
        self._silent = 0

    def beat(self) -> Beat:
        """Count one more silent beat. Return the action that the client must take now."""
        self._silent += 1
        if self._silent >= 2 * _BEATS:
            return Beat.DEAD
        return Beat.ASK if self._silent == _BEATS_ASK else Beat.FINE


class Accepted(Struct, frozen=True):
    """Result of `RelayClient.send`: the hub has stored the message on disk."""

    id: str
    """Id that the client gave to the message. A second send with this id creates no duplicate."""
    message_id: str
    """Id that the hub gave to the message. Receipts use this id."""


class Answer(Struct, frozen=True):
    """Result of `RelayClient.request`: the answer of the message's recipient."""

    sender: str
    response: Any
    data: Any


class Expected(Enum):
    """The answer that completes a request: the hub's ACK, the recipient's ACK, or any frame with the request's id."""

    ACCEPTANCE = "the hub's ACK"
    ANSWER = "the recipient's ACK"
    REPLY = "any frame under its id"


class Request(Struct, frozen=True):
    """One request to the hub that waits for its answer: its id, its encoded frame, and the callback."""

    id: str
    frame: bytes
    expected: Expected
    resolve: Callable[[Accepted | Answer | Payload | RelayError], None]
    """Callback that is called once, with the result of the request."""


class Requests:
    """Queue of the requests that wait for an answer. They are sent in order, and sent again on each new connection."""

    __slots__ = ("_unwritten", "_waiting")

    def __init__(self) -> None:
        # All requests, oldest first; and the requests that were not written to this connection yet.
        self._waiting: dict[str, Request] = {}
        self._unwritten: deque[Request] = deque()

    def __contains__(self, wire_id: str) -> bool:
        return wire_id in self._waiting

    def add(self, request: Request) -> None:
        """Add a request. It is sent after all earlier requests."""
        self._waiting[request.id] = request
        self._unwritten.append(request)

    def drop(self, request: Request) -> None:
        """Remove a request from the queue, because no caller waits for its answer any more."""
        if self._waiting.get(request.id) is request:
            del self._waiting[request.id]

    def rewind(self) -> None:
        """Mark all waiting requests as not sent, so that the client sends them again on the new connection."""
        self._unwritten = deque(self._waiting.values())

    def next_frame(self) -> bytes | None:
        """Return the next request that was not sent, as an encoded frame, and mark the request as sent.

        Return `None` if all requests are sent.
        """
        while self._unwritten:
            request = self._unwritten.popleft()
            if self._waiting.get(request.id) is request:
                return request.frame
        return None

    def receive(self, envelope: Envelope) -> bool:
        """Find the request that the frame `envelope` answers, and call the request's callback.

        Return false if the frame answers no waiting request.
        """
        payload = envelope.payload
        match envelope.type:
            case "ACK":
                answer = Answer(envelope.sender or "", payload.get("response"), payload.get("responseData"))
                if self._resolve(payload.get("correlationId"), Expected.ANSWER, answer):
                    return True
                wire_id = payload.get("ack_id")
                accepted = Accepted(str(wire_id), str(payload.get("message_id", "")))
                return self._resolve(wire_id, Expected.ACCEPTANCE, accepted)
            case "NACK":
                return self._resolve(payload.get("ack_id"), None, refusal_of(payload))
            case "ERROR":
                return self._resolve(payload.get("correlationId") or envelope.id, None, refusal_of(payload))
            case _:
                return self._resolve(envelope.id, Expected.REPLY, payload)

    def fail(self, error: RelayError) -> None:
        """Complete all waiting requests with `error`: each caller gets this exception."""
        waiting, self._waiting = self._waiting, {}
        self._unwritten.clear()
        for request in waiting.values():
            request.resolve(error)

    def _resolve(
        self, wire_id: object, expected: Expected | None, outcome: Accepted | Answer | Payload | RelayError
    ) -> bool:
        request = self._waiting.get(wire_id) if isinstance(wire_id, str) else None
        if request is None or expected not in (None, request.expected):
            return False
        del self._waiting[request.id]
        request.resolve(outcome)
        return True


def refusal_of(payload: Payload) -> RelayRefused:
    """Return the exception for the payload of a NACK or an ERROR."""
    return RelayRefused(str(payload.get("code")), str(payload.get("message", "")))


class Novelty(Enum):
    """Result of `Memory.receive`: the delivery is new, known but not yet acknowledged, or already acknowledged."""

    NEW = "give it to the application"
    HELD = "nothing: the application has it, or will have it next"
    DONE = "acknowledge it again: the first time was lost"


class Memory:
    """State that a client remembers between connections: session, last sequence numbers, and received deliveries."""

    __slots__ = (
        "_answers",
        "_done",
        "_held",
        "_known_max",
        "_positions",
        "_positions_max",
        "resume_token",
        "session_id",
    )

    def __init__(self, known_max: int = KNOWN_MAX, positions_max: int = POSITIONS_MAX) -> None:
        self.session_id: str | None = None
        self.resume_token: str | None = None
        # The last sequence of each stream, by topic and peer.
        self._positions: dict[tuple[str, str], int] = {}
        self._positions_max = positions_max
        # Deliveries that are not settled; the hub sends at most `max_inflight` of them.
        self._held: set[str] = set()
        # Settled deliveries, oldest first.
        self._done: dict[str, None] = {}
        self._known_max = known_max
        # Answers to the last synchronous deliveries, oldest first.
        self._answers: dict[str, Payload] = {}

    def open(self, session_id: str, resume_token: str | None) -> None:
        """Remember a session that was opened or resumed.

        If the session is new, forget the sequence numbers of the old session.
        """
        if session_id != self.session_id:
            self._positions.clear()
        self.session_id, self.resume_token = session_id, resume_token

    def forget_session(self) -> None:
        """Forget a session that cannot be resumed. Received deliveries stay known, because they may come again."""
        self.session_id = self.resume_token = None
        self._positions.clear()

    def streams(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the last sequence number of each stream, by topic and sender, in the form that RESUME needs."""
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, peer), seq in self._positions.items():
            topics.setdefault(topic, {"peers": {}})["peers"][peer] = seq
        return topics

    def receive(self, delivery_id: str, topic: str, peer: str, seq: int) -> Novelty:
        """Remember a received delivery. Return its state before this call: new, known, or already acknowledged.

        `seq` is the delivery's number in the stream of the topic `topic` from the sender `peer`.
        """
        if delivery_id in self._done:
            return Novelty.DONE
        if delivery_id in self._held:
            return Novelty.HELD
        self._held.add(delivery_id)
        stream = (topic, peer)
        # A delivery that was declined before comes again with a sequence below the position.
        self._positions[stream] = max(seq, self._positions.get(stream, 0))
        if len(self._positions) > self._positions_max:
            # A stream without a position continues after its last acknowledgement.
            del self._positions[next(iter(self._positions))]
        return Novelty.NEW

    def mark_acked(self, delivery_id: str, answer: Payload | None = None) -> bool:
        """Mark a delivery as acknowledged, and remember the answer to its sender, if any.

        Return false if the delivery was not received, or was acknowledged before.
        """
        if delivery_id not in self._held:
            return False
        if answer is not None:
            self._answers[delivery_id] = answer
            if len(self._answers) > ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
        self._held.discard(delivery_id)
        self._done[delivery_id] = None
        if len(self._done) > self._known_max:
            # Drop half at a time: a dictionary that loses its first key again and again slows down.
            for oldest in list(islice(self._done, len(self._done) // 2)):
                del self._done[oldest]
        return True

    def answer(self, delivery_id: str) -> Payload | None:
        """Return the answer that was sent with the acknowledgement of a delivery.

        Return `None` if there was no answer, or if the client has forgotten the answer.
        """
        return self._answers.get(delivery_id)

    def release(self, delivery_id: str) -> bool:
        """Forget a delivery that the application declined, because the hub may send it again.

        Return false if the delivery was not received.
        """
        if delivery_id not in self._held:
            return False
        self._held.discard(delivery_id)
        return True
