"""Prefix ids: another form of message ids, in which the first eight characters are enough to tell messages apart.

Used by: protocols whose clients show and accept only the beginning of an id. The hub's own ids are UUIDv7. They begin
with the time, so all ids of about a minute begin alike. A prefix id is a UUIDv8 of the same bits, in another order: the
random bits come first, mixed with the counter of ids within the millisecond, and the time comes last. Each form can be
converted to the other form.
"""

import re

_HUB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_PREFIX_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_COUNT_SHIFT = 20
"""Number of bits by which the counter (12 bits) is moved, to the front of 32 bits. Ids of one millisecond differ only
in the counter, so the counter must be in the first characters."""


def is_hub_id(text: str) -> bool:
    """Return true if the text is a message id in the hub's own form (UUIDv7)."""
    return _HUB_ID.match(text) is not None


def to_prefix_id(text: str) -> str:
    """Return the prefix id of a message id: another form of it, which begins with its random bits.

    Return `text` unchanged if it is no message id of the hub.
    """
    if not is_hub_id(text):
        return text
    time, middle, random = text[:8], text[9:28], text[28:]
    return f"{_mix(random, text)}-{middle[:4]}-8{middle[6:]}{time}"


def from_prefix_id(text: str) -> str:
    """Return the hub's message id for a prefix id, in upper or lower case.

    Return `text` unchanged if it is no prefix id.
    """
    small = text.lower()
    if not _PREFIX_ID.match(small):
        return text
    mixed, middle, time = small[:8], small[9:28], small[28:]
    return f"{time}-{middle[:4]}-7{middle[6:]}{_mix(mixed, small)}"


def _mix(digits: str, text: str) -> str:
    """Return eight hexadecimal digits, combined by XOR with the counter in the id `text`.

    A second call restores the digits.
    """
    return f"{int(digits, 16) ^ int(text[15:18], 16) << _COUNT_SHIFT:08x}"
