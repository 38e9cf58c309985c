"""The activity log in memory: `restore` after an abandoned batch gives back what was committed, as on disk."""

from collections.abc import Sequence
from itertools import takewhile

from tieline.contract.event import LogRow
from tieline.core.store import ActivityEntry, ActivityQuery, StoreError, page


class MemoryActivity:
    """See `ActivityStore`."""

    def __init__(self) -> None:
        self._entries: list[ActivityEntry] = []
        # How many were pruned: the offset of the first that is left.
        self._start = 0
        self._committed_end = 0

    def restore(self) -> int:
        """See `ActivityStore.restore`."""
        del self._entries[self._committed_end - self._start :]
        return self._committed_end

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        """See `ActivityStore.append`."""
        for entry in entries:
            end = self._start + len(self._entries)
            if entry.offset != end:
                self.restore()
                raise StoreError(f"the activity log is at {end}, a row for {entry.offset} does not fit")
            self._entries.append(entry)

    def commit(self) -> None:
        """See `ActivityStore.commit`."""
        self._committed_end = self._start + len(self._entries)

    def retry(self) -> None:
        """See `ActivityStore.retry`."""

    def select(self, query: ActivityQuery) -> Sequence[ActivityEntry]:
        """See `ActivityStore.select`."""
        wanted = [
            entry
            for entry in self._entries[: self._committed_end - self._start]
            if entry.number == query.number
            and (query.from_ms is None or query.from_ms <= entry.ts_ms)
            and (query.to_ms is None or entry.ts_ms <= query.to_ms)
            and (not query.kinds or entry.kind in query.kinds)
        ]
        wanted.sort(key=lambda entry: (entry.ts_ms, entry.offset), reverse=True)
        return page(wanted[: query.limit], lambda entry: len(entry.event), query.bytes_max)

    def read_log(self, start: int, limit: int, bytes_max: int) -> tuple[Sequence[LogRow], int]:
        """See `ActivityStore.read_log`."""
        first = max(0, start - self._start)
        entries = self._entries[first : min(first + limit, self._committed_end - self._start)]
        rows = [LogRow(entry.offset, entry.at_ms, entry.event) for entry in entries]
        return page(rows, lambda row: len(row.event), bytes_max), self._committed_end

    def prune(self, before_ms: int, limit: int) -> int:
        """See `ActivityStore.prune`."""
        oldest = self._entries[: min(limit, self._committed_end - self._start - 1)]
        count = sum(1 for _ in takewhile(lambda entry: entry.at_ms < before_ms, oldest))
        del self._entries[:count]
        self._start += count
        return count

    def close(self) -> None:
        """See `ActivityStore.close`."""
