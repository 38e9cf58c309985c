"""Reads the logs in a hub's data folder from outside the hub, page by page: the rows, and the data stored with them.

The pipeline uses this module, and so does the route that serves logs to other machines. This module has its own
read-only connections. Each page is one short transaction. So the hub can write meanwhile, and can run a checkpoint of
its write-ahead log between two pages.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw

from tieline.core.store import ACTIVITY, MAIN, StoreError
from tieline.stores.pages import MainPage, Rows
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import open_for_reading
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import Words
from tieline.stores.statements import load

_QUERIES = load(files("tieline.stores.sqlite").joinpath("pages.sql").read_text(encoding="utf-8"))


class LogPages:
    """Reader for the logs in the data folder (`home`) of one hub, page by page. Not thread-safe."""

    def __init__(self, home: Path) -> None:
        self._paths = {MAIN: home / MAIN_FILE, ACTIVITY: home / ACTIVITY_FILE}
        self._connections: dict[str, apsw.Connection] = {}
        self._words: Words | None = None

    def end(self, log: str) -> int:
        """Return the offset that the next row of a log, `main` or `activity`, will have."""
        if not self._paths[log].exists():
            return 0
        return int(self._select(log, f"{log}_end")[0][0])

    def epoch(self, log: str) -> str:
        """Return the epoch (random id) of a log.

        The result is empty if there is no log, or if the program that made the log was too old to store an epoch.
        """
        if not self._paths[log].exists() or not self._select(log, "has_epoch")[0][0]:
            return ""
        return str(self._select(log, "epoch")[0][0])

    def names(self) -> dict[int, str]:
        """Return the names of members by number, including removed members."""
        return dict(self._select(MAIN, "names"))

    def main(self, start: int, end: int) -> MainPage:
        """Return the rows of the main log with `start` <= offset < `end`, read in one transaction."""
        with self._instant(MAIN):
            before = self._rows(start - 2, start)
            rows = self._rows(start, end)
            messages = self._select(MAIN, "messages", (start, end))
            happenings = self._select(MAIN, "happenings", (start, end))
        return MainPage(before, rows, messages, happenings)

    def event(self, offset: int) -> bytes | None:
        """Return the event at an offset of the main log, or `None`."""
        rows = self._rows(offset, offset + 1)
        return rows[0][2] if rows else None

    def activity(self, start: int, end: int) -> Rows:
        """Return the rows of the activity log with `start` <= offset < `end`.

        Columns: offset, at_ms, number, kind, ts_ms, event.
        """
        return self._select(ACTIVITY, "activity", (start, end))

    def close(self) -> None:
        """Close the databases."""
        self._words = None
        while self._connections:
            self._connections.popitem()[1].close()

    def _rows(self, start: int, end: int) -> Rows:
        found = self._select(MAIN, "rows", (start, end))
        if self._words is None:
            self._words = Words(self._connection(MAIN))
        unpack = self._words.unpack
        return [(offset, at_ms, unpack(event), own) for offset, at_ms, event, own in found]

    @contextmanager
    def _instant(self, log: str) -> Iterator[None]:
        connection = self._connection(log)
        connection.execute("BEGIN")
        try:
            yield
        finally:
            connection.execute("COMMIT")

    def _select(self, log: str, statement: str, values: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection(log).execute(_QUERIES[statement], values).fetchall()
        except apsw.Error as error:
            raise StoreError(f"{self._paths[log]} cannot be read: {error}") from error

    def _connection(self, log: str) -> apsw.Connection:
        connection = self._connections.get(log)
        if connection is None:
            connection = self._connections[log] = open_for_reading(self._paths[log])
        return connection
