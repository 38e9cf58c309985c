"""Synchronous sends: lets a sender wait for the answer of the recipient, and finds the sender when the answer comes.

A SEND with `payload_meta.sync` names a `correlationId`. The recipient's ACK with that `correlationId` goes back to the
sender, with the ACK's `response` and `responseData`. An ACK without the `correlationId` acknowledges the delivery and
does not end the wait. If no matching ACK comes within `timeoutMs`, the sender gets an ERROR. If the message is held,
the sender gets the ERROR at once. A recipient on another protocol cannot send an ACK. Its first message that replies to
the SEND is then the answer, and this message is also delivered as usual. The waiting senders are kept only in memory,
and only while they are connected. After a restart of the hub, the sender's own timeout ends the wait.
"""

import asyncio
from typing import TYPE_CHECKING

from tieline.contract.identifiers import MessageId
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind
from tieline.protocols.agent_relay.codec import ID_CHARACTERS_MAX, Envelope
from tieline.protocols.agent_relay.error_code import ErrorCode

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.connection import RelayConnection
    from tieline.protocols.agent_relay.server import RelayServer

TIMEOUT_MS = 30_000
TIMEOUT_MS_MAX = 24 * 3600 * 1000
WAITS_MAX = 1024
"""Largest number of answers that one connection may wait for at the same time."""


class Pending:
    """Record of one sender that waits for an answer to its SEND. Recipient and correlation id identify the record."""

    __slots__ = ("correlation", "message_id", "recipient", "sender", "speaker", "timeout_ms", "timer")

    def __init__(self, correlation: str, sender: "RelayConnection", recipient: str, timeout_ms: int) -> None:
        self.correlation = correlation
        self.sender = sender
        # The member that waits: a client without HELLO has its name for one request only.
        self.speaker = sender.name
        # The only member whose answer counts.
        self.recipient = recipient
        self.timeout_ms = timeout_ms
        # The id that a reply refers to; known when the message is accepted.
        self.message_id = MessageId("")
        # The timer starts when the message is accepted.
        self.timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Key of this wait: the recipient and the correlation id.

        The id alone is not enough, because ids may repeat.
        """
        return self.recipient, self.correlation


class Syncs:
    """Registry of all senders that wait for an answer to their SEND."""

    def __init__(self, server: "RelayServer") -> None:
        self._server = server
        self._pending: dict[tuple[str, str], Pending] = {}
        self._of_sender: dict[RelayConnection, set[Pending]] = {}
        self._of_message: dict[MessageId, Pending] = {}

    def prepare(self, envelope: Envelope, target: Target, sender: "RelayConnection") -> Pending | Refusal | None:
        """Register the wait of a sender whose SEND asks to wait for an answer, and return the wait.

        Return `None` if the SEND does not ask to wait, and a refusal if it asks in an invalid form.
        """
        sync = (envelope.payload_meta or {}).get("sync")
        if not isinstance(sync, dict):
            return None
        # spec 5, gap 9: correlationId, timeoutMs and blocking are named there, and not defined.
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
        """Start the timeout of a wait, because the hub has accepted the message. `message_id` is the message's id."""
        if self._pending.get(pending.key) is pending:
            pending.message_id = message_id
            self._of_message[message_id] = pending
            pending.timer = self._server.loop.call_later(pending.timeout_ms / 1000, self._expire, pending)

    def drop(self, pending: Pending) -> None:
        """Remove a wait and cancel its timeout. Nothing is sent to the sender."""
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
        """End a wait and send the sender an ERROR, because the message is held, and an answer may take hours."""
        self.drop(pending)
        self._fail(pending, ErrorCode.HELD, f"{why}; it is kept and comes later")

    def answer(self, correlation: str, recipient: "RelayConnection", envelope: Envelope) -> None:
        """Pass a recipient's ACK (`envelope`) on to the sender that waits for it. Do nothing if no sender waits.

        `correlation` is the correlation id in the ACK.
        """
        # spec 5: the ACK with the correlationId is the answer.
        pending = self._pending.get((recipient.name, correlation))
        if pending is None:
            return
        self.drop(pending)
        sender = pending.sender
        if not sender.send("ACK", envelope.payload, sender=recipient.name, to=pending.speaker):
            self._fail(pending, ErrorCode.TOO_LARGE, "the answer does not fit a frame")

    def replied(self, reply: Message, recipient: "RelayConnection") -> None:
        """Check if a message from another protocol is the answer for which its recipient waits.

        The message is the answer if it replies to the SEND for which the recipient waits. If so, send it to the
        recipient as an ACK too, and end the wait. Other protocols have no ACK, so an ordinary reply counts as the
        answer.
        """
        said = reply.content
        pending = self._of_message.get(said.reply_to) if said.reply_to is not None else None
        if pending is None or pending.speaker != recipient.name:
            return
        if pending.recipient != reply.sender or not reply.verified:
            return
        self.drop(pending)
        answer = {"body": said.body, "data": said.data or {}}
        payload = {"correlationId": pending.correlation, "response": True, "responseData": answer}
        if not pending.sender.send("ACK", payload, sender=reply.sender, to=pending.speaker):
            self._fail(pending, ErrorCode.TOO_LARGE, "the answer does not fit a frame")

    def awaits(self, sender: "RelayConnection") -> bool:
        """True if the client of the connection `sender` waits for an answer to a SEND."""
        return sender in self._of_sender

    def forget(self, sender: "RelayConnection") -> None:
        """Remove all waits of a sender whose connection is gone."""
        for pending in list(self._of_sender.get(sender, ())):
            self.drop(pending)

    def _expire(self, pending: Pending) -> None:
        self.drop(pending)
        self._fail(pending, ErrorCode.TIMEOUT, f"ACK timeout after {pending.timeout_ms}ms")

    def _fail(self, pending: Pending, code: ErrorCode, text: str) -> None:
        payload = {"code": code.value, "message": text, "fatal": False, "correlationId": pending.correlation}
        pending.sender.send("ERROR", payload)
