"""Synchronous sends: a sender that waits for its recipient's answer.

A SEND with `payload_meta.sync` names a `correlationId`. The recipient's ACK that carries it goes back to the sender
with its `response` and `responseData`; an ACK without it acknowledges the delivery and completes nothing. If no such
ACK comes within `timeoutMs`, the sender gets an ERROR. Who waits is known only here and only while both are connected:
after a restart of the hub the sender's own timeout speaks.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay.codec import EVERYBODY, Envelope, ErrorCode

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.server import RelayConnection, RelayServer

TIMEOUT_MS = 30_000
TIMEOUT_MS_MAX = 24 * 3600 * 1000


class Pending:
    """One sender that waits."""

    __slots__ = ("correlation", "recipient", "sender", "timeout_ms", "timer")

    def __init__(self, correlation: str, sender: "RelayConnection", recipient: str, timeout_ms: int) -> None:
        self.correlation = correlation
        self.sender = sender
        # Who may answer.
        self.recipient = recipient
        self.timeout_ms = timeout_ms
        # Runs from when the message is accepted.
        self.timer: asyncio.TimerHandle | None = None


class Syncs:
    """Everybody who waits, by correlation id."""

    def __init__(self, server: "RelayServer") -> None:
        self._server = server
        self._pending: dict[str, Pending] = {}

    def prepare(self, envelope: Envelope, sender: "RelayConnection") -> Pending | Refusal | None:
        """What a SEND asks to wait for, if it does."""
        sync = (envelope.payload_meta or {}).get("sync")
        if not isinstance(sync, dict):
            return None
        correlation, timeout_ms = sync.get("correlationId"), sync.get("timeoutMs", TIMEOUT_MS)
        if not isinstance(correlation, str) or not correlation:
            if sync.get("blocking") is not True:
                return None
            return Refusal(Code.INVALID_MESSAGE, "Missing sync correlationId for blocking SEND")
        if not isinstance(timeout_ms, int) or not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            return Refusal(Code.INVALID_MESSAGE, f"sync.timeoutMs must be between 1 and {TIMEOUT_MS_MAX}")
        if not envelope.to or envelope.to == EVERYBODY or envelope.to.startswith("#"):
            return Refusal(Code.INVALID_MESSAGE, "a synchronous SEND goes to one agent")
        if correlation in self._pending:
            return Refusal(Code.WIRE_ID_REUSED, f"Duplicate correlationId: {correlation}")
        pending = Pending(correlation, sender, envelope.to.removeprefix("@"), timeout_ms)
        self._pending[correlation] = pending
        return pending

    def start(self, pending: Pending) -> None:
        """The message is durable: from now on the clock runs."""
        if pending.correlation in self._pending:
            pending.timer = self._server.loop.call_later(pending.timeout_ms / 1000, self._expire, pending)

    def drop(self, pending: Pending) -> None:
        """Nobody waits any more."""
        if pending.timer is not None:
            pending.timer.cancel()
        self._pending.pop(pending.correlation, None)

    def answer(self, correlation: str, recipient: "RelayConnection", envelope: Envelope) -> None:
        """A recipient's ACK: to whoever waits for it, if it is this recipient's to give."""
        pending = self._pending.get(correlation)
        if pending is None or pending.recipient != recipient.name:
            return
        self.drop(pending)
        payload: dict[str, Any] = envelope.payload
        pending.sender.send("ACK", payload, sender=recipient.name, to=pending.sender.name)

    def forget(self, sender: "RelayConnection") -> None:
        """A sender is gone."""
        for pending in [pending for pending in self._pending.values() if pending.sender is sender]:
            self.drop(pending)

    def _expire(self, pending: Pending) -> None:
        self.drop(pending)
        payload = {
            "code": ErrorCode.TIMEOUT.value,
            "message": f"ACK timeout after {pending.timeout_ms}ms",
            "fatal": False,
            "correlationId": pending.correlation,
        }
        pending.sender.send("ERROR", payload)
