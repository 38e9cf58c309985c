"""Large payloads: checks a large payload in pieces, so that no single step delays the other clients of a channel.

Used by: `connection`, which makes one step in each turn of the event loop. Uses: `codec`, whose rules each piece must
follow.

A payload of 16 MiB may hold a million small values. To decode them at once takes a second, and their objects take ten
times the memory of the text. So a payload is cut at commas between values. The brackets that are open at the two ends
of a piece are added, so that the piece is complete JSON. Then the piece is decoded by itself, and the decoded objects
are dropped. The result has the text of `msg`, and `data` as bytes. A payload with few values, however long they are, is
decoded at once.
"""

from collections.abc import Generator
from typing import Any

import msgspec

from tieline.protocols.agent_channels.codec import (
    NESTING_MAX,
    DecodeError,
    Message,
    count_names,
    decode,
    decode_json,
    invalid_json,
    invalid_shape,
)
from tieline.wire.json_text import masked, mend_pairs

LARGE_BYTES = 256 * 1024
"""Size in bytes up to which a payload (the JSON of a message) never counts as large. Such a payload is decoded in a few
milliseconds, whatever it contains."""
VALUES_MAX = 20_000
"""Largest number of commas, of `[` and of `{` in a payload that does not count as large. Such characters in strings
count, too. The payload is decoded in a few milliseconds, however long its values are."""

PIECE_BYTES = 32 * 1024
"""Size in bytes of a piece, the part of a large payload that is checked in one step. One step takes a few
milliseconds."""

NAMES_MAX = 100_000
"""Most names (keys) in all objects together that are open at the end of a piece. The check must remember these names to
find a repeated one. To store and to free this many takes about 10 ms. Few messages have so many."""

_CUT = "\0cut"
"""Placeholder key. A piece of a payload may begin inside nested objects. To make the piece complete JSON, the outer
objects are added again. Each of them has only this key, and the value of the key is the next inner array or object."""
_OPENERS = {b"["[0]: b"[", b"{"[0]: b'{"\\u0000cut":'}
_CLOSERS = {b"["[0]: b"]", b"{"[0]: b"}"}
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def is_large(payload: bytes) -> bool:
    """True if a payload (the JSON of a message) has so many values that it must be checked in several steps."""
    # To find the first character of a kind is ten times faster than to count.
    return len(payload) > LARGE_BYTES and any(
        sign in payload and payload.count(sign) > VALUES_MAX for sign in (b",", b"[", b"{")
    )


_ABSENT = msgspec.Raw(b"")


class _Top(msgspec.Struct):
    msg: str
    data: msgspec.Raw = _ABSENT


class LargeMessage(msgspec.Struct, frozen=True):
    """A message with so many values that its `data` is only checked, and not decoded. `data` is passed on as bytes."""

    payload: bytes
    """The whole message: valid JSON, without repeated names."""
    msg: str
    data: bytes | None
    """The object under the key `data`, as JSON. `None` if the message has no `data`."""
    extra: tuple[str, ...]
    """Names of the top-level keys other than `msg` and `data`."""

    def message(self) -> Message:
        """Return the whole message, decoded. Decoding may take a second, in which no other task runs."""
        return decode(self.payload)


class _Open:
    """A JSON array or object that has begun, but is not closed at the end of the checked part of a payload."""

    __slots__ = ("kind", "names")

    def __init__(self, kind: int, names: set[str]) -> None:
        # The opening bracket.
        self.kind = kind
        # Names (keys) of the object that were found so far. Empty for an array.
        self.names = names


class LargeCheck:
    """The check of one large payload in several steps. Call `step` until it returns a message.

    Each step checks one piece (a part of the payload).
    """

    def __init__(self, payload: bytes, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._payload = payload
        # The steps do not refer to this object, so that a check that is dropped is freed without the garbage collector.
        self._steps = _Pieces(payload, piece_bytes).check()

    def step(self) -> LargeMessage | None:
        """Check the next piece (part) of the payload. If all pieces were checked, return the message.

        Raises `DecodeError` if the payload is invalid.
        """
        try:
            next(self._steps)
        except StopIteration as end:
            message: LargeMessage = end.value
            return message
        except _BAD as error:
            raise DecodeError(invalid_json(self._payload)) from error
        return None


class _Pieces:
    """The pieces (parts) of a payload that is being checked: those that are checked, and the position of the next."""

    def __init__(self, payload: bytes, piece_bytes: int) -> None:
        self._payload = payload
        self._piece_bytes = piece_bytes
        # Position of the first byte that is not checked yet.
        self._start = 0
        # Containers that are open there, the outermost first.
        self._open: list[_Open] = []
        # The checked pieces. Half surrogate pairs in them are replaced.
        self._mended: list[bytes] = []
        self._names: set[str] = set()

    def check(self) -> Generator[None, None, LargeMessage]:
        """Check the whole payload. Yield after each part of the work, so that other clients are served."""
        while self._start <= len(self._payload):
            size = self._piece_bytes
            while (found := self._cut(size)) is None:
                # No comma: a long string.
                size *= 2
                yield
            cut, outside = found
            piece = mend_pairs(self._payload[self._start : cut])
            if len(piece) > 2 * PIECE_BYTES:
                yield
            last = cut == len(self._payload)
            self._decode(piece, outside, last=last)
            if not (last or self._open):
                raise msgspec.DecodeError("a comma after the whole value")
            self._start = cut + 1
            yield
        payload = b",".join(self._mended)
        self._mended.clear()
        yield
        return self._result(payload)

    def _cut(self, size: int) -> tuple[int, bytes] | None:
        """Return the end position of the next piece of the payload, and the text of the piece outside strings.

        The piece has about `size` bytes or fewer. It ends at its last comma outside strings, or at the end of the
        payload. Return None if the piece has no such comma.
        """
        end = min(self._start + size, len(self._payload))
        piece = self._payload[self._start : end]
        if end < len(self._payload):
            # Do not cut between a backslash and the character that it escapes. After an odd number of backslashes, take
            # one more byte.
            end += (len(piece) - len(piece.rstrip(b"\\"))) % 2
            piece = self._payload[self._start : end]
        parts = masked(piece).split(b'"')
        if end == len(self._payload):
            return end, b"".join(parts[::2])
        # Every second part is outside strings; a piece begins outside.
        for place in range((len(parts) - 1) // 2 * 2, -1, -2):
            if b"," in parts[place]:
                parts[place] = parts[place][: parts[place].rindex(b",")]
                cut = self._start + sum(map(len, parts[: place + 1])) + place
                return cut, b"".join(parts[: place + 1 : 2])
        return None

    def _decode(self, piece: bytes, outside: bytes, *, last: bool) -> None:
        """Check a piece of the payload: add the brackets that are open at its two ends, and decode the result.

        `outside` is the text of the piece outside strings. `last` is true for the last piece of the payload.
        """
        text = piece.strip(b" \t\r\n")
        # A piece ends after a value and begins before one.
        if not text or (not last and text[-1] in b"[{") or (self._open and text[0] in b"]}"):
            raise msgspec.DecodeError("a comma without a value")
        before = self._open
        closed, opened = _unmatched(outside)
        kept = before[: len(before) - closed] if closed <= len(before) else []
        if closed > len(before) or (last and (kept or opened)):
            raise msgspec.DecodeError("brackets do not match")
        head = b"".join(_OPENERS[one.kind] for one in before[:-1]) + bytes([before[-1].kind] if before else ())
        tail = b"".join(_CLOSERS[kind] for kind in (*reversed(opened), *(one.kind for one in reversed(kept))))
        value = decode_json(head + piece + tail)
        dummies = sum(one.kind == b"{"[0] for one in before[:-1])
        if count_names(value) - dummies != outside.count(b":"):
            raise msgspec.DecodeError("a repeated name")
        self._mended.append(piece)
        self._open = self._follow(value, before, kept, opened)

    def _follow(self, value: Any, before: list[_Open], kept: list[_Open], opened: bytes) -> list[_Open]:
        """Remember the names in objects that are only partly in this piece, and refuse a repeated name.

        `value` is the decoded piece. `before` are the arrays and objects that are open at the start of the piece.
        `kept` are those in `before` that the piece does not close. `opened` has the brackets that the piece opens and
        does not close. Return the arrays and objects that are open after the piece.
        """
        node = value
        for index, one in enumerate(before):
            if one.kind == b"{"[0]:
                names = node.keys() - {_CUT}
                if names & one.names:
                    raise msgspec.DecodeError("a repeated name")
                one.names |= names
            if index == 0:
                self._names = one.names
            if index + 1 < len(before):
                node = node[_CUT] if one.kind == b"{"[0] else node[0]
        node = value
        for one in kept[:-1]:
            node = node[_CUT] if one.kind == b"{"[0] else node[0]
        new: list[_Open] = []
        for index, kind in enumerate(opened):
            if index or kept:
                node = node[-1] if isinstance(node, list) else node[next(reversed(node))]
            new.append(_Open(kind, set(node) if kind == b"{"[0] else set()))
        if not before:
            self._names = new[0].names if new else set(value) if isinstance(value, dict) else set()
        found = [*kept, *new]
        if sum(len(one.names) for one in found) > NAMES_MAX:
            raise DecodeError(f"more than {NAMES_MAX} names in open objects")
        return found

    def _result(self, payload: bytes) -> LargeMessage:
        try:
            top = msgspec.json.decode(payload, type=_Top)
        except msgspec.ValidationError as error:
            raise DecodeError(invalid_shape(payload)) from error
        data = bytes(top.data) if "data" in self._names else None
        if not top.msg or (data is not None and not data.startswith(b"{")):
            raise DecodeError(invalid_shape(payload))
        return LargeMessage(payload, top.msg, data, tuple(sorted(self._names - {"msg", "data"})))


def _unmatched(outside: bytes) -> tuple[int, bytes]:
    """Count the brackets in a piece of a payload that have no partner in the same piece.

    `outside` is the text of the piece outside strings. Return the number of closing brackets whose arrays and objects
    began in earlier pieces, and the opening brackets that the piece does not close.
    """
    brackets = outside.translate(None, _NOT_BRACKETS)
    for _ in range(NESTING_MAX + 1):
        fewer = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if fewer == brackets:
            break
        brackets = fewer
    opened = brackets.lstrip(b"]}")
    if len(opened) > NESTING_MAX or opened.strip(b"[{"):
        raise msgspec.DecodeError("brackets do not match")
    return len(brackets) - len(opened), opened
