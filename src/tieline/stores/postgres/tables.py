"""The tables of a schema as a whole, for a copy of the store: read and written with COPY, in one transaction.

While they are open, this process has the place of the hub that writes, so no hub uses the schema.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.resources import files

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from tieline.core.store import StoreError
from tieline.stores.postgres.connection import (
    CONNECT_SECONDS,
    KEEPALIVE,
    QUERIES,
    PostgresConnection,
    explain,
    place_of,
)
from tieline.stores.postgres.lease import Lease
from tieline.stores.statements import load
from tieline.stores.tables import Row, Table

_STATEMENTS = load(files("tieline.stores.postgres").joinpath("tables.sql").read_text(encoding="utf-8"))


class PostgresTables:
    """Implementation of `Tables` for a schema. It makes or migrates the schema.

    Raise `StoreError` if a hub uses the schema.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.place = f"the schema {schema} of {place_of(url)}"
        self._lease = Lease(url, schema, f"'tieline store copy' on {socket.gethostname()} (process {os.getpid()})")
        self._locking = PostgresConnection(url, schema, "main", reopens=False, guard=self._lease)
        try:
            self._lease.take(self._locking)
            # An open transaction behind the fence: until its end nobody can take the lease.
            self._locking.write("nothing", ())
            self._locking.flush()
            for part in ("activity", "files"):
                PostgresConnection(url, schema, part).close()
            self._postgres = psycopg.connect(
                url, connect_timeout=CONNECT_SECONDS, application_name="tieline", **KEEPALIVE
            )
        except psycopg.Error as error:
            self._end()
            raise explain(error, self.place) from error
        except BaseException:
            self._end()
            raise
        # One transaction for all: nothing of a copy that failed is there.
        self._postgres.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._postgres.execute(QUERIES["use_schema"].replace("$1", "%s").encode(), (schema,))

    def count(self, table: Table) -> int:
        """Return the number of rows of a table. See `Tables.count`."""
        row = self._postgres.execute(_about("count", table)).fetchone()
        assert row is not None, "a number is one row"
        return int(row[0])

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table. See `Tables.rows`."""
        try:
            statement = _about("read" if table.key else "read_single", table)
            with self._postgres.cursor() as cursor, cursor.copy(statement) as copy:
                copy.set_types([column.kind.value for column in table.columns])
                yield from copy.rows()
        except psycopg.Error as error:
            raise explain(error, self.place) from error

    def fill(self, table: Table, rows: Iterable[Row]) -> None:
        """Write all rows of a table. See `Tables.fill`."""
        try:
            if not table.key:
                self._postgres.execute(_about("clear", table))
            with self._postgres.cursor() as cursor, cursor.copy(_about("fill", table)) as copy:
                copy.set_types([column.kind.value for column in table.columns])
                for row in rows:
                    copy.write_row(row)
        except psycopg.Error as error:
            raise explain(error, self.place) from error

    def keep(self) -> None:
        """Commit everything. See `Tables.keep`."""
        try:
            self._locking.select("nothing")
            self._postgres.commit()
        except psycopg.Error as error:
            raise explain(error, self.place) from error

    def close(self) -> None:
        """Close the connections. See `Tables.close`."""
        self._postgres.close()
        self._end()

    def _end(self) -> None:
        """End the lease, and close its connection."""
        self._locking.roll_back()
        with suppress(StoreError):
            self._lease.release(self._locking)
        self._locking.close()


def _about(name: str, table: Table) -> Composed:
    """Return a statement about a table."""
    columns = [Identifier(column.name) for column in table.columns]
    comma = SQL(", ")
    return SQL(_STATEMENTS[name]).format(
        table=Identifier(table.name), columns=comma.join(columns), key=comma.join(columns[: table.key])
    )


def schemas(url: str) -> list[str]:
    """Return the schemas of rooms in a database."""
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_SECONDS) as made:
            return [row[0] for row in made.execute(_STATEMENTS["schemas"].encode())]
    except psycopg.Error as error:
        raise explain(error, place_of(url)) from error
