"""The activity log in its own database file, `activity.db`, with its own connection, writer and disk sync.

The journal uses this store, on one thread. The SQL statements are in `queries.sql`, and the schema is in `schema/`.
"""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import apsw

from tieline.contract.event import LogRow
from tieline.core.quotes import quoted_forms
from tieline.core.readers import Cutoff
from tieline.core.store import ACTIVITY, ActivityEntry, ActivityQuery, StoreError, page
from tieline.stores.sqlite.database import explain, open_database, write_nothing
from tieline.stores.sqlite.readers import SqliteReaders
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.write_ahead_log import WriteAheadLog

ACTIVITY_FILE = "activity.db"

_MS_MIN, _MS_MAX = -(2**63), 2**63 - 1  # what the database keeps as a number


class SqliteActivity:
    """Implementation of `ActivityStore`: stores the activity log of a hub in the file `activity.db`."""

    def __init__(self, folder: Path, *, synchronous: str = "FULL", vfs: str | None = None) -> None:
        self._path = folder / ACTIVITY_FILE
        self._write_ahead_log = WriteAheadLog(self._path, synchronous)
        self._connection = open_database(self._path, "activity", synchronous=synchronous, vfs=vfs)
        self._write_ahead_log.follow(self._connection)
        # Rows that the next commit inserts.
        self._entries: list[ActivityEntry] = []
        self._end = 0
        self.readers = SqliteReaders(ACTIVITY, self._connection, self._write, self._select)

    def restore(self) -> int:
        """Drop buffered rows, and return the offset of the next row. See `ActivityStore.restore`."""
        self._entries.clear()
        with self._refusing():
            if not self._connection.get_autocommit():
                self._connection.execute("ROLLBACK")
            self._end = self._committed_end()
        return self._end

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        """Buffer rows for the next commit. Raise `StoreError` if their offsets have a gap.

        See `ActivityStore.append`.
        """
        for entry in entries:
            if entry.offset != self._end:
                self._entries.clear()
                raise StoreError(f"the activity log is at {self._end}, a row for {entry.offset} does not fit")
            self._end += 1
        self._entries.extend(entries)

    def commit(self) -> None:
        """Write everything that is buffered to disk, in one transaction. See `ActivityStore.commit`."""
        if not self._entries and self._connection.get_autocommit():
            return
        entries, self._entries = self._entries, []
        with self._refusing():
            self._begin()
            self._connection.executemany(
                QUERIES["append_activity"],
                ((one.offset, one.at_ms, one.number, one.event, one.kind, one.ts_ms) for one in entries),
            )
            self._connection.execute("COMMIT")
        # The rows are committed, even if the checkpoint fails.
        self._write_ahead_log.after_commit()

    def retry(self) -> None:
        """Check that the database accepts writes again. Raise if it does not. See `ActivityStore.retry`."""
        with self._refusing():
            write_nothing(self._connection)
        if self.erasing:
            self._write_ahead_log.checkpoint()

    @property
    def erasing(self) -> bool:
        """True if the write-ahead log may still have content that was erased. See `ActivityStore.erasing`."""
        return self._write_ahead_log.erases

    def select(self, query: ActivityQuery) -> Sequence[ActivityEntry]:
        """Return committed activity of one member that matches a query, newest first. See `ActivityStore.select`."""
        first = _MS_MIN if query.from_ms is None else max(query.from_ms, _MS_MIN)
        last = _MS_MAX if query.to_ms is None else min(query.to_ms, _MS_MAX)
        with self._refusing():
            found: Iterator[tuple[int, int]]
            if query.kinds:
                found = heapq.merge(
                    *(
                        self._connection.execute(
                            QUERIES["activity_of_kind"], (query.number, first, last, kind, query.limit)
                        )
                        for kind in set(query.kinds)
                    ),
                    reverse=True,
                )
            else:
                values = (query.number, first, last, query.limit)
                found = iter(list(self._connection.execute(QUERIES["activity_of_member"], values)))
            rows = (
                self._connection.execute(QUERIES["activity_at"], (row[1],)).get for row in islice(found, query.limit)
            )
            return page((ActivityEntry(*row) for row in rows), lambda entry: len(entry.event), query.bytes_max)

    def read_log(self, start: int, limit: int, bytes_max: int) -> tuple[Sequence[LogRow], int]:
        """Return at most `limit` committed rows from offset `start` on, with at most `bytes_max` bytes.

        Also return the offset that the next new row will get. See `ActivityStore.read_log`.
        """
        with self._refusing():
            rows = self._connection.execute(QUERIES["read_activity"], (start, limit))
            return page((LogRow(*row) for row in rows), lambda row: len(row.event), bytes_max), self._committed_end()

    def erase(self, text: str, note: str) -> None:
        """Replace all events that have this text, and erase them from the disk. See `ActivityStore.erase`."""
        with self._refusing():
            self._begin()
            self._connection.pragma("secure_delete", True)
            try:
                for forms in quoted_forms(text):
                    self._connection.execute(QUERIES["erase_activity"], (note, *forms)).fetchall()
            finally:
                self._connection.pragma("secure_delete", False)
        self._write_ahead_log.erases = True

    def prune(self, cutoff: Cutoff, limit: int) -> range:
        """Delete up to `limit` of the oldest rows that `cutoff` does not keep. Return their offsets.

        See `ActivityStore.prune`.
        """
        with self._refusing():
            oldest = list(self._select("oldest_activity", (limit,)))
            old = [offset for offset, _ in takewhile(lambda row: cutoff.deletes(*row), oldest)]
        if not old:
            return range(0)
        self._write("delete_activity", (old[-1],))
        return range(old[0], old[-1] + 1)

    def _begin(self) -> None:
        if self._connection.get_autocommit():
            self._connection.execute("BEGIN IMMEDIATE")

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._refusing():
            self._begin()
            self._connection.execute(QUERIES[statement], values).fetchall()

    def _select(self, statement: str, values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(QUERIES[statement], values))

    def close(self) -> None:
        """Close the database. Buffered rows are lost. See `ActivityStore.close`."""
        self._entries.clear()
        self._connection.close()

    def _committed_end(self) -> int:
        return int(self._connection.execute(QUERIES["activity_end"]).get)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OverflowError) as error:
            with suppress(apsw.Error):
                if not self._connection.get_autocommit():
                    self._connection.execute("ROLLBACK")
            explained = explain(error, self._path)
            raise explained if isinstance(explained, StoreError) else StoreError(f"{self._path}: {error}") from error
