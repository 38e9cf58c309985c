"""Readers of a log: their positions, and the rows that retention (the deletion of old rows) must keep for them.

Retention keeps rows for the slowest reader, but not for ever. It deletes unread rows when they are too old or when the
database is too large. Before that, people are told once. The hub counts, for each reader, the rows that were deleted
before the reader read them, so that every reader can know what it missed. Each log has its own readers, in its own
store. The broker uses this module for the main log, and the journal for the activity log.
"""

import re
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from tieline.contract.limits import Limits
from tieline.contract.reader import LogState, Reader
from tieline.contract.refusal import Code, Refusal

OFFSET_MAX = 2**63 - 1
"""An offset after the end of every log."""
WARN_SHARE = 0.8
"""People are warned about a reader that has used up this fraction of the allowed time or database size.

After the warning, they can start the reader again before rows are deleted.
"""
_CALM_SHARE = 0.5
"""A reader has caught up when its `Waiting.share` (used fraction of a limit) is below this value.

If it is late again after that, people are warned again.
"""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Cutoff(Struct, frozen=True):
    """Rule that says which rows of a log are old enough to be deleted.

    A row that some reader has not read must be older than `unread_before_ms`, any other row older than `before_ms`.
    """

    before_ms: int
    unread: int = OFFSET_MAX
    """Offset of the first row that some reader has not read."""
    unread_before_ms: int = 0

    def deletes(self, offset: int, at_ms: int) -> bool:
        """True if the row at this offset, with this time, may be deleted."""
        return at_ms < (self.before_ms if offset < self.unread else self.unread_before_ms)


class ReaderStore(Protocol):
    """Interface to the part of a store that has the readers of its log.

    Its writes are committed together with all other writes of the store.
    """

    @property
    def epoch(self) -> str:
        """The random id of the log, made together with the log."""

    @property
    def kept_from(self) -> int:
        """The offset from which on the hub has deleted nothing."""

    def rows(self) -> Sequence[Reader]:
        """Return all readers of this log, sorted by name."""

    def save(self, reader: Reader) -> None:
        """Store a new or changed reader."""

    def drop(self, name: str) -> None:
        """Delete the reader with this name, if there is one."""

    def time_of(self, offset: int) -> int | None:
        """Return the time of the first committed row at or after this offset; `None` if there is no such row."""

    def bytes_used(self) -> int:
        """Return the size of the database in bytes, without its free pages."""

    def free_space(self) -> bool:
        """Give some of the database's free space back to the file system, in a few milliseconds.

        The method returns false if there was too little free space. A store whose database frees space by itself always
        returns false.
        """


class Readers:
    """The readers (programs with a position) of one log, loaded from its store."""

    def __init__(self, log: str, store: ReaderStore, limits: Limits, retention_ms: int) -> None:
        self.log = log
        self._store = store
        self._limits = limits
        self._retention_ms = retention_ms
        self._rows = {row.name: row for row in store.rows()}
        # The identity of the log.
        self.epoch = store.epoch

    @property
    def rows(self) -> tuple[Reader, ...]:
        """All readers of this log, sorted by name."""
        return tuple(self._rows[name] for name in sorted(self._rows))

    def state(self, end: int) -> LogState:
        """Return the state of the log: its identity and the offsets that can be read. The log ends at `end`."""
        return LogState(log=self.log, epoch=self.epoch, kept_from=self._store.kept_from, end=end)

    def advance(self, wish: Reader, end: int, epoch: str, *, rewind: bool) -> Reader | Refusal:
        """Store a reader's new position, which is in `wish`. Return the stored reader, or a refusal.

        If the reader is new, create it. The log ends at `end`. `epoch` is the epoch (random id) of the log as the
        reader knows it, or empty. Without `rewind`, a position before the current one is refused.
        """
        known = self._rows.get(wish.name)
        if not _NAME.fullmatch(wish.name):
            text = "a reader's name has 1 to 64 lower-case letters, digits, dots, dashes and underscores"
            return Refusal(Code.INVALID_NAME, text)
        if epoch and epoch != self.epoch:
            text = f"the log {self.log} has the epoch {self.epoch}: it was restored, and offsets before mean other rows"
            return Refusal(Code.WRONG_EPOCH, text)
        if not 0 <= wish.position <= end:
            return Refusal(Code.INVALID_REQUEST, f"the log {self.log} has the offsets 0 to {end}")
        if known is not None and wish.position < known.position and not rewind:
            text = f"{wish.name} has read {self.log} up to {known.position}; only a rewind goes back to {wish.position}"
            return Refusal(Code.INVALID_REQUEST, text)
        if known is None and len(self._rows) >= self._limits.readers_max:
            text = f"there are {self._limits.readers_max} readers; forget one first"
            return Refusal(Code.TOO_MANY_READERS, text)
        made = wish if known is None else replace(known, position=wish.position, by=wish.by, at_ms=wish.at_ms)
        self._keep(made)
        return made

    def forget(self, name: str) -> bool:
        """Delete a reader, so that no rows are kept for it any more. Return false if there is no such reader."""
        if self._rows.pop(name, None) is None:
            return False
        self._store.drop(name)
        return True

    def cutoff(self, now_ms: int) -> Cutoff:
        """Return the rule that says which rows may be deleted at this time."""
        before_ms = now_ms - self._retention_ms
        if not self._rows:
            return Cutoff(before_ms)
        full = self._store.bytes_used() >= self._limits.reader_wait_bytes
        unread_before_ms = before_ms if full else before_ms - self._limits.reader_wait_ms
        return Cutoff(before_ms, min(row.position for row in self._rows.values()), unread_before_ms)

    def passed(self, deleted: Sequence[int]) -> None:
        """Add the rows at the offsets `deleted` to the missed rows of each reader that has not read them.

        These rows are about to be deleted.
        """
        for row in self.rows:
            unread = [offset for offset in deleted if offset >= row.position]
            if unread:
                first = unread[0] if row.missed_first is None else min(row.missed_first, unread[0])
                last = unread[-1] if row.missed_last is None else max(row.missed_last, unread[-1])
                self._keep(replace(row, missed=row.missed + len(unread), missed_first=first, missed_last=last))

    def late(self, now_ms: int) -> list[str]:
        """Return a sentence for each late reader, that is, a reader whose unread rows will soon be deleted.

        There is only one sentence for a late reader, until it has caught up and is late again.
        """
        told = []
        for row in self.rows:
            waiting = self.waiting(row, now_ms)
            if waiting.share >= WARN_SHARE and not row.warned:
                self._keep(replace(row, warned=True))
                told.append(_sentence(row, waiting))
            elif waiting.share < _CALM_SHARE and row.warned:
                self._keep(replace(row, warned=False))
        return told

    def waiting(self, row: Reader, now_ms: int) -> "Waiting":
        """Return the used fractions of the time and of the database size for which the hub keeps rows for a reader."""
        since_ms = self._store.time_of(row.position)
        kept_ms = 0 if since_ms is None else max(0, now_ms - since_ms - self._retention_ms)
        if not kept_ms:
            # Nothing is kept for this reader, so a large database is no fault of it.
            return Waiting(0.0, 0.0)
        limits = self._limits
        size = self._store.bytes_used() / max(1, limits.reader_wait_bytes)
        return Waiting(kept_ms / max(1, limits.reader_wait_ms), size)

    def _keep(self, row: Reader) -> None:
        self._rows[row.name] = row
        self._store.save(row)


class Waiting(Struct, frozen=True):
    """Used fractions of the allowed time and of the allowed database size for keeping rows for one reader."""

    time: float
    size: float

    @property
    def share(self) -> float:
        """The larger of the two fractions. If it is 1 or more, the hub deletes rows that the reader has not read."""
        return max(self.time, self.size)


def _sentence(row: Reader, waiting: Waiting) -> str:
    bound = "the time (reader_wait_ms)" if waiting.time >= waiting.size else "the database's size (reader_wait_bytes)"
    return (
        f"the reader {row.name} has not read the log {row.log} from row {row.position} on, and {waiting.share:.0%} of "
        f"{bound} for which the hub waits are used up; then it deletes what is unread. Start the reader again; or, if "
        f"nobody needs it: tieline log forget {row.name}"
    )
