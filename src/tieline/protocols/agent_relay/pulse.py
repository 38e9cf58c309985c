"""The pulse of a client: when it last sent a byte, when it is asked for a sign of life, when it counts as dead.

Any byte is a sign of life. A client is asked after one silent heartbeat, and counts as dead after two. A client is
excused while the hub itself has paused reading.
"""

from enum import Enum


class Verdict(Enum):
    """Action for a client."""

    ALIVE = "nothing"
    SILENT = "ask for a sign of life"
    DEAD = "hang up"


class Pulse:
    """The pulse of one client."""

    __slots__ = ("_asked", "_heard_at", "_heartbeat_seconds")

    def __init__(self, heartbeat_ms: int, now: float) -> None:
        self._heartbeat_seconds = heartbeat_ms / 1000
        self._heard_at = now
        # True if the client was asked since its last sign of life.
        self._asked = False

    def heard(self, now: float) -> None:
        """Note a sign of life."""
        self._heard_at = now
        self._asked = False

    def check(self, now: float) -> Verdict:
        """Judge the client now. On `SILENT` the caller asks for a sign of life; `SILENT` comes once per silence."""
        silent_seconds = now - self._heard_at
        if silent_seconds >= 2 * self._heartbeat_seconds:
            return Verdict.DEAD
        if silent_seconds >= self._heartbeat_seconds and not self._asked:
            self._asked = True
            return Verdict.SILENT
        return Verdict.ALIVE
