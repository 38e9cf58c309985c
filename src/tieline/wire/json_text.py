"""Functions on JSON text: they find strings, values and lone halves of surrogate pairs without decoding the text.

Used by: the codecs of protocols. Uses: nothing. This module does not know what the JSON means. Any client that may
connect can send messages of 16 MiB, so the work must be bounded. Each function reads and copies its text only a fixed
number of times. These functions use no regular expression with a repeated group. Such a pattern would either keep a
record of every repetition or need a possessive repeat. Python 3.11.2 has a bug in possessive repeats of groups.
"""

import re
from collections.abc import Iterator

VALUES_MAX = 100_000
"""Most JSON values in one body or batch. Commas and opening brackets are counted as values. It takes about 20 ms to
decode this many values, and all other clients wait during this time. Few messages have so much data. A sender can send
more data as a file or as one long text."""

HALVES_MAX = 100_000
"""Most lone halves of surrogate pairs that are replaced in one text. It takes 15 ms to replace this many. A usual text
has at most one lone half, at the place where a program cut the text."""

_VALUE_BYTES = 64
"""Number of bytes outside of strings that count as one value. So a number with millions of digits counts as many
values, because it takes long to decode."""

_PIECE_BYTES = 64 * 1024
"""Size in bytes of the part of a text that is searched for strings at once. A part of this size fits into the
processor's cache."""

_QUOTES_FEW = 256
"""Most quotation marks in one part of a text that are checked one by one for an escape. If a part has more quotation
marks, it is faster to call `masked` first."""

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
    """Return the text with each escaped backslash and each escaped quotation mark replaced by two zero bytes.

    The length stays the same. Each remaining quotation mark begins or ends a string. Each remaining backslash begins an
    escape of another character.
    """
    # The replacement goes from left to right: of three backslashes in a row, the third one escapes the next character.
    return text.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\0") if b"\\" in text else text


def without_strings(text: bytes) -> bytes:
    """Return the JSON text with all its strings removed; brackets, colons, commas, numbers and white space stay."""
    return b"".join(_outside(text))


def has_many_values(text: bytes, values_max: int = VALUES_MAX) -> bool:
    """Return true if a JSON text has more than `values_max` values.

    Each comma or opening bracket outside of strings counts as a value. Long numbers and long white space count, too:
    each `_VALUE_BYTES` bytes count as one value. The function stops as soon as it has counted enough.
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
    """Return the number of commas and opening brackets in a JSON text, including those inside strings."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _pieces(text: bytes) -> Iterator[bytes]:
    """Yield the text in parts of about `_PIECE_BYTES`.

    No part ends between a backslash and the character that it escapes.
    """
    start = 0
    while start < len(text):
        piece = text[start : start + _PIECE_BYTES]
        if _escapes(piece):
            piece = text[start : start + _PIECE_BYTES + 1]
        yield piece
        start += len(piece)


def _outside(text: bytes) -> Iterator[bytes]:
    """Yield the parts of a JSON text that are outside of its strings, in order."""
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
    """Return true if `part` ends with an odd number of backslashes.

    Then the last backslash escapes the next character.
    """
    end = len(part)
    if not part.endswith(b"\\"):
        return False
    for run in _RUNS:
        while part.endswith(run, 0, end):
            end -= len(run)
    return (len(part) - end) % 2 == 1


def mend_pairs(text: bytes) -> bytes:
    """Return the text with each escaped lone half of a surrogate pair replaced by U+FFFD. The length stays the same.

    The text is returned unchanged if it has more than `HALVES_MAX` lone halves. It is also returned unchanged if it has
    a zero byte, because then it is not JSON.
    """
    if b"\\" not in text or (rb"\ud" not in text and rb"\uD" not in text) or b"\0" in text:
        # The usual case. It also saves a copy of a text that is not JSON. One character is found ten times faster.
        return text
    # As `masked` does it, but so that it can be undone.
    hidden = text.replace(rb"\\", b"\0\0").replace(rb"\"", b"\0\1")
    mended, halves = _HALF_PAIR.subn(_REPLACEMENT, hidden, HALVES_MAX + 1)
    return text if halves > HALVES_MAX else mended.replace(b"\0\0", rb"\\").replace(b"\0\1", rb"\"")
