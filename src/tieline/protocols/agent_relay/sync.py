"""Synchronous sends: a sender that waits for its recipient's answer.

A SEND with `payload_meta.sync` names a `correlationId`. The recipient's ACK that carries it goes back to the sender
with its `response` and `responseData`; an ACK without it acknowledges the delivery and completes nothing. If no such
ACK comes within `timeoutMs`, the sender gets an ERROR; at once, if the message is held. A recipient on another
protocol has no ACK: there the first message that names this one as what it answers is the answer, and comes as a
message too. Who waits is known only here and only while both are connected: after a restart of the hub the sender's
own timeout speaks.
"""

import asyncio
from typing import TYPE_CHECKING

from tieline.contract.identifiers import MessageId
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind
from tieline.protocols.agent_relay.codec import ID_CHARACTERS_MAX, Envelope, ErrorCode

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection
    from tieline.protocols.agent_relay.server import RelayServer

TIMEOUT_MS = 30_000
TIMEOUT_MS_MAX = 24 * 3600 * 1000
WAITS_MAX = 1024
"""Answers that one connection may wait for: as many as it can have deliveries on the way."""


class Pending:
    """One sender that waits."""

    __slots__ = ("correlation", "message_id", "recipient", "sender", "timeout_ms", "timer")

    def __init__(self, correlation: str, sender: "RelayConnection", recipient: str, timeout_ms: int) -> None:
        self.correlation = correlation
        self.sender = sender
        # Who may answer.
        self.recipient = recipient
        self.timeout_ms = timeout_ms
        # What a reply names; known when the message is accepted.
        self.message_id = MessageId("")
        # Runs from then on.
        self.timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What an answer is known by: who gives it, and its id. Agents who do not know each other may use the same."""
        return self.recipient, self.correlation


class Syncs:
    """Everybody who waits."""

    def __init__(self, server: "RelayServer") -> None:
        self._server = server
        self._pending: dict[tuple[str, str], Pending] = {}
        self._of_sender: dict[RelayConnection, set[Pending]] = {}
        self._of_message: dict[MessageId, Pending] = {}

    def prepare(self, envelope: Envelope, target: Target, sender: "RelayConnection") -> Pending | Refusal | None:
        """What a SEND asks to wait for, if it does."""
        sync = (envelope.payload_meta or {}).get("sync")
        if not isinstance(sync, dict):
            return None
        correlation, timeout_ms = sync.get("correlationId"), sync.get("timeoutMs", TIMEOUT_MS)
        if not isinstance(correlation, str) or not correlation:
            if sync.get("blocking") is not True:
                return None
            return Refusal(Code.INVALID_MESSAGE, "Missing sync correlationId for blocking SEND")
        if len(correlation) > ID_CHARACTERS_MAX:
            return Refusal(Code.INVALID_MESSAGE, f"a correlationId has at most {ID_CHARACTERS_MAX} characters")
        if type(timeout_ms) is not int or not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            return Refusal(Code.INVALID_MESSAGE, f"sync.timeoutMs must be between 1 and {TIMEOUT_MS_MAX}")
        if target.kind is not TargetKind.MEMBER:
            return Refusal(Code.INVALID_MESSAGE, "a synchronous SEND goes to one agent")
        pending = Pending(correlation, sender, target.name, timeout_ms)
        if pending.key in self._pending:
            return Refusal(Code.WIRE_ID_REUSED, f"Duplicate correlationId: {correlation}")
        if len(self._of_sender.get(sender, ())) >= WAITS_MAX:
            return Refusal(Code.BACKLOG_FULL, f"{WAITS_MAX} answers are waited for already")
        self._pending[pending.key] = pending
        self._of_sender.setdefault(sender, set()).add(pending)
        return pending

    def start(self, pending: Pending, message_id: MessageId) -> None:
        """The message is durable: from now on the clock runs."""
        if self._pending.get(pending.key) is pending:
            pending.message_id = message_id
            self._of_message[message_id] = pending
            pending.timer = self._server.loop.call_later(pending.timeout_ms / 1000, self._expire, pending)

    def drop(self, pending: Pending) -> None:
        """Nobody waits any more."""
        if pending.timer is not None:
            pending.timer.cancel()
        if self._pending.get(pending.key) is pending:
            del self._pending[pending.key]
            self._of_message.pop(pending.message_id, None)
            waits = self._of_sender[pending.sender]
            waits.remove(pending)
            if not waits:
                del self._of_sender[pending.sender]

    def give_up(self, pending: Pending, why: str) -> None:
        """The message is accepted and held: its sender is not left waiting for an answer that may take hours."""
        self.drop(pending)
        self._fail(pending, ErrorCode.HELD, f"{why}; it is kept and comes later")

    def answer(self, correlation: str, recipient: "RelayConnection", envelope: Envelope) -> None:
        """A recipient's ACK: to whoever waits for it."""
        pending = self._pending.get((recipient.name, correlation))
        if pending is None:
            return
        self.drop(pending)
        sender = pending.sender
        if not sender.send("ACK", envelope.payload, sender=recipient.name, to=sender.name):
            self._fail(pending, ErrorCode.TOO_LARGE, "the answer does not fit a frame")

    def replied(self, reply: Message, sender: "RelayConnection") -> None:
        """A message of another protocol for somebody who may wait for it."""
        said = reply.content
        pending = self._of_message.get(said.reply_to) if said.reply_to is not None else None
        if pending is None or pending.sender is not sender or pending.recipient != reply.sender or not reply.verified:
            return
        self.drop(pending)
        answer = {"body": said.body, "data": said.data or {}}
        payload = {"correlationId": pending.correlation, "response": True, "responseData": answer}
        if not sender.send("ACK", payload, sender=reply.sender, to=sender.name):
            self._fail(pending, ErrorCode.TOO_LARGE, "the answer does not fit a frame")

    def forget(self, sender: "RelayConnection") -> None:
        """A sender is gone."""
        for pending in list(self._of_sender.get(sender, ())):
            self.drop(pending)

    def _expire(self, pending: Pending) -> None:
        self.drop(pending)
        self._fail(pending, ErrorCode.TIMEOUT, f"ACK timeout after {pending.timeout_ms}ms")

    def _fail(self, pending: Pending, code: ErrorCode, text: str) -> None:
        payload = {"code": code.value, "message": text, "fatal": False, "correlationId": pending.correlation}
        pending.sender.send("ERROR", payload)
