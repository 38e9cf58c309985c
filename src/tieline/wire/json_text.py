"""Functions on JSON that is still text: they find strings, values and lone halves of surrogate pairs without decoding.

Above: the codecs of protocols. Below: nothing. This module does not know what the JSON means. Any client that may
connect can send frames of 16 MiB, so the work must be bounded. Each function reads its text a fixed number of times,
and copies the text at most as often. A regular expression with a repeated group is no choice here. Such a pattern would
either keep a record of every repetition or need a possessive repeat, and Python 3.11.2 has a bug in possessive repeats
of groups.
"""

import re
from collections.abc import Iterator

VALUES_MAX = 100_000
"""Values of one body or frame: its commas, and its opening brackets. To decode so many takes some 20 ms, and everybody
else waits meanwhile. Few messages have as much data, and a file or a longer text can carry it."""

HALVES_MAX = 100_000
"""Lone halves of surrogate pairs that are replaced in one text, which takes 15 ms. A text that was cut has one."""

_VALUE_BYTES = 64
"""Bytes outside of strings that count as a value: a number of millions of digits must not take long, either."""

_PIECE_BYTES = 64 * 1024
"""Size of a piece of text that is searched for strings: it stays in the processor's cache."""

_QUOTES_FEW = 256
"""Quotation marks in a piece up to which each is looked at, which is quicker than to mask those that are escaped."""

# Backslashes, to find the length of a run of them by a few comparisons.
_RUNS = tuple(b"\\" * 2**power for power in range(16, -1, -2))

# In a masked text: a high surrogate without a low one after it, or a low surrogate without a high one before it.
_HALF_PAIR = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
# U+FFFD, as the template of a replacement.
_REPLACEMENT = rb"\\ufffd"


def masked(text: bytes) -> bytes:
    """Return the text with each escaped backslash and escaped quotation mark overwritten by two zero bytes.

    The length stays the same. Each quotation mark that is left begins or ends a string. Each backslash that is left
    begins an escape of another character.
    """
    # The replacement goes from left to right: of three backslashes in a row, the third one escapes the next character.
    return text.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0") if b"\\" in text else text


def without_strings(text: bytes) -> bytes:
    """Return the JSON text with all its strings removed; brackets, colons, commas, numbers and white space stay."""
    return b"".join(_outside(text))


def has_many_values(text: bytes, values_max: int = VALUES_MAX) -> bool:
    """True if a JSON text has more than `values_max` commas and opening brackets outside of its strings.

    It stops at the first piece with too many, and spends little time on long strings. Digits and white space count,
    too, if they are much longer than any number is.
    """
    if len(text) <= values_max:
        return False
    values = 0
    for piece in _outside(text):
        values += max(estimate_values(piece), len(piece) // _VALUE_BYTES)
        if values > values_max:
            return True
    return False


def estimate_values(text: bytes) -> int:
    """Return the number of commas and opening brackets in a JSON text. Those in strings count, too."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _pieces(text: bytes) -> Iterator[bytes]:
    """Yield the text in pieces. No piece ends between a backslash and the character that it escapes."""
    start = 0
    while start < len(text):
        piece = text[start : start + _PIECE_BYTES]
        if _escapes(piece):
            piece = text[start : start + _PIECE_BYTES + 1]
        yield piece
        start += len(piece)


def _outside(text: bytes) -> Iterator[bytes]:
    """Yield the pieces of a JSON text without strings."""
    inside = 0
    for piece in _pieces(text):
        parts = piece.split(b'"', _QUOTES_FEW)
        if len(parts) > _QUOTES_FEW or (len(parts) > 1 and any(part.endswith(b"\\") for part in parts)):
            # Perhaps a quotation mark is escaped.
            parts = masked(piece).split(b'"')
        yield b"".join(parts[inside::2])
        # An odd number of quotation marks: the next piece begins where this one did not.
        inside ^= (len(parts) - 1) % 2


def _escapes(part: bytes) -> bool:
    """True if a part of a text ends with a backslash that escapes the next character: with an odd number of them."""
    end = len(part)
    if not part.endswith(b"\\"):
        return False
    for run in _RUNS:
        while part.endswith(run, 0, end):
            end -= len(run)
    return (len(part) - end) % 2 == 1


def mend_pairs(text: bytes) -> bytes:
    """Return the text with U+FFFD in place of each escaped lone half of a surrogate pair. Its length is the same.

    A text with more than `HALVES_MAX` halves, or with a zero byte, which no JSON has, is returned as it is.
    """
    if (rb"\ud" not in text and rb"\uD" not in text) or b"\0" in text:
        # The usual case. It also saves a copy of a text that is not JSON.
        return text
    # As `masked` does it, but so that it can be undone.
    hidden = text.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\1")
    mended, halves = _HALF_PAIR.subn(_REPLACEMENT, hidden, HALVES_MAX + 1)
    return text if halves > HALVES_MAX else mended.replace(b"\0\0", rb"\\").replace(b"\0\1", rb"\"")
