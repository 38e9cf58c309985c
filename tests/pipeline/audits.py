"""Test helpers that damage the log of a home, and that find the damage with a simple check of each row."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
from blake3 import blake3

from tieline.pipeline import verify as audit
from tieline.pipeline.sqlite_log import SqliteLog
from tieline.pipeline.verify import Page
from tieline.pipeline.verify_report import VerifyFinding

OTHER = b'{"event":"pause","thread":"x"}'


@contextmanager
def rows(home: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of a home, to change it. Commit at the end."""
    with closing(sqlite3.connect(home / "tieline.db", isolation_level="IMMEDIATE")) as database:
        # The file is a copy that nobody needs for long.
        database.execute("PRAGMA synchronous = OFF")
        with database:
            yield database


def copied(home: Path, to: Path, *more: str) -> Path:
    """Copy the log of a home into the new home `to`, with the files named in `more`. Return `to`."""
    to.mkdir()
    for name in ("tieline.db", *more):
        shutil.copy(home / name, to / name)
    return to


# Ways to damage a row.


def change(database: sqlite3.Connection, offset: int) -> None:
    """Replace the event of a row by another event."""
    database.execute("UPDATE log SET event = ? WHERE offset = ?", (OTHER, offset))


def move_time(database: sqlite3.Connection, offset: int) -> None:
    """Move the time of a row three hours forward."""
    database.execute("UPDATE log SET at_ms = at_ms + 10800000 WHERE offset = ?", (offset,))


def rehash(database: sqlite3.Connection, offset: int) -> None:
    """Replace the hash of a row by another hash."""
    database.execute("UPDATE log SET hash = ? WHERE offset = ?", (blake3(b"other").digest(), offset))


def drop(database: sqlite3.Connection, offset: int) -> None:
    """Delete a row."""
    database.execute("DELETE FROM log WHERE offset = ?", (offset,))


def swap(database: sqlite3.Connection, offset: int) -> None:
    """Swap a row with the row before it. Swap the first row with the second."""
    other = offset - 1 if offset else 1
    for old, new in ((offset, -1), (other, offset), (-1, other)):
        database.execute("UPDATE log SET offset = ? WHERE offset = ?", (new, old))


def double(database: sqlite3.Connection, offset: int) -> None:
    """Insert a copy of a row after it. The offsets of the following rows grow by one."""
    database.execute("UPDATE log SET offset = -offset WHERE offset > ?", (offset,))
    database.execute(
        "INSERT INTO log SELECT offset + 1, at_ms, event, hash FROM log WHERE offset = ?",
        (offset,),
    )
    database.execute("UPDATE log SET offset = 1 - offset WHERE offset < 0")


def link(database: sqlite3.Connection, offset: int, untimed: range = range(0)) -> None:
    """Compute the hashes of a row and of all following rows again, as an attacker who knows the formula would do.

    The hashes of the rows in `untimed` do not cover their times, as in logs of an older version.
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
    """Delete a row, and compute the following hashes again to hide that."""
    drop(database, offset)
    link(database, offset)


DAMAGES: dict[str, Callable[[sqlite3.Connection, int], None]] = {
    one.__name__: one for one in (change, move_time, rehash, drop, swap, double, bridge)
}


# Findings.


def walked(home: Path) -> list[tuple[int, bool]]:
    """Check each row with the row before it.

    Return the offset of each row, and true if its offset and hash are right.
    """
    found = []
    before, expected = blake3(b"").digest(), 0
    with rows(home) as database:
        for offset, at_ms, event, own in database.execute("SELECT offset, at_ms, event, hash FROM log ORDER BY offset"):
            told = before.hex().encode() + str(at_ms).encode() + event
            found.append((offset, offset == expected and blake3(told).digest() == own))
            before, expected = own, offset + 1
    return found


def pages_of(home: Path) -> list[Page]:
    """Return the counts of each page of a log, as the workers of an audit compute them."""
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
            # Steps of deliveries have a protocol too. Only messages have a signature.
            sum(row["protocol"] == "peerbus" and bool(row["signature"]) for row in page),
        )
        for number, page in counted.items()
    ]


def told(home: Path) -> list[VerifyFinding]:
    """Audit a home without Spark. Return the findings, without those about signatures."""
    options = {"home": str(home), "logs": "main", "audit": "true"}
    return [one for one in audit.tell(options, pages_of(home)) if one.kind != "signature"]
