"""Readers of a log in the PostgreSQL store. A reader is a program with a name and a position in the log.

The main store and the activity store both use this module.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from tieline.contract.reader import Reader
from tieline.stores.postgres.connection import Row


class Queries(Protocol):
    """Interface of a connection by which the readers are read and written."""

    def select(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of the statement with this name."""

    def one(self, name: str, values: Sequence[Any] = ()) -> Row:
        """Return the only row of the statement with this name."""

    def write(self, name: str, values: Sequence[Any]) -> None:
        """Buffer a write."""

    def flush(self) -> None:
        """Let reads see the buffered writes."""


class PostgresReaders:
    """Implementation of `ReaderStore`: stores the readers of one log in the database of the log."""

    def __init__(self, log: str, connection: Queries) -> None:
        self._log = log
        self._connection = connection

    @property
    def epoch(self) -> str:
        """The random id of the log. See `ReaderStore.epoch`."""
        return str(self._connection.one(f"{self._log}_epoch")[0])

    @property
    def kept_from(self) -> int:
        """Offset from which on nothing is deleted. See `ReaderStore.kept_from`."""
        self._connection.flush()
        return int(self._connection.one(f"{self._log}_kept_from")[0])

    def rows(self) -> list[Reader]:
        """Return all readers (programs with a position) of the log. See `ReaderStore.rows`."""
        self._connection.flush()
        return [
            Reader(
                name=name,
                log=self._log,
                position=position,
                by=by,
                at_ms=at_ms,
                missed=missed,
                missed_first=first,
                missed_last=last,
                warned=warned,
            )
            for name, position, by, at_ms, missed, first, last, warned in self._connection.select(
                f"{self._log}_readers"
            )
        ]

    def save(self, reader: Reader) -> None:
        """Store a new or changed reader. See `ReaderStore.save`."""
        one = reader
        missed = (one.missed, one.missed_first, one.missed_last)
        values = (one.name, one.position, one.by, one.at_ms, *missed, one.warned)
        self._connection.write(f"{self._log}_replace_reader", values)

    def drop(self, name: str) -> None:
        """Delete the reader with this name. See `ReaderStore.drop`."""
        self._connection.write(f"{self._log}_delete_reader", (name,))

    def time_of(self, offset: int) -> int | None:
        """Return the time of the first row at or after this offset, or `None`. See `ReaderStore.time_of`."""
        rows = self._connection.select(f"{self._log}_time", (offset,))
        return int(rows[0][0]) if rows else None

    def bytes_used(self) -> int:
        """Return the size of the hub's tables in bytes, with their indexes. See `ReaderStore.bytes_used`."""
        return int(self._connection.one("bytes_used")[0])

    def free_space(self) -> bool:
        """Return false: PostgreSQL reuses free space by itself. See `ReaderStore.free_space`."""
        return False
