"""Compares the drivers of PostgreSQL for ADR 15: `python -m bench.postgres_driver URL` prints its table.

The database at URL gets the tables `driver_log` and `driver_message`. No lock has asyncpg: `pip install asyncpg` first.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg
import psycopg
import uvloop

from tieline.stores.postgres.columns import Bigints, Blobs, Texts, register

ROUNDS = 5
COMMITS = {1: 60, 10: 40, 100: 20, 1000: 5}
"""Number of measured commits by their number of messages."""
WARM_UP = 3

TABLES = """
DROP TABLE IF EXISTS driver_log, driver_message;
CREATE TABLE driver_log (log_offset bigint PRIMARY KEY, at_ms bigint, event bytea, hash bytea);
CREATE TABLE driver_message (log_offset bigint PRIMARY KEY, id text UNIQUE, sender text, content bytea, route bytea);
"""
LOG_ARRAYS = "INSERT INTO driver_log SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])"
MESSAGE_ARRAYS = (
    "INSERT INTO driver_message SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::bytea[])"
)
LOG_ROW = "INSERT INTO driver_log VALUES ($1, $2, $3, $4)"
MESSAGE_ROW = "INSERT INTO driver_message VALUES ($1, $2, $3, $4, $5)"

Rows = list[tuple[Any, ...]]
Commit = Callable[[Rows, Rows], None]


def rows(start: int, count: int) -> tuple[Rows, Rows]:
    event, content = b'{"event":"send","digest":"%b"}' % (b"a" * 200), b'{"body":"%b"}' % (b"x" * 100)
    offsets = range(start, start + count)
    log: Rows = [(offset, 1_700_000_000_000, event, os.urandom(32)) for offset in offsets]
    return log, [(offset, f"{offset:036}", "ada", content, b"\0" * 24) for offset in offsets]


class Psycopg:
    """The synchronous driver, with one connection."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)
        register(self._connection)
        self._connection.execute(TABLES.encode(), prepare=False)

    def arrays(self, log: Rows, messages: Rows) -> None:
        a, b, c, d = zip(*log, strict=True)
        e, f, g, h, i = zip(*messages, strict=True)
        with self._connection.pipeline():
            self._connection.execute("BEGIN")
            logged = (Bigints(a), Bigints(b), Blobs(c), Blobs(d))
            self._connection.execute(LOG_ARRAYS.encode(), logged, prepare=True)
            said = (Bigints(e), Texts(f), Texts(g), Blobs(h), Blobs(i))
            self._connection.execute(MESSAGE_ARRAYS.encode(), said, prepare=True)
            self._connection.execute("COMMIT")

    def each_row(self, log: Rows, messages: Rows) -> None:
        with self._connection.pipeline(), self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.executemany(LOG_ROW.encode(), log)
            cursor.executemany(MESSAGE_ROW.encode(), messages)
            cursor.execute("COMMIT")

    def copy(self, log: Rows, messages: Rows) -> None:
        types = (("driver_log", ["int8", "int8", "bytea", "bytea"], log),)
        more = (("driver_message", ["int8", "text", "text", "bytea", "bytea"], messages),)
        with self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for table, kinds, values in (*types, *more):
                with cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)".encode()) as copy:
                    copy.set_types(kinds)
                    for row in values:
                        copy.write_row(row)
            cursor.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


class Asyncpg:
    """The driver of asyncio, on an event loop that runs for each commit, as it would on the broker's thread."""

    def __init__(self, url: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._connection = self._run(asyncpg.connect(url))
        self._run(self._connection.execute(TABLES))
        self._log = self._run(self._connection.prepare(LOG_ARRAYS))
        self._message = self._run(self._connection.prepare(MESSAGE_ARRAYS))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def arrays(self, log: Rows, messages: Rows) -> None:
        async def commit() -> None:
            await self._connection.execute("BEGIN")
            await self._log.fetch(*map(list, zip(*log, strict=True)))
            await self._message.fetch(*map(list, zip(*messages, strict=True)))
            await self._connection.execute("COMMIT")

        self._run(commit())

    def each_row(self, log: Rows, messages: Rows) -> None:
        async def commit() -> None:
            await self._connection.execute("BEGIN")
            await self._connection.executemany(LOG_ROW, log)
            await self._connection.executemany(MESSAGE_ROW, messages)
            await self._connection.execute("COMMIT")

        self._run(commit())

    def copy(self, log: Rows, messages: Rows) -> None:
        async def commit() -> None:
            await self._connection.execute("BEGIN")
            await self._connection.copy_records_to_table("driver_log", records=log)
            await self._connection.copy_records_to_table("driver_message", records=messages)
            await self._connection.execute("COMMIT")

        self._run(commit())

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.close()


def measure(commit: Commit, size: int, count: int) -> float:
    """Return the processor time of this process per message, in microseconds."""
    batches = [rows(number * size, size) for number in range(count + WARM_UP)]
    for batch in batches[:WARM_UP]:
        commit(*batch)
    started = time.process_time()
    for batch in batches[WARM_UP:]:
        commit(*batch)
    return (time.process_time() - started) / count / size * 1e6


def main(arguments: Sequence[str]) -> None:
    (url,) = arguments
    ways = [(driver, way) for driver in (Psycopg, Asyncpg) for way in ("arrays", "each_row", "copy")]
    print("messages a commit", *(f"{driver.__name__} {way}" for driver, way in ways), sep=" | ")
    for size, count in COMMITS.items():
        found: dict[tuple[type, str], list[float]] = {each: [] for each in ways}
        for _ in range(ROUNDS):
            for driver, way in random.sample(ways, len(ways)):
                opened = driver(url)
                found[driver, way].append(measure(getattr(opened, way), size, count))
                opened.close()
        print(size, *(f"{statistics.median(found[each]):.1f}" for each in ways), sep=" | ")


if __name__ == "__main__":
    main(sys.argv[1:])
