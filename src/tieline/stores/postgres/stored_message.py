"""Rows of messages in PostgreSQL as values of the contract.

A wire id may have any character, so the database stores it as bytes.
"""

from collections.abc import Sequence
from typing import Any

from tieline.contract.message import Message
from tieline.stores.rows import CONTENT, decode_message

_WIRE_ID = CONTENT + 1
"""Index of the column with the wire id in a database row of a message."""


def decode_said(row: Sequence[Any]) -> Message:
    """Return the message in a row of the database. Raise `DamagedError` if its content cannot be decoded."""
    values = list(row)
    if values[_WIRE_ID] is not None:
        values[_WIRE_ID] = values[_WIRE_ID].decode()
    return decode_message(values)
