"""The activity log in PostgreSQL: its own tables, and its own connection and transactions.

The journal uses this store, on one thread.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import msgspec

from tieline.contract.event import LogRow
from tieline.core.quotes import quoted_forms
from tieline.core.readers import Cutoff
from tieline.core.store import ACTIVITY, ActivityEntry, ActivityQuery, StoreError
from tieline.stores.postgres.columns import Bigints, Blobs
from tieline.stores.postgres.connection import Guard, PostgresConnection
from tieline.stores.postgres.readers import PostgresReaders

_MS_MIN, _MS_MAX = -(2**63), 2**63 - 1  # what the database keeps as a number


class PostgresActivity:
    """Implementation of `ActivityStore`: stores the activity log of a hub in its schema of a database."""

    def __init__(self, url: str, schema: str, guard: Guard | None = None) -> None:
        self._connection = PostgresConnection(url, schema, "activity", guard=guard)
        # Rows that the next commit inserts.
        self._entries: list[ActivityEntry] = []
        self._end = 0
        self.readers = PostgresReaders(ACTIVITY, self._connection)

    def restore(self) -> int:
        """Drop buffered rows, and return the offset of the next row. See `ActivityStore.restore`."""
        self._abandon()
        self._end = self._committed_end()
        return self._end

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        """Buffer rows for the next commit. Raise `StoreError` if their offsets have a gap.

        See `ActivityStore.append`.
        """
        for entry in entries:
            if entry.offset != self._end:
                self._abandon()
                raise StoreError(f"the activity log is at {self._end}, a row for {entry.offset} does not fit")
            self._end += 1
        self._entries.extend(entries)

    def commit(self) -> None:
        """Write everything that is buffered to disk, in one transaction. See `ActivityStore.commit`."""
        with self._abandoning():
            entries, self._entries = self._entries, []
            if entries:
                values = (
                    Bigints([one.offset for one in entries]),
                    Bigints([one.at_ms for one in entries]),
                    Bigints([one.number for one in entries]),
                    Blobs([one.event for one in entries]),
                    Blobs([one.kind.encode() for one in entries]),
                    Bigints([one.ts_ms for one in entries]),
                )
                self._connection.write("append_activity", values)
            self._connection.commit()

    def retry(self) -> None:
        """Check that the database accepts writes again. Raise if it does not. See `ActivityStore.retry`."""
        self._connection.write_nothing("touch_activity", ())

    @property
    def erasing(self) -> bool:
        """Return false: the hub cannot make PostgreSQL remove old versions of rows. See `ActivityStore.erasing`."""
        return False

    def select(self, query: ActivityQuery) -> Sequence[ActivityEntry]:
        """Return committed activity of one member that matches a query, newest first. See `ActivityStore.select`."""
        first = _MS_MIN if query.from_ms is None else max(query.from_ms, _MS_MIN)
        last = _MS_MAX if query.to_ms is None else min(query.to_ms, _MS_MAX)
        values = (query.number, first, last, query.limit, query.bytes_max)
        if query.kinds:
            kinds = Blobs(sorted({kind.encode() for kind in query.kinds}))
            rows = self._connection.select("activity_of_kinds", (*values, kinds))
        else:
            rows = self._connection.select("activity_of_member", values)
        return [
            ActivityEntry(offset, at_ms, number, kind.decode(), ts_ms, event)
            for offset, at_ms, number, kind, ts_ms, event in rows
        ]

    def read_log(self, start: int, limit: int, bytes_max: int) -> tuple[Sequence[LogRow], int]:
        """Return at most `limit` committed rows from offset `start` on, with at most `bytes_max` bytes.

        Also return the offset that the next new row will get. See `ActivityStore.read_log`.
        """
        rows = self._connection.select("read_activity", (start, limit, bytes_max))
        return [LogRow(*row) for row in rows], self._committed_end()

    def erase(self, text: str, note: str) -> None:
        """Replace all events that have this text. See `ActivityStore.erase`."""
        with self._abandoning():
            for forms in quoted_forms(text):
                rows = self._connection.select("activity_with", forms)
                made = [
                    msgspec.json.encode({"kind": kind.decode(), "ts": ts_ms, "redacted": note})
                    for _, kind, ts_ms in rows
                ]
                if rows:
                    self._connection.write("replace_events", (Bigints([row[0] for row in rows]), Blobs(made)))
                    self._connection.flush()

    def prune(self, cutoff: Cutoff, limit: int) -> range:
        """Delete up to `limit` of the oldest rows that `cutoff` does not keep. Return their offsets.

        See `ActivityStore.prune`.
        """
        self._connection.flush()
        oldest = self._connection.select("oldest_activity", (limit,))
        old = [offset for offset, _ in takewhile(lambda row: cutoff.deletes(*row), oldest)]
        if not old:
            return range(0)
        self._connection.write("delete_activity", (old[-1],))
        return range(old[0], old[-1] + 1)

    def close(self) -> None:
        """Close the connection. Buffered rows are lost. See `ActivityStore.close`."""
        self._entries.clear()
        self._connection.close()

    def _committed_end(self) -> int:
        return int(self._connection.one("activity_end")[0])

    def _abandon(self) -> None:
        self._entries.clear()
        self._connection.roll_back()

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._abandon()
            raise
