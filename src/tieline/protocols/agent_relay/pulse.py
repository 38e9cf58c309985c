"""The pulse of a client: finds clients that are silent for too long, so that they are asked or disconnected.

Any byte is a sign of life. A client is asked after one silent heartbeat, and counts as dead after two. A client is
excused while the hub itself has paused reading.
"""

from enum import Enum


class Verdict(Enum):
    """Result of a check: is the client alive, silent or dead? The value says what to do."""

    ALIVE = "nothing"
    SILENT = "ask for a sign of life"
    DEAD = "hang up"


class Pulse:
    """Measures how long one client has been silent."""

    __slots__ = ("_asked", "_heard_at", "_heartbeat_seconds")

    def __init__(self, heartbeat_ms: int, now: float) -> None:
        self._heartbeat_seconds = heartbeat_ms / 1000
        self._heard_at = now
        # True if the client was asked since its last sign of life.
        self._asked = False

    def heard(self, now: float) -> None:
        """Note a sign of life: the client sent something at this time."""
        self._heard_at = now
        self._asked = False

    def check(self, now: float) -> Verdict:
        """Return the state of the client now. `SILENT` is returned only once for each silence."""
        silent_seconds = now - self._heard_at
        # spec 7: dead after 2 * heartbeat_ms.
        if silent_seconds >= 2 * self._heartbeat_seconds:
            return Verdict.DEAD
        if silent_seconds >= self._heartbeat_seconds and not self._asked:
            self._asked = True
            return Verdict.SILENT
        return Verdict.ALIVE
