"""The tables that every store has, with their columns: the form in which a store is copied to another kind of store.

Rows have the values that PostgreSQL's columns have. A SQLite store has the same columns, some under another name or in
another form, and converts them. The search index is not among the tables, because a hub makes it again. The bytes of
files and the logins have ports of their own.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

Row = tuple[Any, ...]


class Kind(Enum):
    """Type of a column, by PostgreSQL's name."""

    INTEGER = "int8"
    SMALL = "int2"
    TEXT = "text"
    BYTES = "bytea"
    BOOLEAN = "bool"
    INTEGERS = "int8[]"


class Column(Struct, frozen=True):
    """One column of a table."""

    name: str
    kind: Kind


class Table(Struct, frozen=True):
    """A table of a store. The first columns are its key, in whose order its rows are read."""

    name: str
    part: str
    """Part of the store: `main`, `activity` or `files`."""
    columns: tuple[Column, ...]
    key: int
    """Number of columns of the key. A table without a key has exactly one row, which a new store has too."""


_KINDS = {"int": Kind.INTEGER, "small": Kind.SMALL, "text": Kind.TEXT, "bytes": Kind.BYTES, "bool": Kind.BOOLEAN}


def _table(part: str, name: str, key: int, *columns: str) -> Table:
    """Return a table. Each text has a kind and the columns of this kind that follow each other."""
    made = []
    for text in columns:
        kind, *names = text.split()
        made += [Column(each, Kind.INTEGERS if kind == "ints" else _KINDS[kind]) for each in names]
    return Table(name, part, tuple(made), key)


_READER = ("text name", "int position", "text set_by", "int at_ms missed missed_first missed_last", "bool warned")

TABLES = (
    _table(
        *("main", "member", 1, "int number", "text name kind", "bytes permissions", "text origin"),
        *("int created_at_ms since", "bytes title description instructions", "int removed_at_ms"),
    ),
    _table(
        "main",
        "token",
        1,
        "bytes digest",
        "int number created_at_ms expires_at_ms",
        "text id",
        "bytes label created_by",
    ),
    _table("main", "owner", 1, "int number", "bytes digest"),
    _table("main", "resumption", 1, "text id", "int number", "bytes digest previous", "int expires_at_ms"),
    _table("main", "setting", 1, "text key", "bytes value"),
    _table("main", "image", 1, "int number base", "bytes offsets stream_seqs rungs streams", "int last_seen_ms"),
    _table("main", "snapshot", 0, "int log_end"),
    _table("main", "channel", 1, "text id name created_by", "int created_at_ms archived_at_ms", "bytes spans"),
    _table("main", "channel_member", 2, "text channel", "int number", "text role", "int joined_at_ms"),
    _table(
        *("main", "objective", 1, "int serial", "text id", "int log_offset", "text status", "int assignee"),
        *("ints parties", "bytes content"),
    ),
    _table("main", "objective_party", 2, "int number serial", "text status", "int assignee"),
    _table("main", "objective_event", 1, "int log_offset serial at_ms", "text actor", "bytes event"),
    _table("main", "reader", 1, *_READER),
    _table("main", "log_state", 0, "text epoch", "int kept_from"),
    _table(
        *("main", "message", 1, "int log_offset", "text id sender protocol", "bytes wire_id", "text target"),
        *("int sent_at_ms expires_at_ms", "bool verified", "int hops", "text cause", "bytes content route"),
        *("text signature", "bool shared_id"),
    ),
    _table("main", "step", 4, "int number", "small state", "int last first log_offset"),
    _table("main", "fall", 4, "int number last first log_offset"),
    _table("main", "log", 1, "int log_offset at_ms", "bytes event hash"),
    _table("activity", "activity", 1, "int log_offset at_ms number", "bytes kind", "int ts_ms", "bytes event"),
    _table("activity", "activity_state", 0, "text epoch"),
    _table("activity", "activity_reader", 1, *_READER),
    _table(
        *("files", "entry", 1, "text path parent home kind owner", "int created_at_ms", "text created_by"),
        *("int updated_at_ms size", "text media_type digest"),
    ),
    _table("files", "share", 3, "text path viewer via", "int at_ms"),
)
"""All tables, in an order in which they can be filled: no row refers to a row of a later table."""

DERIVED = frozenset({"said", "search_progress", "search_again", "trail", "trail_end", "word"})
"""Tables that a store makes again from the others, or fills when it writes rows of the log."""


class Tables(Protocol):
    """Interface to the tables of one store, while no hub uses it. Not thread-safe."""

    @property
    def place(self) -> str:
        """The place of the store, for people."""

    def count(self, table: Table) -> int:
        """Return the number of rows of a table."""

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of a table, by key, with few of them in memory. Read them all before the next call."""

    def fill(self, table: Table, rows: Iterable[Row]) -> None:
        """Write all rows of a table that is empty, or the one row of a table without a key."""

    def keep(self) -> None:
        """Make everything durable that `fill` wrote, in one step. Before, the store stays empty."""

    def close(self) -> None:
        """Close the store, and drop what was written and not kept."""
