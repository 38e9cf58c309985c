"""A home in the making: the hub's own schema, filled by plain inserts, with a valid audit chain.

Used by: the generator. No hub has opened these homes yet, so the writer trades durability for speed until `close`.
"""

from array import array
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw

from tieline.contract.chain import GENESIS_DIGEST, link_digest
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import open_database
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.statements import load

_QUERIES = load(Path(__file__).with_name("synth.sql").read_text(encoding="utf-8"))
_Row = tuple[Any, ...]


class HomeWriter:
    """Both databases of one home."""

    def __init__(self, home: Path, names: Sequence[str], at_ms: int) -> None:
        self._main = open_database(home / MAIN_FILE, "main", synchronous="OFF")
        self._activity = open_database(home / ACTIVITY_FILE, "activity", synchronous="OFF")
        # Offset of the next row, and hash of the last one.
        self.end = 0
        # Time of the last row.
        self.at_ms = at_ms
        self._head = GENESIS_DIGEST
        self._rows: dict[str, list[_Row]] = {name: [] for name in _QUERIES}
        # Most of an insert runs without the Python lock, so it can run while the next rows are made.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tieline-synth")
        self._inserting: Future[None] | None = None
        self._rows["member"] += [(number, name, "agent", at_ms) for number, name in enumerate(names, start=1)]

    def append(self, at_ms: int, event: bytes) -> int:
        """Link an event to the chain; returns its offset."""
        offset = self.end
        self._head = head = link_digest(self._head, at_ms, event)
        self._rows["log"].append((offset, at_ms, event, head))
        self.end = offset + 1
        self.at_ms = at_ms
        return offset

    def keep(self, table: str, row: _Row) -> None:
        """Buffer a row of another table."""
        self._rows[table].append(row)

    def flush(self) -> None:
        """Insert the buffered rows in the background, while the next rows are made."""
        if self._inserting is not None:
            self._inserting.result()
        rows, self._rows = self._rows, {name: [] for name in _QUERIES}
        self._inserting = self._thread.submit(self._insert, rows)

    def _insert(self, rows: dict[str, list[_Row]]) -> None:
        for connection, tables in ((self._main, set(_QUERIES) - {"activity"}), (self._activity, {"activity"})):
            with connection:
                for table in _QUERIES:
                    if table in tables and rows[table]:
                        connection.executemany(_QUERIES[table], rows[table])
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def close(self) -> str:
        """Finish; returns the hash of the last row."""
        self.flush()
        self.flush()
        self._thread.shutdown()
        self._main.close()
        self._activity.close()
        return self._head.hex()


def pack_route(numbers: Sequence[int], keys: Sequence[int], stream_seqs: Sequence[int]) -> bytes:
    """A route as the hub stores it; see `core.store.DeliveryRoute`."""
    return array("q", (*numbers, *keys, *stream_seqs)).tobytes()
