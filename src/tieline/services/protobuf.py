"""Reader for Protocol Buffers, with the features that telemetry needs. The result is the same as from the JSON form.

Used by: `otlp`. Uses: nothing. A table describes a message: for each field its number, its name in JSON and its type.
Fields that are not in the table are skipped. The time is linear in the number of bytes: each byte is read once for each
level of nesting, and the number of levels is limited.
"""

import struct
from base64 import b64encode
from collections.abc import Mapping
from enum import Enum
from typing import Any, Union

from msgspec import Struct

_LEVELS_MAX = 64  # OTLP nests a few; this bounds the stack
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # the format's wire types
_VARINT_BYTES_MAX = 10  # 64 bits in groups of seven
_FIELD_MAX = 2**29  # the format has no larger field number
_double = struct.Struct("<d").unpack_from
_fixed64 = struct.Struct("<Q").unpack_from


class NotProtobuf(Exception):
    """Raised if the bytes are not a valid Protocol Buffers message."""


class Kind(Enum):
    """Type of a Protocol Buffers field that is not a nested message."""

    TEXT = _BYTES, "text"
    BYTES = _BYTES, "bytes"
    HEX = _BYTES, "hex"
    """Type of ids, which OTLP writes as hexadecimal digits in JSON."""
    BOOLEAN = _VARINT, "boolean"
    INTEGER = _VARINT, "integer"
    DOUBLE = _FIXED64, "double"
    FIXED64 = _FIXED64, "fixed64"

    @property
    def wire(self) -> int:
        """The field's wire type, by the numbers of the Protocol Buffers encoding."""
        return int(self.value[0])


class Field(Struct, frozen=True):
    """Description of one field of a message: its name in JSON and its type. `many` is true for a repeated field."""

    name: str
    kind: Union[Kind, "ProtobufMessage"]
    many: bool = False


class ProtobufMessage:
    """Description of one type of message. `fields` is set later, because descriptions may refer to each other."""

    def __init__(self) -> None:
        self.fields: Mapping[int, Field] = {}


def decode(data: bytes, message: ProtobufMessage) -> dict[str, Any]:
    """Return the fields of an encoded message, by their JSON names. Raise `NotProtobuf` if the bytes are not valid."""
    try:
        return _decode(data, 0, len(data), message, _LEVELS_MAX)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise NotProtobuf("the message is cut short or holds text that is not UTF-8") from None


def _decode(data: bytes, at: int, end: int, message: ProtobufMessage, levels: int) -> dict[str, Any]:
    if levels == 0:
        raise NotProtobuf(f"the message is nested deeper than {_LEVELS_MAX} levels")
    values: dict[str, Any] = {}
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < _FIELD_MAX:
            raise NotProtobuf("a field has a number that none can have")
        start, at = _extent(data, at, end, wire)
        field = message.fields.get(number)
        if field is None:
            continue
        expected = _BYTES if isinstance(field.kind, ProtobufMessage) else field.kind.wire
        if wire != expected:
            raise NotProtobuf(f"the field {field.name} has the wrong wire type")
        value: Any
        if isinstance(field.kind, ProtobufMessage):
            value = _decode(data, start, at, field.kind, levels - 1)
        else:
            value = _value(data, start, at, field.kind)
        if field.many:
            values.setdefault(field.name, []).append(value)
        else:
            values[field.name] = value
    return values


def _extent(data: bytes, at: int, end: int, wire: int) -> tuple[int, int]:
    """Return the start and the end of the field value at position `at`. `wire` is the value's wire type.

    `end` is the end of the message. Raise `NotProtobuf` if the value is longer than the message.
    """
    match wire:
        case 0:
            return at, _varint(data, at, end)[1]
        case 1:
            start, stop = at, at + 8
        case 2:
            length, start = _varint(data, at, end)
            stop = start + length
        case 5:
            start, stop = at, at + 4
        case _:
            raise NotProtobuf("a field has a wire type that is not in use")
    if stop > end:
        raise NotProtobuf("a field is longer than its message")
    return start, stop


def _value(data: bytes, start: int, end: int, kind: Kind) -> Any:
    match kind:
        case Kind.TEXT:
            return data[start:end].decode()
        case Kind.BYTES:
            return b64encode(data[start:end]).decode("ascii")
        case Kind.HEX:
            return data[start:end].hex()
        case Kind.BOOLEAN:
            return _varint(data, start, end)[0] != 0
        case Kind.INTEGER:
            number = _varint(data, start, end)[0]
            return number - 2**64 if number >= 2**63 else number
        case Kind.DOUBLE:
            return _double(data, start)[0]
        case Kind.FIXED64:
            return _fixed64(data, start)[0]


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        if at >= end:
            raise NotProtobuf("the message is cut short")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004 - the top bit says that more follows
            return number & (2**64 - 1), at
    raise NotProtobuf("a number is too long")
