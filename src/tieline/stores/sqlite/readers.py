"""Readers of a log in the SQLite store. A reader is a program with a name and a position in the log.

The main store and the activity store both use this module.
"""

from collections.abc import Callable, Iterator
from typing import Any

import apsw

from tieline.contract.reader import Reader
from tieline.stores.sqlite.database import INCREMENTAL

_Row = tuple[Any, ...]

SPARE_PAGES = 1024
"""Number of free pages (4 MiB) that stay in the database file for new rows. Without them, the file would shrink and
grow in turn."""


class SqliteReaders:
    """Implementation of `ReaderStore`: stores the readers of one log in the database of the log.

    A reader is a program with a name and a position in the log. `write` and `select` are functions that run a named SQL
    statement in the transaction of the database.
    """

    def __init__(
        self,
        log: str,
        connection: apsw.Connection,
        write: Callable[[str, _Row], None],
        select: Callable[[str, _Row], Iterator[_Row]],
    ) -> None:
        self._log = log
        self._connection = connection
        self._write = write
        self._select = select

    @property
    def epoch(self) -> str:
        """The random id of the log. See `ReaderStore.epoch`."""
        return str(next(self._select("epoch", ()))[0])

    @property
    def kept_from(self) -> int:
        """Offset from which on nothing is deleted: retention has deleted only data before it.

        See `ReaderStore.kept_from`.
        """
        return int(next(self._select(f"{self._log}_kept_from", ()))[0])

    def rows(self) -> list[Reader]:
        """Return all readers (programs with a position) of the log. See `ReaderStore.rows`."""
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
                warned=bool(warned),
            )
            for name, position, by, at_ms, missed, first, last, warned in self._select("readers", ())
        ]

    def save(self, reader: Reader) -> None:
        """Store a new or changed reader. See `ReaderStore.save`."""
        one = reader
        missed = (one.missed, one.missed_first, one.missed_last)
        self._write("replace_reader", (one.name, one.position, one.by, one.at_ms, *missed, one.warned))

    def drop(self, name: str) -> None:
        """Delete the reader with this name. See `ReaderStore.drop`."""
        self._write("delete_reader", (name,))

    def time_of(self, offset: int) -> int | None:
        """Return the time of the first row at or after this offset, or `None`. See `ReaderStore.time_of`."""
        row = next(self._select(f"{self._log}_time", (offset,)), None)
        return None if row is None else int(row[0])

    def bytes_used(self) -> int:
        """Return the size of the database in bytes, without its free pages. See `ReaderStore.bytes_used`."""
        pages = self._pragma("page_count") - self._pragma("freelist_count")
        return pages * self._pragma("page_size")

    def free_space(self) -> bool:
        """Release some free pages of the database to the file system, within the transaction.

        Return false if there are too few free pages, or if the file cannot shrink. See `ReaderStore.free_space`.
        """
        if self._pragma("freelist_count") <= SPARE_PAGES or self._pragma("auto_vacuum") != INCREMENTAL:
            return False
        self._write("free_space", ())
        return True

    def _pragma(self, name: str) -> int:
        value = self._connection.pragma(name)
        assert isinstance(value, int), f"{name} is a number"
        return value
