"""The tables of a home's databases as a whole, for a copy of the store.

New databases are written in a folder of the home, and appear under their names when they are complete. The process that
uses this module holds the lock of the home, so no hub uses them.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tieline.core.store import StoreError
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import IN_MEMORY, explain, newest_version, open_database, open_for_reading
from tieline.stores.sqlite.files import FILES_FILE
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import Words
from tieline.stores.statements import load
from tieline.stores.tables import TABLES, Column, Kind, Row, Table
from tieline.wire.folder import sync_folder

_STATEMENTS = load(files("tieline.stores.sqlite").joinpath("tables.sql").read_text(encoding="utf-8"))

# In the order in which they appear: a hub starts only if the main database is there.
_FILES = {"files": FILES_FILE, "activity": ACTIVITY_FILE, "main": MAIN_FILE}

_STAGE = ".copying"
_NAMES = {"activity_state": "log_state", "activity_reader": "reader", "log_offset": "offset"}
"""Names of tables and columns that are different here. `offset` is a keyword of PostgreSQL."""
_CHUNK_ROWS, _CHUNK_BYTES = 5000, 16 * 1024 * 1024
"""Largest number of rows that are written at once, and of bytes in them."""
_LOG_BYTES = 32 * 1024 * 1024
"""Size of the write-ahead log after which it is emptied, so that a copy needs little disk beside the database."""

_Convert = Callable[[Any], Any]


class SqliteTables:
    """Implementation of `Tables` for the databases of one folder: to read them or, with `writes`, to make them.

    Raise `StoreError` if they cannot be read, or if they are there and would be made.
    """

    def __init__(self, folder: Path, *, writes: bool) -> None:
        self.place = str(folder)
        self._folder = folder
        self._stage = folder / _STAGE
        self._connections: dict[str, apsw.Connection] = {}
        try:
            if writes:
                self._make()
            else:
                self._open()
        except (apsw.Error, OSError) as error:
            self.close()
            raise explain(error, folder / MAIN_FILE) from error
        except BaseException:
            self.close()
            raise
        self._words = Words(self._connections["main"])

    def _make(self) -> None:
        there = [name for name in _FILES.values() if (self._folder / name).exists()]
        if there:
            hint = "name a home without databases, or move these away"
            raise StoreError(f"{self._folder} is not empty: it has {', '.join(there)}", hint)
        # A killed process may have left it.
        shutil.rmtree(self._stage, ignore_errors=True)
        for part, name in _FILES.items():
            self._connections[part] = open_database(self._stage / name, part, synchronous="OFF")

    def _open(self) -> None:
        for part, name in _FILES.items():
            path = self._folder / name
            if part != "main" and not path.exists():
                # Only a hub that was used makes it.
                self._connections[part] = open_database(IN_MEMORY / name, part)
                continue
            self._connections[part] = open_for_reading(path)
            version, newest = self._connections[part].pragma("user_version"), newest_version(part)
            if version != newest:
                hint = "start the hub once with this program" if version < newest else "upgrade this program"
                raise StoreError(f"{path} has schema {version}, and this program knows {newest}", hint)

    def count(self, table: Table) -> int:
        """Return the number of rows of a table. See `Tables.count`."""
        (count,) = self._execute("count", table).fetchall()[0]
        assert isinstance(count, int), "a number"
        return count

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table. See `Tables.rows`."""
        converts = self._converts(table, _read)
        try:
            for row in self._execute("read", table):
                if converts:
                    values = list(row)
                    for at, convert in converts:
                        values[at] = convert(values[at])
                    yield tuple(values)
                else:
                    yield row
        except apsw.Error as error:
            raise explain(error, self._folder / _FILES[table.part]) from error

    def fill(self, table: Table, rows: Iterable[Row]) -> None:
        """Write all rows of a table. See `Tables.fill`."""
        connection = self._connections[table.part]
        converts = self._converts(table, _write)
        statement = self._statement("fill", table)
        try:
            if not table.key:
                self._execute("clear", table)
            for chunk in _chunks(rows):
                for values in chunk:
                    for at, convert in converts:
                        values[at] = convert(values[at])
                    if not table.key:
                        values.append(1)
                with connection:
                    connection.executemany(statement, chunk)
                    if self._words.fresh:
                        connection.executemany(QUERIES["insert_word"], self._words.fresh)
                        self._words.fresh.clear()
                self._make_room(table.part)
        except (apsw.Error, OSError) as error:
            raise explain(error, self._folder / _FILES[table.part]) from error

    def _make_room(self, part: str) -> None:
        log = Path(f"{self._stage / _FILES[part]}-wal")
        if log.stat().st_size > _LOG_BYTES:
            self._connections[part].wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def keep(self) -> None:
        """Sync the databases, and give them their names. See `Tables.keep`."""
        try:
            for part, name in _FILES.items():
                connection = self._connections.pop(part)
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                connection.close()
                with (self._stage / name).open("rb") as file:
                    os.fsync(file.fileno())
            for name in _FILES.values():
                (self._stage / name).rename(self._folder / name)
                sync_folder(self._folder)
        except (apsw.Error, OSError) as error:
            raise explain(error, self._folder / MAIN_FILE) from error

    def close(self) -> None:
        """Close the databases. See `Tables.close`."""
        while self._connections:
            self._connections.popitem()[1].close()
        shutil.rmtree(self._stage, ignore_errors=True)

    def _execute(self, name: str, table: Table) -> apsw.Cursor:
        return self._connections[table.part].execute(self._statement(name, table))

    @staticmethod
    def _statement(name: str, table: Table) -> str:
        columns = [_NAMES.get(column.name, column.name) for column in table.columns]
        # The one row of a table without a key has the number 1.
        every = columns if table.key or name != "fill" else [*columns, "only"]
        return _STATEMENTS[name].format(
            table=_NAMES.get(table.name, table.name),
            columns=", ".join(every),
            key=", ".join(columns[: table.key]) or columns[0],
            places=", ".join("?" * len(every)),
        )

    def _converts(self, table: Table, find: "Callable[[Column, str], _Convert | None]") -> list[tuple[int, _Convert]]:
        """Return the columns of a table whose values are in another form here, by index, with their conversion."""
        name = _NAMES.get(table.name, table.name)
        types = dict(self._connections[table.part].execute(_STATEMENTS["columns"], (name,)))
        found = []
        for at, column in enumerate(table.columns):
            convert = find(column, types[_NAMES.get(column.name, column.name)])
            if table.name == "log" and column.name == "event":
                convert = self._words.unpack if find is _read else self._words.pack
            if convert is not None:
                found.append((at, convert))
        return found


def _chunks(rows: Iterable[Row]) -> Iterator[list[list[Any]]]:
    """Yield rows in lists that are not large."""
    chunk: list[list[Any]] = []
    size = 0
    for row in rows:
        chunk.append(list(row))
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if len(chunk) == _CHUNK_ROWS or size > _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _read(column: Column, stored: str) -> _Convert | None:
    """Return the conversion of a column's values as they are stored here, in a column of the type `stored`."""
    if column.kind is Kind.BOOLEAN:
        return bool
    if column.kind is Kind.INTEGERS:
        return msgspec.json.decode
    return _encoded if column.kind is Kind.BYTES and stored == "TEXT" else None


def _write(column: Column, stored: str) -> _Convert | None:
    """Return the conversion of a column's values to be stored here, in a column of the type `stored`."""
    if column.kind is Kind.INTEGERS:
        return _listed
    return _decoded if column.kind is Kind.BYTES and stored == "TEXT" else None


def _encoded(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _listed(value: list[int]) -> str:
    return msgspec.json.encode(value).decode()


assert {table.part for table in TABLES} == set(_FILES), "each part has a file"
