"""The clock of a running hub, and the source of new ids for messages, sessions and tokens."""

import random
import secrets

from tieline.contract.identifiers import MessageId, SessionId
from tieline.server.clock import Clock

TOKEN_PREFIX = "tie_"
"""Text with which every token begins, so that secret scanners can find tokens."""

_COUNT_MAX = 0xFFF  # the twelve bits of a UUIDv7 that count within a millisecond
_VARIANT = 0x8000_0000_0000_0000


class SystemClockAndIds:
    """Source of time, ids and tokens for a running hub. It uses the hub's clock and the system's random numbers."""

    def __init__(self, clock: Clock | None = None, token_prefix: str = TOKEN_PREFIX) -> None:
        self.clock = clock or Clock()
        # The milliseconds since 1970 by the hub's clock, and those by which it was set since the last call.
        self.now_ms = self.clock.now_ms
        self.take_step_ms = self.clock.take_step_ms
        # Text with which every token begins. The tokens of a room have another prefix, which contains the room's id.
        self._token_prefix = token_prefix
        # Ids must be unique and must sort. They are not secret, so a seeded generator is enough for their tail.
        self._random = random.Random(secrets.randbits(128))  # noqa: S311
        # The current millisecond, the count of ids within it, and the text of an id before and after that count.
        self._id_ms = -1
        self._id_count = 0
        self._id_prefix = ""
        self._id_tail = ""

    def doubts_time(self) -> bool:
        """Return true if the hub's time may be wrong. While this is so, the hub deletes no old data."""
        return self.clock.doubted

    def message_id(self, now_ms: int) -> MessageId:
        """Return a new message id (a UUIDv7). Ids sort in the order in which they were made.

        An id begins with the time and a counter within the millisecond. After the counter come random bits, so that ids
        of different hubs differ. These bits are drawn once per millisecond. When the counter is at its maximum, new
        random bits are drawn for each id.
        """
        if now_ms == self._id_ms and self._id_count < _COUNT_MAX:
            self._id_count += 1
        else:
            if now_ms != self._id_ms:
                digits = f"{now_ms:012x}"
                self._id_ms, self._id_prefix, self._id_count = now_ms, f"{digits[:8]}-{digits[8:]}-7", 0
            low = f"{_VARIANT | self._random.getrandbits(62):016x}"
            self._id_tail = f"{low[:4]}-{low[4:]}"
        return MessageId(f"{self._id_prefix}{self._id_count:03x}-{self._id_tail}")

    def session_id(self) -> SessionId:
        """Return a new session id of 128 random bits."""
        return SessionId(secrets.token_hex(16))

    def token(self) -> str:
        """Return a new token: the prefix of this hub or room, then 256 random bits."""
        return f"{self._token_prefix}{secrets.token_urlsafe(32)}"
