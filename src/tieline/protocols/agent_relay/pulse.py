"""The pulse of a client: when it was last heard, when it is asked for a sign of life, when it counts as dead.

Any byte is life. A client is asked once it was silent for a heartbeat, and is dead after two. It is excused while it
is the hub that does not read.
"""

from enum import Enum


class Verdict(Enum):
    """What is to be done about a client."""

    ALIVE = "nothing"
    SILENT = "ask for a sign of life"
    DEAD = "hang up"


class Pulse:
    """One client's."""

    __slots__ = ("_asked", "_heard_at", "_heartbeat_seconds")

    def __init__(self, heartbeat_ms: int, now: float) -> None:
        self._heartbeat_seconds = heartbeat_ms / 1000
        self._heard_at = now
        # Whether it was asked since it was last heard.
        self._asked = False

    def heard(self, now: float) -> None:
        """It gave a sign of life."""
        self._heard_at = now
        self._asked = False

    def check(self, now: float) -> Verdict:
        """Judge it now. Whoever gets `SILENT` asks; that is said once a silence."""
        silent_seconds = now - self._heard_at
        if silent_seconds >= 2 * self._heartbeat_seconds:
            return Verdict.DEAD
        if silent_seconds >= self._heartbeat_seconds and not self._asked:
            self._asked = True
            return Verdict.SILENT
        return Verdict.ALIVE
