"""The clock and new ids, as parameters."""

from typing import Protocol

from tieline.contract.identifiers import MessageId, SessionId


class ClockAndIds(Protocol):
    """Gives the broker the time, new ids and new tokens. The server has the real ones; tests bring their own."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; does not go backwards, unless `take_step_ms` says so."""

    def take_step_ms(self) -> int:
        """How far the time was set in one step, forwards or backwards, since this was last asked."""

    def doubts_time(self) -> bool:
        """Whether the time may be wrong: nothing may be deleted for its age."""

    def message_id(self, now_ms: int) -> MessageId:
        """A new id that sorts by time."""

    def session_id(self) -> SessionId:
        """An id that nobody can guess."""

    def token(self) -> str:
        """A secret that nobody can guess."""
