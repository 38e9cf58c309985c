"""Quotes: the forms in which the text of a message can stand in JSON, for example in the activity of an agent.

Used by: the parts that look for the text of a redacted message. Uses: nothing. Some programs write characters outside
ASCII as they are, others write `\\u` and four digits, as Python's `json.dumps` does. Also, a whole JSON document can be
a string in another JSON document, and is then escaped a second time.
"""

import json

import msgspec


def quoted_forms(text: str) -> list[tuple[bytes, bytes]]:
    """Return the bytes that a text can have in JSON.

    Each pair has the text escaped once (in a JSON document) and escaped twice (in a JSON document that is a string in
    another one). A text in ASCII has one pair. Any other text has two: with and without `\\u` escapes.
    """
    plain = msgspec.json.encode(text)[1:-1].decode()
    # Each way once, in a fixed order.
    ways = dict.fromkeys((plain, json.dumps(text)[1:-1]))
    return [(told.encode(), msgspec.json.encode(told)[1:-1]) for told in ways]
