"""The interface for the time and for new ids.

The broker gets an implementation as a parameter, so that tests can control time and ids.
"""

from typing import Protocol

from tieline.contract.identifiers import MessageId, SessionId


class ClockAndIds(Protocol):
    """Interface that gives the broker the time, new ids and new tokens.

    The server and the tests implement it differently.
    """

    def now_ms(self) -> int:
        """Return the current time in milliseconds since 1970.

        The time goes backwards only if somebody set the clock back. `take_step_ms` reports this.
        """

    def take_step_ms(self) -> int:
        """Return by how many milliseconds somebody set the clock forward since the last call; negative if backward."""

    def doubts_time(self) -> bool:
        """True if the current time may be wrong. In this case, nothing may be deleted because of its age."""

    def message_id(self, now_ms: int) -> MessageId:
        """Return a new message id. Ids sort by their time, `now_ms`."""

    def session_id(self) -> SessionId:
        """Return a new session id that nobody can guess."""

    def token(self) -> str:
        """Return a new secret that nobody can guess."""
