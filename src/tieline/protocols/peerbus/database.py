"""A database of the first peerbus server: written so that its tools can check it, read to import waiting messages.

Above: `tieline audit export` and `tieline import`. Below: SQLite; the statements are in `database.sql`.
"""

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

import apsw
from msgspec import Struct

from tieline.contract.keys import Keys
from tieline.protocols.peerbus import chain
from tieline.protocols.peerbus.chain import Link

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_MS_NANOSECONDS = 1_000_000


def _statements() -> dict[str, str]:
    text = files("tieline.protocols.peerbus").joinpath("database.sql").read_text(encoding="utf-8")
    parts = _NAME.split(text)[1:]
    return {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}


_QUERIES = _statements()


class DatabaseError(Exception):
    """The file is not a database of a peerbus server, or it cannot be read or written."""


class Waiting(Struct, frozen=True):
    """A message in a peerbus server's database that its recipient has not acknowledged."""

    key: str
    sender: str
    recipient: str
    envelope: bytes


class Copy(Struct, frozen=True):
    """One recipient's delivery of a message, for an export of the hub's log to a peerbus database."""

    number: int
    """Number of the recipient in the hub."""
    place: int
    """Key of the delivery: its number among the recipient's deliveries."""
    key: str
    sender: str
    recipient: str


class Moves(Struct, frozen=True):
    """Deliveries of one member that were given to it, or that it acknowledged, as ranges of their keys.

    `kind` says which of both; each delivery becomes a row of the exported audit chain.
    """

    kind: str
    member: str
    number: int
    ranges: Keys


class Export:
    """A new peerbus database with an audit chain in it, made from the hub's log.

    Rows must be added in the order of the log.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._connection = apsw.Connection(str(path))
            self._connection.execute("BEGIN")
            self._connection.execute(_QUERIES["schema"])
            self._connection.execute(_QUERIES["deliveries"])
        except apsw.Error as error:
            raise DatabaseError(f"{path} cannot be written: {error}") from error
        self._end = 0
        self._head = chain.GENESIS

    def add_peer(self, name: str, at_ms: int) -> None:
        """Add the name of a peer, first seen at this time."""
        self._connection.execute(_QUERIES["insert_peer"], (name, at_ms * _MS_NANOSECONDS, at_ms * _MS_NANOSECONDS))

    def add_sent(self, copies: Iterable[Copy], at_ms: int) -> None:
        """Add an accepted message: one row in the chain for each of its recipients."""
        for copy in copies:
            values = (copy.number, copy.place, copy.key, copy.sender, copy.recipient)
            self._connection.execute(_QUERIES["insert_delivery"], values)
            self._append(chain.encode_event(chain.SEND, copy.key, copy.sender, copy.recipient), at_ms)

    def add_forgotten(self, key: str, sender: str, to: str, at_ms: int) -> None:
        """Add an accepted message that the hub's retention has deleted since. `key` is its id."""
        self._append(chain.encode_event(chain.SEND, key, sender, to), at_ms)

    def add_moves(self, moves: Moves, at_ms: int) -> None:
        """Add deliveries that were given or acknowledged: one row in the chain for each.

        Only deliveries that `add_sent` has added count; others belong to deleted messages.
        """
        for first, last in moves.ranges:
            found = self._connection.execute(_QUERIES["find_deliveries"], (moves.number, first, last)).fetchall()
            for key, sender, recipient in (map(str, row) for row in found):
                if moves.kind == chain.ACK:
                    self._append(chain.encode_event(chain.ACK, key, moves.member, ""), at_ms)
                else:
                    self._append(chain.encode_event(chain.DELIVER, key, sender, recipient), at_ms)

    def _append(self, event: bytes, at_ms: int) -> None:
        digest = chain.follow(self._head, event)
        values = (self._end, self._head, digest, event, at_ms * _MS_NANOSECONDS)
        self._connection.execute(_QUERIES["insert_audit"], values)
        self._end += 1
        self._head = digest

    def finish(self) -> int:
        """Commit and close the database. Return the number of rows in the chain."""
        self._connection.execute("COMMIT")
        self._connection.close()
        return self._end


class Source:
    """The database of a peerbus server, open for reading. All reads see the same state."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DatabaseError(f"there is no file {path}")
        try:
            self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            self._connection.execute("BEGIN")
            self._connection.execute(_QUERIES["peers"]).fetchone()
            self._connection.execute(_QUERIES["unacknowledged"]).fetchone()
        except apsw.Error as error:
            raise DatabaseError(f"{path} is no database of a peerbus broker: {error}") from error

    def peers(self) -> list[str]:
        """Return every name that ever registered."""
        return [str(row[0]) for row in self._connection.execute(_QUERIES["peers"])]

    def waiting(self) -> Iterator[Waiting]:
        """Yield the unacknowledged messages, in the order in which they were sent."""
        for key, sender, recipient, envelope in self._connection.execute(_QUERIES["unacknowledged"]):
            yield Waiting(str(key), str(sender), str(recipient), _bytes(envelope))

    def chain_break(self) -> str | None:
        """Describe the first break in the audit chain; `None` if the chain is intact."""
        rows = self._connection.execute(_QUERIES["audit"])
        return chain.first_break(Link(seq, previous, digest, _bytes(event)) for seq, previous, digest, event in rows)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def _bytes(value: object) -> bytes:
    """Return a column's value as bytes; SQLite may store the value with any type."""
    return value if isinstance(value, bytes) else str(value).encode()
