"""Pages of a hub's logs, which programs outside the hub's broker read: the rows, and the data stored with them.

The pipeline uses them, and so does the route that serves logs to other machines. Each store has its own reader.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from tieline.contract.message import Kind, Level, Priority
from tieline.core.store import ACTIVITY, MAIN

LOGS = (MAIN, ACTIVITY)

Rows = Sequence[tuple[Any, ...]]


class Said(Struct, frozen=True, gc=False):
    """The part of a message's stored content that readers of the log need, for example the pipeline."""

    body: str = ""
    level: str = Level.INFO.value
    priority: str = Priority.NORMAL.value
    kind: str = Kind.CHAT.value
    scope: str | None = None
    thread: str | None = None
    reply_to: str | None = None

    @property
    def body_bytes(self) -> int:
        """Size of the body in bytes, as UTF-8."""
        return len(self.body) if self.body.isascii() else len(self.body.encode(errors="surrogatepass"))


_NOTHING = Said()
_decode_said = Decoder(Said).decode


def read_said(content: bytes) -> Said:
    """Return the part of a message's stored content that readers of the log need.

    Damaged content is read as empty. The audit reports such content.
    """
    try:
        return _decode_said(content)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOTHING


class MainPage(Struct, frozen=True):
    """A page of the main log: consecutive rows, with their messages and their changes of objectives."""

    before: Rows
    """Up to two log rows before `rows`, with the same columns. They are needed to check the hash of the first row."""
    rows: Rows
    """The rows of the log. Columns: offset, at_ms, event, hash."""
    messages: Rows
    """The stored messages that belong to `rows`. Deleted messages are missing. Columns: offset, id, sender, protocol,
    wire_id, target, sent_at_ms, expires_at_ms, verified, hops, cause, signature, content, route."""
    happenings: Rows
    """The changes of objectives that belong to `rows`. Columns: offset, objective, actor, change."""


class Pages(Protocol):
    """Interface of a reader of the logs of one hub, page by page. Not thread-safe."""

    def end(self, log: str) -> int:
        """Return the offset that the next row of a log, `main` or `activity`, will have."""

    def names(self) -> dict[int, str]:
        """Return the names of members by number, including removed members."""

    def main(self, start: int, end: int) -> MainPage:
        """Return the rows of the main log with `start` <= offset < `end`, read in one transaction."""

    def activity(self, start: int, end: int) -> Rows:
        """Return the rows of the activity log with `start` <= offset < `end`.

        Columns: offset, at_ms, number, kind, ts_ms, event.
        """

    def close(self) -> None:
        """Close the reader."""
