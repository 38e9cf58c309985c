"""Reads the logs in PostgreSQL from outside the hub's broker, page by page. Each page is one short transaction."""

from tieline.core.store import MAIN
from tieline.stores.pages import MainPage, Rows
from tieline.stores.postgres.connection import PostgresConnection


class PostgresPages:
    """Implementation of `Pages`. The first read opens the connection. Not thread-safe."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self._opened: PostgresConnection | None = None

    @property
    def _connection(self) -> PostgresConnection:
        if self._opened is None:
            self._opened = PostgresConnection(self._url, self._schema, MAIN)
        return self._opened

    def end(self, log: str) -> int:
        """Return the offset that the next row of a log will have. See `Pages.end`."""
        return int(self._connection.one(f"{log}_end")[0])

    def epoch(self, log: str) -> str:
        """Return the epoch (random id) of a log."""
        return str(self._connection.one(f"{log}_epoch")[0])

    def names(self) -> dict[int, str]:
        """Return the names of members by number, including removed members."""
        return dict(self._connection.select("page_names"))

    def main(self, start: int, end: int) -> MainPage:
        """Return the rows of the main log with `start` <= offset < `end`, read in one transaction."""
        select = self._connection.select
        with self._connection.instant():
            before = select("page_rows", (start - 2, start))
            rows = select("page_rows", (start, end))
            messages = [
                (*row[:4], None if row[4] is None else row[4].decode(), *row[5:])
                for row in select("page_messages", (start, end))
            ]
            happenings = select("page_happenings", (start, end))
        return MainPage(before, rows, messages, happenings)

    def activity(self, start: int, end: int) -> Rows:
        """Return the rows of the activity log with `start` <= offset < `end`. See `Pages.activity`."""
        rows = self._connection.select("page_activity", (start, end))
        return [(*row[:3], row[3].decode(), *row[4:]) for row in rows]

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
