"""The outcome of the demo as a document, for `tieline demo --json`.

Used by: `command`, which prints it, and `epilogue`, which finds its messages. Uses: the receipts of the hub.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from tieline.cli.demo.transcript import Line
from tieline.cli.documents import derive
from tieline.wire.native.frames import ReceiptView


class CheckedClaim(Struct, frozen=True):
    """A statement of the demo, with the expected and the found value."""

    claim: str
    holds: bool
    expected: Any
    found: Any


class SentMessage(Struct, frozen=True, rename={"sender": "from", "target": "to"}):
    """A message of the demo, with its receipts."""

    id: str
    sender: str
    target: str
    protocol: str
    body: str
    receipts: tuple[ReceiptView, ...]


class Ending(Struct):
    """Messages, numbers of log events by kind, and number of audited rows. They are missing if the demo broke off.

    `home` is the path of the hub's home; missing without `--keep`.
    """

    receipts: list[SentMessage] | UnsetType = UNSET
    events: dict[str, int] | UnsetType = UNSET
    audited_rows: int | UnsetType = UNSET
    home: str | UnsetType = UNSET


Outcome = derive(
    Ending,
    "Outcome",
    f"The outcome of the demo: if all its statements hold, and everything that happened. {Ending.__doc__}",
    first=(("holds", bool), ("seconds", float), ("checks", list[CheckedClaim]), ("transcript", list[Line])),
)
