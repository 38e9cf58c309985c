"""Reads and writes databases in the form of the first peerbus server.

The hub's log is exported to such a database, so that peerbus's tools can check the log. Waiting messages are imported
from such a database. Used by: `tieline audit export` and `tieline import`. Uses: SQLite; the statements are in
`database.sql`.
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
    """Exception: the file is not a database of a peerbus server, or it cannot be read or written."""


class Waiting(Struct, frozen=True):
    """Record of a message in a peerbus server's database that its recipient has not acknowledged."""

    key: str
    sender: str
    recipient: str
    envelope: bytes


class Copy(Struct, frozen=True):
    """Record of one delivery of a message to one recipient, for the export of the hub's log to a peerbus database."""

    number: int
    """The hub's number for the recipient."""
    place: int
    """The hub's key of the delivery: its number among all deliveries of the recipient."""
    key: str
    sender: str
    recipient: str


class Moves(Struct, frozen=True):
    """Record of a member's deliveries that were sent to the member, or that the member acknowledged.

    `kind` is `deliver` or `ack`. `ranges` has the keys of the deliveries. Each delivery becomes one row of the exported
    audit chain.
    """

    kind: str
    member: str
    number: int
    ranges: Keys


class Export:
    """Writer of a new peerbus database with an audit chain, for the export of the hub's log.

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
        """Add a peer to the database. `at_ms` is the time at which the peer was first seen."""
        self._connection.execute(_QUERIES["insert_peer"], (name, at_ms * _MS_NANOSECONDS, at_ms * _MS_NANOSECONDS))

    def add_sent(self, copies: Iterable[Copy], at_ms: int) -> None:
        """Add a message that the hub accepted at the time `at_ms`. `copies` has one entry for each recipient.

        The audit chain gets one row for each recipient.
        """
        for copy in copies:
            values = (copy.number, copy.place, copy.key, copy.sender, copy.recipient)
            self._connection.execute(_QUERIES["insert_delivery"], values)
            self._append(chain.encode_event(chain.SEND, copy.key, copy.sender, copy.recipient), at_ms)

    def add_forgotten(self, key: str, sender: str, to: str, at_ms: int) -> None:
        """Add a message that the hub accepted, but deleted later because of its age. `key` is the message's id.

        The audit chain gets one row.
        """
        self._append(chain.encode_event(chain.SEND, key, sender, to), at_ms)

    def add_moves(self, moves: Moves, at_ms: int) -> None:
        """Add deliveries that were sent to a member or acknowledged. The audit chain gets one row for each delivery.

        Skip deliveries that `add_sent` did not add, because their messages are deleted.
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
        """Commit and close the database. Return the number of rows in the audit chain."""
        self._connection.execute("COMMIT")
        self._connection.close()
        return self._end


class Source:
    """Reader of a peerbus server's database. All reads see the same state of the database."""

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
    """Return the value of a column as bytes. The value may have any type, because SQLite does not enforce types."""
    return value if isinstance(value, bytes) else str(value).encode()
