"""Lists of values as arrays in PostgreSQL's binary format, so that one statement inserts any number of rows.

The PostgreSQL store uses this module for the columns of many rows. This is faster than the driver's own way: the driver
sends lists as text, with two characters for each byte, and looks at each value to find the type.
"""

import struct
from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_BIGINT, _TEXT, _BYTEA, _BOOLEAN = 20, 25, 17, 16
_HEAD = struct.Struct("!iiIii")
_NULL = struct.pack("!i", -1)
_INTEGER = struct.Struct("!iq")


class _Column:
    """A list of values of one type; `None` is a value of every type."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values


class Bigints(_Column):
    """A list of integers for `bigint[]`."""

    __slots__ = ()


class Texts(_Column):
    """A list of texts for `text[]`."""

    __slots__ = ()


class Blobs(_Column):
    """A list of byte strings for `bytea[]`."""

    __slots__ = ()


class Booleans(_Column):
    """A list of truth values for `boolean[]`."""

    __slots__ = ()


def _array(element: int, packed: list[bytes], values: Sequence[Any]) -> bytes:
    """Return an array of one dimension from its packed elements. An empty array has no dimension."""
    if not packed:
        return struct.pack("!iiI", 0, 0, element)
    return b"".join((_HEAD.pack(1, int(None in values), element, len(packed), 1), *packed))


class _BigintsDumper(Dumper):
    format, oid = Format.BINARY, 1016

    def dump(self, obj: Bigints) -> Buffer:
        values = obj.values
        if values and None not in values:
            sized = [8] * (2 * len(values))
            sized[1::2] = values
            return _HEAD.pack(1, 0, _BIGINT, len(values), 1) + struct.pack("!" + "iq" * len(values), *sized)
        return _array(_BIGINT, [_NULL if one is None else _INTEGER.pack(8, one) for one in values], values)


class _TextsDumper(Dumper):
    format, oid = Format.BINARY, 1009

    def dump(self, obj: Texts) -> Buffer:
        return _array(_TEXT, [_sized(None if one is None else one.encode()) for one in obj.values], obj.values)


class _BlobsDumper(Dumper):
    format, oid = Format.BINARY, 1001

    def dump(self, obj: Blobs) -> Buffer:
        return _array(_BYTEA, [_sized(one) for one in obj.values], obj.values)


class _BooleansDumper(Dumper):
    format, oid = Format.BINARY, 1000

    def dump(self, obj: Booleans) -> Buffer:
        return _array(_BOOLEAN, [b"\0\0\0\1\1" if one else b"\0\0\0\1\0" for one in obj.values], obj.values)


def _sized(value: bytes | None) -> bytes:
    return _NULL if value is None else len(value).to_bytes(4, "big") + value


def register(connection: Connection[Any]) -> None:
    """Let a connection take these lists as parameters."""
    for kind, dumper in (
        (Bigints, _BigintsDumper),
        (Texts, _TextsDumper),
        (Blobs, _BlobsDumper),
        (Booleans, _BooleansDumper),
    ):
        connection.adapters.register_dumper(kind, dumper)
