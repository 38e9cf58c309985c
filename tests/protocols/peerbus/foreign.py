"""Test helpers that write and check the first peerbus broker's database, from its documented format alone."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"

_SCHEMA = """
CREATE TABLE peers (name TEXT PRIMARY KEY, registered INTEGER NOT NULL DEFAULT 0, ts INTEGER NOT NULL);
CREATE TABLE messages (id TEXT NOT NULL UNIQUE, sender TEXT NOT NULL, recipient TEXT NOT NULL, envelope BLOB NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0, acked INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
    seq INTEGER NOT NULL, ts INTEGER NOT NULL);
CREATE TABLE sender_seq (sender TEXT PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER NOT NULL UNIQUE, prev_hash TEXT NOT NULL,
    hash TEXT NOT NULL, event BLOB NOT NULL, ts INTEGER NOT NULL);
"""


def audit_events(path: Path) -> list[dict[str, str]]:
    """Check an audit chain row by row, like the first broker's verifier. Return its events."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT seq, prev_hash, hash, event, ts FROM audit ORDER BY seq").fetchall()
    previous = EMPTY
    events = []
    for index, (seq, prev_hash, digest, event, ts) in enumerate(rows):
        assert seq == index, f"row {index} is missing"
        assert prev_hash == previous, f"row {seq} does not follow"
        assert digest == blake3(prev_hash.encode("ascii") + event).hexdigest(), f"row {seq} was changed"
        assert isinstance(event, bytes)
        assert ts > 1_600_000_000 * 10**9
        previous = digest
        decoded = json.loads(event)
        assert list(decoded) == ["event", "id", "from", "to"]
        assert b" " not in event.replace(json.dumps(decoded["id"]).encode(), b"")
        events.append(decoded)
    return events


def flip_each_column(path: Path) -> Iterator[int]:
    """Change one bit in each column of each row of the chain, one at a time.

    Yield the row number while it is changed.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        rows = database.execute("SELECT seq, prev_hash, hash, event FROM audit ORDER BY seq").fetchall()
        for seq, prev_hash, digest, event in rows:
            spoiled = {
                "prev_hash": _flipped(prev_hash.encode(), seq).decode(),
                "hash": _flipped(digest.encode(), seq).decode(),
                "event": _flipped(event, seq),
                "seq": seq ^ (1 << 20),
            }
            whole = {"prev_hash": prev_hash, "hash": digest, "event": event, "seq": seq}
            for column, value in spoiled.items():
                row = value if column == "seq" else seq
                database.execute(f"UPDATE audit SET {column} = ? WHERE seq = ?", (value, seq))
                yield seq
                database.execute(f"UPDATE audit SET {column} = ? WHERE seq = ?", (whole[column], row))


def _flipped(text: bytes, place: int) -> bytes:
    place %= len(text)
    return text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]


def make_database(
    path: Path, peers: list[str], messages: list[tuple[str, str, str, bytes, bool]], events: int = 3
) -> None:
    """Write a database of the first broker. Each message is (key, sender, recipient, envelope, acked)."""
    with sqlite3.connect(path) as database:
        database.executescript(_SCHEMA)
        for number, name in enumerate(peers):
            database.execute("INSERT INTO peers VALUES (?, ?, ?)", (name, number, number))
        for number, (key, sender, recipient, made, acked) in enumerate(messages):
            values = (key, sender, recipient, made, acked, number)
            insert = (
                "INSERT INTO messages (id, sender, recipient, envelope, acked, seq, ts) VALUES (?, ?, ?, ?, ?, ?, 0)"
            )
            database.execute(insert, values)
        previous = EMPTY
        for seq in range(events):
            event = b'{"event":"send","id":"%d","from":"a","to":"b"}' % seq
            digest = blake3(previous.encode() + event).hexdigest()
            insert = "INSERT INTO audit (seq, prev_hash, hash, event, ts) VALUES (?, ?, ?, ?, 0)"
            database.execute(insert, (seq, previous, digest, event))
            previous = digest
    database.close()


def digest_of(path: Path) -> str:
    """Return the digest of a file, so that a test can see if it changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
