"""The life of a client, without its I/O: its states, how long it waits, what it asked, and what it remembers.

Above: `client`, which has the socket. Below: `codec`. It refuses to know sockets, clocks and tasks: whoever drives it
says what happened and what time it is, and chance is a parameter, so that a test can give it exact numbers.

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
"""Ids of settled deliveries that are remembered, the last half of them at least: more acknowledgements than a hub has
not yet committed when it is killed."""

ANSWERS_MAX = 64
"""Answers to synchronous messages that are remembered: one that was lost with its connection is given again."""

POSITIONS_MAX = 10_000
"""Streams whose position is remembered: as many as a hub keeps for one recipient."""

_CALM_SECONDS = 2.0
"""A BUSY this long after the last pause is a new one. A hub says it once a second at most."""

_DOUBLINGS_MAX = 16  # beyond it the pause is at its most anyway

_BEATS = 4
"""How often in a heartbeat a client listens whether the hub is there."""

_BEATS_ASK = 6
"""Silent beats after which the hub is asked. It asks by itself after a heartbeat, unless it hears us meanwhile."""


Payload = dict[str, Any]


class RelayError(Exception):
    """The root of what can go wrong for a client."""


class RelayRefused(RelayError):
    """The hub said no to one request; `code` is one of the protocol's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class RelayEnded(RelayError):
    """There is no connection, and there will be none."""


class RelayFatal(RelayEnded, RelayRefused):
    """The hub ended the session for good, with a code."""


class RelayUnreachable(RelayEnded):
    """No hub could be reached, however often it was tried."""


class RelayClosed(RelayEnded):
    """The client was closed."""


class State(Enum):
    """Where a client stands."""

    DISCONNECTED = "not begun, closed, or given up"
    CONNECTING = "reaching for the socket"
    HANDSHAKING = "waiting for WELCOME or SYNC"
    READY = "the session is open"
    BACKOFF = "waiting for the next attempt"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.DISCONNECTED: frozenset({State.CONNECTING}),
    State.CONNECTING: frozenset({State.HANDSHAKING, State.BACKOFF, State.DISCONNECTED}),
    State.HANDSHAKING: frozenset({State.READY, State.BACKOFF, State.DISCONNECTED}),
    State.READY: frozenset({State.BACKOFF, State.DISCONNECTED}),
    State.BACKOFF: frozenset({State.CONNECTING, State.DISCONNECTED}),
}


class Lifecycle:
    """The states of one client, and the attempts since it was last ready."""

    __slots__ = ("_chance", "attempts", "backoff", "state")

    def __init__(self, backoff: Backoff, chance: random.Random) -> None:
        self.backoff = backoff
        self._chance = chance
        self.state = State.DISCONNECTED
        # Attempts begun since the last time it was ready; the first connection of a client is none.
        self.attempts = 0

    def to(self, state: State) -> None:
        """Go on to a state that may follow this one."""
        assert state in TRANSITIONS[self.state], f"{state.name} does not follow {self.state.name}"
        self.state = state
        if state is State.READY:
            self.attempts = 0

    def lost(self) -> float | None:
        """The connection failed or ended: the seconds to wait, or `None` when all attempts are used up."""
        if self.backoff.is_over(self.attempts):
            self.to(State.DISCONNECTED)
            return None
        wait = self.backoff.wait_seconds(self.attempts, self._chance.random)
        self.attempts += 1
        self.to(State.BACKOFF)
        return wait


class Pause:
    """How long BUSY keeps a client from sending: what the hub asked for, doubled while it goes on asking."""

    __slots__ = ("_chance", "_count", "_until")

    MULTIPLIER = 2
    JITTER = 0.15
    # Whoever is not behind waits too, because BUSY does not say which recipient is.
    SECONDS_MAX = 2.0

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0
        self._until = float("-inf")

    def busy(self, now: float, retry_after_ms: float) -> float:
        """BUSY came: the time until which nothing is sent. Jitter only adds, since the hub said how long at least."""
        self._count = 0 if now > self._until + _CALM_SECONDS else min(self._count + 1, _DOUBLINGS_MAX)
        asked = retry_after_ms / 1000 * self.MULTIPLIER**self._count * (1 + self.JITTER * self._chance.random())
        self._until = max(self._until, now + min(asked, self.SECONDS_MAX))
        return self._until


class Beat(Enum):
    """What a beat of silence asks for."""

    FINE = "nothing"
    ASK = "a PING: the other side was silent for longer than it should be"
    DEAD = "hanging up: it was silent for two"


class Silence:
    """How long the hub has said nothing, in beats and not in time: a process that stood still blames nobody."""

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent = 0

    @staticmethod
    def seconds(heartbeat_ms: float) -> float:
        """The time from beat to beat."""
        return heartbeat_ms / 1000 / _BEATS

    def heard(self) -> None:
        """Something came."""
        self._silent = 0

    def beat(self) -> Beat:
        """The next beat."""
        self._silent += 1
        if self._silent >= 2 * _BEATS:
            return Beat.DEAD
        return Beat.ASK if self._silent == _BEATS_ASK else Beat.FINE


class Accepted(Struct, frozen=True):
    """A message that is on the hub's disk."""

    id: str
    """Its id on this wire; sending again under it says nothing twice."""
    message_id: str
    """Its id in the hub, for receipts."""


class Answer(Struct, frozen=True):
    """What the recipient of a request said."""

    sender: str
    response: Any
    data: Any


class Expected(Enum):
    """What ends the waiting of a request."""

    ACCEPTANCE = "the hub's ACK"
    ANSWER = "the recipient's ACK"
    REPLY = "any frame under its id"


class Request(Struct, frozen=True):
    """Something asked of the hub."""

    id: str
    frame: bytes
    expected: Expected
    settle: Callable[[Accepted | Answer | Payload | RelayError], None]
    """Hears how it went, once."""


class Requests:
    """What was asked of the hub and has no answer yet: written in order, and again on each new connection."""

    __slots__ = ("_unwritten", "_waiting")

    def __init__(self) -> None:
        # All of them, oldest first, and those that this connection did not see.
        self._waiting: dict[str, Request] = {}
        self._unwritten: deque[Request] = deque()

    def __contains__(self, wire_id: str) -> bool:
        return wire_id in self._waiting

    def add(self, request: Request) -> None:
        """Ask."""
        self._waiting[request.id] = request
        self._unwritten.append(request)

    def drop(self, request: Request) -> None:
        """Nobody waits for it any more."""
        if self._waiting.get(request.id) is request:
            del self._waiting[request.id]

    def rewind(self) -> None:
        """A new connection has seen none of them."""
        self._unwritten = deque(self._waiting.values())

    def next_frame(self) -> bytes | None:
        """What is to be written next."""
        while self._unwritten:
            request = self._unwritten.popleft()
            if self._waiting.get(request.id) is request:
                return request.frame
        return None

    def receive(self, envelope: Envelope) -> bool:
        """Look whether a frame answers one of them; says whether it does."""
        payload = envelope.payload
        match envelope.type:
            case "ACK":
                answer = Answer(envelope.sender or "", payload.get("response"), payload.get("responseData"))
                if self._settle(payload.get("correlationId"), Expected.ANSWER, answer):
                    return True
                wire_id = payload.get("ack_id")
                accepted = Accepted(str(wire_id), str(payload.get("message_id", "")))
                return self._settle(wire_id, Expected.ACCEPTANCE, accepted)
            case "NACK":
                return self._settle(payload.get("ack_id"), None, refusal_of(payload))
            case "ERROR":
                return self._settle(payload.get("correlationId") or envelope.id, None, refusal_of(payload))
            case _:
                return self._settle(envelope.id, Expected.REPLY, payload)

    def fail(self, error: RelayError) -> None:
        """There will be no answers."""
        waiting, self._waiting = self._waiting, {}
        self._unwritten.clear()
        for request in waiting.values():
            request.settle(error)

    def _settle(
        self, wire_id: object, expected: Expected | None, outcome: Accepted | Answer | Payload | RelayError
    ) -> bool:
        request = self._waiting.get(wire_id) if isinstance(wire_id, str) else None
        if request is None or expected not in (None, request.expected):
            return False
        del self._waiting[request.id]
        request.settle(outcome)
        return True


def refusal_of(payload: Payload) -> RelayRefused:
    """What a NACK or an ERROR says."""
    return RelayRefused(str(payload.get("code")), str(payload.get("message", "")))


class Novelty(Enum):
    """Whether a delivery came before, and what that asks for."""

    NEW = "give it to the application"
    HELD = "nothing: the application has it, or will have it next"
    DONE = "acknowledge it again: the first time was lost"


class Memory:
    """What a client knows of its session: how to take it up, how far it got, and which deliveries it had."""

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
        # Deliveries that are not settled; the hub gives no more of them than `max_inflight`.
        self._held: set[str] = set()
        # Settled ones, oldest first.
        self._done: dict[str, None] = {}
        self._known_max = known_max
        # What the last synchronous ones were answered, oldest first.
        self._answers: dict[str, Payload] = {}

    def open(self, session_id: str, resume_token: str | None) -> None:
        """A session was opened or taken up. Another session than before knows nothing of our positions."""
        if session_id != self.session_id:
            self._positions.clear()
        self.session_id, self.resume_token = session_id, resume_token

    def forget_session(self) -> None:
        """The session cannot be taken up. What was received stays known, because it may come again in the next."""
        self.session_id = self.resume_token = None
        self._positions.clear()

    def streams(self) -> dict[str, dict[str, dict[str, int]]]:
        """Positions in the exact form of RESUME."""
        topics: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, peer), seq in self._positions.items():
            topics.setdefault(topic, {"peers": {}})["peers"][peer] = seq
        return topics

    def receive(self, delivery_id: str, topic: str, peer: str, seq: int) -> Novelty:
        """Judge a delivery, and note it."""
        if delivery_id in self._done:
            return Novelty.DONE
        if delivery_id in self._held:
            return Novelty.HELD
        self._held.add(delivery_id)
        stream = (topic, peer)
        # What was refused before comes again below the position.
        self._positions[stream] = max(seq, self._positions.get(stream, 0))
        if len(self._positions) > self._positions_max:
            # A stream without a position goes on behind its last acknowledgement.
            del self._positions[next(iter(self._positions))]
        return Novelty.NEW

    def settle(self, delivery_id: str, answer: Payload | None = None) -> bool:
        """The application is done with a delivery, and gave this answer; says whether that is news."""
        if delivery_id not in self._held:
            return False
        if answer is not None:
            self._answers[delivery_id] = answer
            if len(self._answers) > ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
        self._held.discard(delivery_id)
        self._done[delivery_id] = None
        if len(self._done) > self._known_max:
            # Half at a time, because a dictionary that loses its first key again and again slows down.
            for oldest in list(islice(self._done, len(self._done) // 2)):
                del self._done[oldest]
        return True

    def answer(self, delivery_id: str) -> Payload | None:
        """What a settled delivery was answered, if it was and is remembered."""
        return self._answers.get(delivery_id)

    def release(self, delivery_id: str) -> bool:
        """The application does not take a delivery, which may come again; says whether it had it."""
        if delivery_id not in self._held:
            return False
        self._held.discard(delivery_id)
        return True
