"""Synchronous sends: a sender that waits for its recipient's answer.

A SEND with `payload_meta.sync` names a `correlationId`. The recipient's ACK with that `correlationId` goes back to the
sender, with the ACK's `response` and `responseData`. An ACK without the `correlationId` acknowledges the delivery and
completes nothing. If no matching ACK comes within `timeoutMs`, the sender gets an ERROR. If the message is held, the
sender gets the ERROR at once. A recipient on another protocol has no ACK: its first message that replies to the SEND is
the answer, and is delivered as a message too. The waiting senders are known only here, and only while both sides are
connected. After a restart of the hub, the sender's own timeout ends the wait.
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
"""Answers that one connection may wait for: as many as the deliveries that it can have in flight."""


class Pending:
    """One sender that waits for an answer."""

    __slots__ = ("correlation", "message_id", "recipient", "sender", "timeout_ms", "timer")

    def __init__(self, correlation: str, sender: "RelayConnection", recipient: str, timeout_ms: int) -> None:
        self.correlation = correlation
        self.sender = sender
        # The only member whose answer counts.
        self.recipient = recipient
        self.timeout_ms = timeout_ms
        # The id that a reply refers to; known when the message is accepted.
        self.message_id = MessageId("")
        # The timer starts when the message is accepted.
        self.timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Key of the answer: the recipient and the correlation id. Unrelated agents may use the same correlation id."""
        return self.recipient, self.correlation


class Syncs:
    """All senders that wait for an answer."""

    def __init__(self, server: "RelayServer") -> None:
        self._server = server
        self._pending: dict[tuple[str, str], Pending] = {}
        self._of_sender: dict[RelayConnection, set[Pending]] = {}
        self._of_message: dict[MessageId, Pending] = {}

    def prepare(self, envelope: Envelope, target: Target, sender: "RelayConnection") -> Pending | Refusal | None:
        """Register a SEND that asks to wait for an answer; `None` if the SEND does not ask for that."""
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
        """Start the timeout: the message is durable."""
        if self._pending.get(pending.key) is pending:
            pending.message_id = message_id
            self._of_message[message_id] = pending
            pending.timer = self._server.loop.call_later(pending.timeout_ms / 1000, self._expire, pending)

    def drop(self, pending: Pending) -> None:
        """Stop waiting for an answer."""
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
        """Fail the wait: the message is accepted but held, and its answer may take hours."""
        self.drop(pending)
        self._fail(pending, ErrorCode.HELD, f"{why}; it is kept and comes later")

    def answer(self, correlation: str, recipient: "RelayConnection", envelope: Envelope) -> None:
        """Pass a recipient's ACK on to the sender that waits for it."""
        pending = self._pending.get((recipient.name, correlation))
        if pending is None:
            return
        self.drop(pending)
        sender = pending.sender
        if not sender.send("ACK", envelope.payload, sender=recipient.name, to=sender.name):
            self._fail(pending, ErrorCode.TOO_LARGE, "the answer does not fit a frame")

    def replied(self, reply: Message, sender: "RelayConnection") -> None:
        """Send a reply from another protocol as an ACK too, if its recipient waits for this reply."""
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
        """Drop every wait of a sender whose connection is gone."""
        for pending in list(self._of_sender.get(sender, ())):
            self.drop(pending)

    def _expire(self, pending: Pending) -> None:
        self.drop(pending)
        self._fail(pending, ErrorCode.TIMEOUT, f"ACK timeout after {pending.timeout_ms}ms")

    def _fail(self, pending: Pending, code: ErrorCode, text: str) -> None:
        payload = {"code": code.value, "message": text, "fatal": False, "correlationId": pending.correlation}
        pending.sender.send("ERROR", payload)
