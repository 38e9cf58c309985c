"""Homes whose log somebody has changed, and what a plain walk along it finds."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from blake3 import blake3

from tieline.pipeline import verify as audit
from tieline.pipeline.sqlite_log import SqliteLog
from tieline.pipeline.verify import Page, VerifyFinding

OTHER = b'{"event":"pause","thread":"x"}'


@contextmanager
def rows(home: Path) -> Iterator[sqlite3.Connection]:
    """The database of a home, to be changed."""
    with closing(sqlite3.connect(home / "tieline.db", isolation_level="IMMEDIATE")) as database:
        # The file is a copy that nobody needs for long.
        database.execute("PRAGMA synchronous = OFF")
        with database:
            yield database


def copied(home: Path, to: Path, *more: str) -> Path:
    """A home of its own with the same log, and with more of its files."""
    to.mkdir()
    for name in ("tieline.db", *more):
        shutil.copy(home / name, to / name)
    return to


# Ways to damage a row.


def change(database: sqlite3.Connection, offset: int) -> None:
    """Let a row say something else."""
    database.execute("UPDATE log SET event = ? WHERE offset = ?", (OTHER, offset))


def move_time(database: sqlite3.Connection, offset: int) -> None:
    """Let a row have happened three hours later."""
    database.execute("UPDATE log SET at_ms = at_ms + 10800000 WHERE offset = ?", (offset,))


def rehash(database: sqlite3.Connection, offset: int) -> None:
    """Give a row another hash."""
    database.execute("UPDATE log SET hash = ? WHERE offset = ?", (blake3(b"other").digest(), offset))


def drop(database: sqlite3.Connection, offset: int) -> None:
    """Take a row away."""
    database.execute("DELETE FROM log WHERE offset = ?", (offset,))


def swap(database: sqlite3.Connection, offset: int) -> None:
    """Put a row in the place of the one before it, or the first one behind the next."""
    other = offset - 1 if offset else 1
    for old, new in ((offset, -1), (other, offset), (-1, other)):
        database.execute("UPDATE log SET offset = ? WHERE offset = ?", (new, old))


def double(database: sqlite3.Connection, offset: int) -> None:
    """Let a row be there twice; what follows moves on by one."""
    database.execute("UPDATE log SET offset = -offset WHERE offset > ?", (offset,))
    database.execute(
        "INSERT INTO log SELECT offset + 1, at_ms, event, hash FROM log WHERE offset = ?",
        (offset,),
    )
    database.execute("UPDATE log SET offset = 1 - offset WHERE offset < 0")


def link(database: sqlite3.Connection, offset: int, untimed: range = range(0)) -> None:
    """Link a row and all that follows anew, as somebody would who knows how the chain is made.

    The hashes of the rows `untimed` do not cover their times, as those of an older program.
    """
    found = database.execute("SELECT hash FROM log WHERE offset < ? ORDER BY offset DESC LIMIT 1", (offset,)).fetchone()
    before = found[0] if found else blake3(b"").digest()
    later = database.execute("SELECT offset, at_ms, event FROM log WHERE offset >= ? ORDER BY offset", (offset,))
    linked = []
    for place, at_ms, event in later.fetchall():
        time = b"" if place in untimed else str(at_ms).encode()
        before = blake3(before.hex().encode() + time + event).digest()
        linked.append((before, place))
    database.executemany("UPDATE log SET hash = ? WHERE offset = ?", linked)


def bridge(database: sqlite3.Connection, offset: int) -> None:
    """Take a row away and hide that."""
    drop(database, offset)
    link(database, offset)


DAMAGES: dict[str, Callable[[sqlite3.Connection, int], None]] = {
    one.__name__: one for one in (change, move_time, rehash, drop, swap, double, bridge)
}


# Findings.


def walked(home: Path) -> list[tuple[int, bool]]:
    """Every row and whether it follows from the one before it, one after the other."""
    found = []
    before, expected = blake3(b"").digest(), 0
    with rows(home) as database:
        for offset, at_ms, event, own in database.execute("SELECT offset, at_ms, event, hash FROM log ORDER BY offset"):
            told = before.hex().encode() + str(at_ms).encode() + event
            found.append((offset, offset == expected and blake3(told).digest() == own))
            before, expected = own, offset + 1
    return found


def pages_of(home: Path) -> list[Page]:
    """Pages as workers would count them."""
    log = SqliteLog(str(home), audit=True)
    batches = list(log.read("main", 0, log.end("main")))
    table = pa.Table.from_batches(batches).to_pylist() if batches else []
    counted: dict[int, list[dict[str, object]]] = {}
    for row in table:
        counted.setdefault(row["offset"] // audit.PAGE_ROWS, []).append(row)
    return [
        Page(
            number,
            len(page),
            max(int(str(row["offset"])) for row in page),
            sum(
                not row["chained"] or row["sealed"] is False or row["signature"] in ("failed", "misnamed")
                for row in page
            ),
            sum(row["kind"] == "send" for row in page),
            sum(row["protocol"] == "peerbus" for row in page),
        )
        for number, page in counted.items()
    ]


def told(home: Path) -> list[VerifyFinding]:
    """Findings of an audit of a home, without Spark; findings about signatures are left out."""
    options = {"home": str(home), "logs": "main", "audit": "true"}
    return [one for one in audit.tell(options, pages_of(home)) if one.kind != "signature"]
