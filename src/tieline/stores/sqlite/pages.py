"""The logs of a home as one reads them from outside, a page at a time: what the rows say, and what is kept beside them.

Above: the pipeline's source, and the route that serves logs to other machines. Below: connections of their own, for
reading only. A page is one short transaction: the hub goes on writing, and its write-ahead log can be moved between
two pages.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from tieline.contract.message import Kind, Level, Priority
from tieline.core.store import ACTIVITY, MAIN, StoreError
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import open_for_reading
from tieline.stores.sqlite.statements import load
from tieline.stores.sqlite.store import MAIN_FILE

LOGS = (MAIN, ACTIVITY)

_QUERIES = load(files("tieline.stores.sqlite").joinpath("pages.sql").read_text(encoding="utf-8"))
_Rows = Sequence[tuple[Any, ...]]


class Said(Struct, frozen=True, gc=False):
    """What readers of a log are told of a message's content."""

    body: str = ""
    level: str = Level.INFO.value
    priority: str = Priority.NORMAL.value
    kind: str = Kind.CHAT.value
    thread: str | None = None
    reply_to: str | None = None

    @property
    def body_bytes(self) -> int:
        """The size of the body on a wire."""
        return len(self.body) if self.body.isascii() else len(self.body.encode(errors="surrogatepass"))


_NOTHING = Said()
_decode_said = Decoder(Said).decode


def read_said(content: bytes) -> Said:
    """What a stored content says. One that somebody spoilt says nothing; the audit tells of that."""
    try:
        return _decode_said(content)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOTHING


class MainPage(Struct, frozen=True):
    """Consecutive rows of the main log."""

    hash_before: bytes | None
    """Hash of the row before the first; none if there is no such row, or the first ones are missing."""
    rows: _Rows
    """Offset, at_ms, event, hash."""
    messages: _Rows
    """Of those rows that tell of a message which is still kept: see `messages` in `pages.sql`."""
    happenings: _Rows
    """Of those rows that tell of an objective: offset, objective, actor, what happened."""


class LogPages:
    """The logs of one home. Not thread-safe."""

    def __init__(self, home: Path) -> None:
        self._paths = {MAIN: home / MAIN_FILE, ACTIVITY: home / ACTIVITY_FILE}
        self._connections: dict[str, apsw.Connection] = {}

    def end(self, log: str) -> int:
        """The offset that the next row of a log will have."""
        if not self._paths[log].exists():
            return 0
        return int(self._select(log, f"{log}_end")[0][0])

    def names(self) -> dict[int, str]:
        """Names of members by their numbers, removed ones too."""
        return dict(self._select(MAIN, "names"))

    def main(self, start: int, end: int) -> MainPage:
        """Rows of the main log from `start` to before `end`, as they are at one instant."""
        with self._instant(MAIN):
            before = self._select(MAIN, "hash_before", (start,))
            rows = self._select(MAIN, "rows", (start, end))
            messages = self._select(MAIN, "messages", (start, end))
            happenings = self._select(MAIN, "happenings", (start, end))
        follows = before and rows and rows[0][0] == start
        return MainPage(before[0][0] if follows else None, rows, messages, happenings)

    def activity(self, start: int, end: int) -> _Rows:
        """Offset, at_ms, number, kind, ts_ms, event of the activity log from `start` to before `end`."""
        return self._select(ACTIVITY, "activity", (start, end))

    def close(self) -> None:
        """Let go of the databases."""
        while self._connections:
            self._connections.popitem()[1].close()

    @contextmanager
    def _instant(self, log: str) -> Iterator[None]:
        connection = self._connection(log)
        connection.execute("BEGIN")
        try:
            yield
        finally:
            connection.execute("COMMIT")

    def _select(self, log: str, statement: str, values: tuple[int, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection(log).execute(_QUERIES[statement], values).fetchall()
        except apsw.Error as error:
            raise StoreError(f"{self._paths[log]} cannot be read: {error}") from error

    def _connection(self, log: str) -> apsw.Connection:
        connection = self._connections.get(log)
        if connection is None:
            connection = self._connections[log] = open_for_reading(self._paths[log])
        return connection
