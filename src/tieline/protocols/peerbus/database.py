"""Reads and writes databases in the form of the first peerbus server.

They are written so that peerbus's tools can check the hub's log, and read so that waiting messages can be imported.
Used by: `tieline audit export` and `tieline import`. Uses: SQLite; the statements are in `database.sql`.
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
    """One delivery of a message to one recipient, for the export of the hub's log to a peerbus database."""

    number: int
    """The hub's number for the recipient."""
    place: int
    """The hub's key of the delivery. Keys count the deliveries of one recipient."""
    key: str
    sender: str
    recipient: str


class Moves(Struct, frozen=True):
    """The keys of one member's deliveries, as ranges, that were sent to the member or that the member acknowledged.

    `kind` is `deliver` or `ack`. Each delivery becomes one row of the exported audit chain.
    """

    kind: str
    member: str
    number: int
    ranges: Keys


class Export:
    """A new peerbus database with an audit chain, to which the events of the hub's log are exported.

    Events must be added in the order of the log.
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
        """Add a peer with this name, which was first seen at this time."""
        self._connection.execute(_QUERIES["insert_peer"], (name, at_ms * _MS_NANOSECONDS, at_ms * _MS_NANOSECONDS))

    def add_sent(self, copies: Iterable[Copy], at_ms: int) -> None:
        """Add a message that the hub accepted. The chain gets one row for each recipient."""
        for copy in copies:
            values = (copy.number, copy.place, copy.key, copy.sender, copy.recipient)
            self._connection.execute(_QUERIES["insert_delivery"], values)
            self._append(chain.encode_event(chain.SEND, copy.key, copy.sender, copy.recipient), at_ms)

    def add_forgotten(self, key: str, sender: str, to: str, at_ms: int) -> None:
        """Add a message that the hub accepted, and later deleted by its retention. `key` is the message's id."""
        self._append(chain.encode_event(chain.SEND, key, sender, to), at_ms)

    def add_moves(self, moves: Moves, at_ms: int) -> None:
        """Add deliveries that were sent to a member or acknowledged. The chain gets one row for each delivery.

        Deliveries that `add_sent` did not add are skipped, because their messages are deleted.
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
        """Return the names of all peers that ever registered."""
        return [str(row[0]) for row in self._connection.execute(_QUERIES["peers"])]

    def waiting(self) -> Iterator[Waiting]:
        """Yield the unacknowledged messages, in the order in which they were sent."""
        for key, sender, recipient, envelope in self._connection.execute(_QUERIES["unacknowledged"]):
            yield Waiting(str(key), str(sender), str(recipient), _bytes(envelope))

    def chain_break(self) -> str | None:
        """Return a text about the first wrong or missing row of the audit chain; `None` if the chain is intact."""
        rows = self._connection.execute(_QUERIES["audit"])
        return chain.first_break(Link(seq, previous, digest, _bytes(event)) for seq, previous, digest, event in rows)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def _bytes(value: object) -> bytes:
    """Return the value of a column as bytes. It may have another type, because SQLite does not enforce types."""
    return value if isinstance(value, bytes) else str(value).encode()
