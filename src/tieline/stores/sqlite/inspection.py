"""Reads a SQLite store for the audit: read-only, in one transaction, without making the hub wait."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw

from tieline.contract.event import LogRow
from tieline.core.audit import StoredMessage, StoredObjective, StoredObjectiveEvent, StoredStep
from tieline.core.inbox import Image
from tieline.core.store import StoreError
from tieline.stores.sqlite.database import open_for_reading
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import Words


class SqliteInspection:
    """Implementation of `Inspection`: reads a hub's main database for the audit.

    All methods see the database at the same moment.
    """

    def __init__(self, home: Path) -> None:
        self._connection = open_for_reading(home / MAIN_FILE)
        # One transaction for all reads: a running hub continues to write, but its new rows are not visible here.
        self._connection.execute("BEGIN")
        self._words = Words(self._connection)

    def _read(self, statement: str) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(QUERIES[statement])
        except apsw.Error as error:
            raise StoreError(f"the database cannot be read to its end: {error}") from error

    def rows(self) -> Iterator[LogRow]:
        """Yield all rows of the main log, by offset. See `Inspection.rows`."""
        for offset, at_ms, event, hash_bytes in self._read("inspect_log"):
            yield LogRow(offset=offset, at_ms=at_ms, event=self._words.unpack(event), hash=hash_bytes.hex())

    def messages(self) -> Iterator[StoredMessage]:
        """Yield all stored messages, by log offset. See `Inspection.messages`."""
        for row in self._read("inspect_messages"):
            yield StoredMessage(*row)

    def steps(self) -> Iterator[StoredStep]:
        """Yield all stored status changes of deliveries, by log offset. See `Inspection.steps`."""
        for row in self._read("inspect_steps"):
            yield StoredStep(*row)

    def objectives(self) -> Iterator[StoredObjective]:
        """Yield all objectives, by the offset of their last change. See `Inspection.objectives`."""
        for offset, objective_id, status, parties, content in self._read("inspect_objectives"):
            yield StoredObjective(offset, objective_id, status, parties.encode(), content)

    def objective_events(self) -> Iterator[StoredObjectiveEvent]:
        """Yield the event logs of all objectives, by log offset. See `Inspection.objective_events`."""
        for row in self._read("inspect_objective_events"):
            yield StoredObjectiveEvent(*row)

    def members(self) -> Iterator[tuple[int, str, int]]:
        """Yield number, name and creation time of every member, including removed members."""
        for row in self._read("inspect_members"):
            number, name, created_at_ms = row
            yield number, name, created_at_ms

    def images(self) -> Iterable[tuple[int, Image]]:
        """Yield the number of each member, and the member's inbox as it was in the last snapshot.

        See `Inspection.images`.
        """
        for number, base, offsets, stream_seqs, rungs, *_ in self._read("images"):
            yield number, Image(base, offsets, stream_seqs, rungs)

    def snapshot_end(self) -> int:
        """Return the offset of the first log row after the last snapshot. See `Inspection.snapshot_end`."""
        return int(next(self._read("snapshot_end"))[0])

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


def open_inspection(home: Path) -> SqliteInspection:
    """Open the main database of the hub whose data folder is `home`, and return it for the audit.

    Raise `StoreError` if the database cannot be read.
    """
    return SqliteInspection(home)
