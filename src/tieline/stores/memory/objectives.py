"""Objectives in the memory store: the part of the Store port that is about them, within the store's transactions."""

from collections.abc import Callable, Sequence

from tieline.contract.event import LogRow
from tieline.contract.objective import TERMINAL, ObjectiveEvent, ObjectiveId
from tieline.core.store import ObjectiveQuery, ObjectiveRow


class MemoryObjectives:
    """See `ObjectiveStore`."""

    def __init__(self, record: Callable[[LogRow], None], undo: list[Callable[[], object]]) -> None:
        self._record = record
        # How to take back what was not committed; the store's own.
        self._undo = undo
        self._rows: dict[int, ObjectiveRow] = {}
        self._events: dict[int, list[ObjectiveEvent]] = {}

    def change(self, row: LogRow, kept: ObjectiveRow, event: ObjectiveEvent) -> None:
        """See `ObjectiveStore.change`."""
        self._record(row)
        before = self._rows.get(kept.serial)
        self._rows[kept.serial] = kept
        events = self._events.setdefault(kept.serial, [])
        events.append(event)
        self._undo.append(events.pop)
        if before is None:
            self._undo.append(lambda: self._rows.pop(kept.serial))
        else:
            self._undo.append(lambda: self._rows.__setitem__(kept.serial, before))

    def find(self, objective_id: ObjectiveId) -> ObjectiveRow | None:
        """See `ObjectiveStore.find`."""
        return next((row for row in self._rows.values() if row.objective.id == objective_id), None)

    def select(self, query: ObjectiveQuery) -> Sequence[ObjectiveRow]:
        """See `ObjectiveStore.select`."""
        found = [
            row
            for row in reversed(self._rows.values())
            if (query.party is None or query.party in row.parties)
            and (query.assignee is None or query.assignee == row.assignee)
            and (not query.statuses or row.objective.status in query.statuses)
            and (query.before is None or row.serial < query.before)
        ]
        return found[: query.limit]

    def events(self, serial: int, after: int, limit: int) -> Sequence[ObjectiveEvent]:
        """See `ObjectiveStore.events`."""
        return [event for event in self._events.get(serial, ()) if event.offset > after][:limit]

    def of_party(self, number: int | None) -> list[ObjectiveRow]:
        """Those that a member has a part in."""
        return [row for row in list(self._rows.values()) if number in row.parties]

    def open_rows(self) -> list[ObjectiveRow]:
        """All that a broker starts from: those that can still change."""
        return [row for row in self._rows.values() if row.objective.status not in TERMINAL]

    @property
    def next_serial(self) -> int:
        """The serial that the next objective will have."""
        return max(self._rows, default=0) + 1
