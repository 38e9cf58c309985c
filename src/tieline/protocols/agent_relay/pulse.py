"""The pulse of a client: measures for how long a client is silent, so that the hub sends a PING or disconnects it.

Any byte from the client is a sign of life. After one silent heartbeat the hub sends a PING, and after two the client
counts as dead. The silence does not count while the hub itself has paused reading.
"""

from enum import Enum


class Verdict(Enum):
    """Result of `Pulse.check`: the client is alive, silent or dead.

    The value of each entry names the action to take.
    """

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
        """Note that the client sent something at the time `now`."""
        self._heard_at = now
        self._asked = False

    def check(self, now: float) -> Verdict:
        """Return the state of the client: alive, silent or dead.

        `SILENT` is returned once, until the client sends something again.
        """
        silent_seconds = now - self._heard_at
        # spec 7: dead after 2 * heartbeat_ms.
        if silent_seconds >= 2 * self._heartbeat_seconds:
            return Verdict.DEAD
        if silent_seconds >= self._heartbeat_seconds and not self._asked:
            self._asked = True
            return Verdict.SILENT
        return Verdict.ALIVE
