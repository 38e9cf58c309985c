"""Quotes: the forms in which the text of a message can stand in JSON, for example in the activity of an agent.

Used by: the parts that look for the text of a redacted message. Uses: nothing. Programs write characters outside ASCII
as they are, or as `\\u` and four digits, as Python's `json.dumps` does. In both ways, a document can also be a text
inside another document.
"""

import json

import msgspec


def quoted_forms(text: str) -> list[tuple[bytes, bytes]]:
    """Return a text as bytes in two forms: in a JSON document, and in a document that is a text of another document.

    The list has one pair of forms for each way to write the text. Most texts have only one way.
    """
    plain = msgspec.json.encode(text)[1:-1].decode()
    # Each way once, in a fixed order.
    ways = dict.fromkeys((plain, json.dumps(text)[1:-1]))
    return [(told.encode(), msgspec.json.encode(told)[1:-1]) for told in ways]
