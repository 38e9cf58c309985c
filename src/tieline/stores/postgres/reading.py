"""Reads a schema from outside the hub: read-only, all at one moment, and row by row.

The audit and the copy of a store use it. It changes nothing, so it neither makes a schema nor migrates one.
"""

import itertools
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import psycopg

from tieline.core.store import StoreError
from tieline.stores.postgres.connection import (
    CONNECT_SECONDS,
    KEEPALIVE,
    QUERIES,
    Row,
    explain,
    newest_version,
    place_of,
)
from tieline.stores.postgres.readers import PostgresReaders

_PARTS = ("main", "activity", "files")
_ROWS = 200
"""Number of rows that are read at once. A row may have a megabyte."""


class PostgresReading:
    """The committed content of a schema at one moment. Not thread-safe.

    Raise `StoreError` if no hub ever used the schema, or if a newer or an older program did.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.place = place_of(url)
        self._numbers = itertools.count()
        try:
            self._postgres: psycopg.Connection[Row] = psycopg.connect(
                url,
                cursor_factory=psycopg.RawCursor,
                connect_timeout=CONNECT_SECONDS,
                application_name="tieline",
                **KEEPALIVE,
            )
        except psycopg.Error as error:
            raise explain(error, self.place) from error
        try:
            # The first statement begins the one transaction of all reads.
            self._postgres.server_cursor_factory = psycopg.RawServerCursor
            self._postgres.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._postgres.read_only = True
            self.select("use_schema", (schema,))
            self.versions = self._versions()
        except BaseException:
            self._postgres.close()
            raise

    def _versions(self) -> dict[str, tuple[int, int]]:
        """Return the version of each part of the schema, and the newest version that this program knows."""
        if not self.one("has_versions")[0]:
            raise StoreError(f"no hub ever kept anything in {self.place}", "look at the URL of the store")
        return {part: (self.one("version", (part,))[0], newest_version(part)) for part in _PARTS}

    def check_versions(self) -> None:
        """Raise `StoreError` if a part of the schema is not as this program knows it."""
        for part, (version, newest) in self.versions.items():
            if version > newest:
                known = f"schema {part} {version}; this program knows {newest}"
                raise StoreError(f"{self.place} was written by a newer Tieline ({known})", "upgrade this program")
            if version < newest:
                hint = "start the hub once with this program, which migrates it"
                raise StoreError(f"{self.place} was written by an older Tieline (schema {part} {version})", hint)

    def readers(self, log: str) -> PostgresReaders:
        """Return the readers of a log."""
        return PostgresReaders(log, self)

    def select(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of the statement with this name."""
        try:
            return self._postgres.execute(QUERIES[name].encode(), values, binary=True).fetchall()
        except psycopg.Error as error:
            raise explain(error, self.place) from error

    def one(self, name: str, values: Sequence[Any] = ()) -> Row:
        """Return the only row of the statement with this name."""
        (row,) = self.select(name, values)
        return row

    def falling_term(self, start: int) -> tuple[int, int] | None:
        """Return offset and term of the first row of the log whose term is older than that of the row before it.

        Look at the rows from the offset `start` on. There is such a row only if a hub wrote without the lease.
        """
        return next(((row[0], row[1]) for row in self.select("falling_term", (start,))), None)

    def write(self, name: str, values: Sequence[Any]) -> None:
        """Fail: this connection only reads."""
        raise AssertionError(f"{name} would write")

    def flush(self) -> None:
        """Do nothing: no writes are buffered."""

    def stream(self, name: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Yield the rows of the statement with this name, with few of them in memory. Streams may be interleaved."""
        try:
            with self._postgres.cursor(f"stream_{next(self._numbers)}", binary=True) as cursor:
                cursor.itersize = _ROWS
                yield from cursor.execute(QUERIES[name].encode(), values)
        except psycopg.Error as error:
            raise explain(error, self.place) from error

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        self._postgres.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
