"""Prefix ids: a second spelling of message ids, in which the first eight characters tell messages apart.

Above: wires whose clients show, and take, only the beginning of an id. The hub's own ids are UUIDv7 and begin with the
time, so all ids of about a minute begin alike. A prefix id is a UUIDv8 of the same bits: the random bits come first,
mixed with the count within the millisecond, and the time comes last. Each spelling can be made from the other one.
"""

import re

_HUB_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_PREFIX_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_COUNT_SHIFT = 20
"""Moves the 12 bits of the count to the front of 32 bits: ids of one millisecond differ in nothing but the count."""


def is_hub_id(text: str) -> bool:
    """True if the text is a message id in the hub's own spelling (UUIDv7)."""
    return _HUB_ID.match(text) is not None


def to_prefix_id(text: str) -> str:
    """Return the prefix id of a message id. Any other text stays as it is."""
    if not is_hub_id(text):
        return text
    time, middle, random = text[:8], text[9:28], text[28:]
    return f"{_mix(random, text)}-{middle[:4]}-8{middle[6:]}{time}"


def from_prefix_id(text: str) -> str:
    """Return the message id of a prefix id, in upper or lower case. Any other text stays as it is."""
    small = text.lower()
    if not _PREFIX_ID.match(small):
        return text
    mixed, middle, time = small[:8], small[9:28], small[28:]
    return f"{time}-{middle[:4]}-7{middle[6:]}{_mix(mixed, small)}"


def _mix(digits: str, text: str) -> str:
    """Return eight hex digits, mixed (XOR) with the count in the id `text`. A second call restores the digits."""
    return f"{int(digits, 16) ^ int(text[15:18], 16) << _COUNT_SHIFT:08x}"
