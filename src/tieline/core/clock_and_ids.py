"""The port for the clock and for new ids. The broker gets it as a parameter, so that tests can control time and ids."""

from typing import Protocol

from tieline.contract.identifiers import MessageId, SessionId


class ClockAndIds(Protocol):
    """Gives the broker the time, new ids and new tokens. The server and the tests have their own versions."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970. It goes backwards only if `take_step_ms` reports it."""

    def take_step_ms(self) -> int:
        """Return by how many milliseconds somebody set the clock forward since the last call; negative if backward."""

    def doubts_time(self) -> bool:
        """True if the time may be wrong. Then nothing may be deleted because of its age."""

    def message_id(self, now_ms: int) -> MessageId:
        """Return a new message id. Ids sort by their time, `now_ms`."""

    def session_id(self) -> SessionId:
        """Return a new session id that nobody can guess."""

    def token(self) -> str:
        """Return a new secret that nobody can guess."""
