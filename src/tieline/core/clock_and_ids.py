"""The clock and new ids, as parameters."""

from typing import Protocol

from tieline.contract.identifiers import MessageId, SessionId


class ClockAndIds(Protocol):
    """Gives the broker the time, new ids and new tokens. The server and the tests have their own versions."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch. Never goes backwards, except by a step that `take_step_ms` reports."""

    def take_step_ms(self) -> int:
        """Step of the clock, forwards or backwards, since the last call. Zero if the clock was not changed."""

    def doubts_time(self) -> bool:
        """True if the time may be wrong. Then nothing may be deleted because of its age."""

    def message_id(self, now_ms: int) -> MessageId:
        """A new id that sorts by time."""

    def session_id(self) -> SessionId:
        """An id that nobody can guess."""

    def token(self) -> str:
        """A secret that nobody can guess."""
