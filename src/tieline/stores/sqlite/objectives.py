"""Objectives in the SQLite store: implements `ObjectiveStore`, and writes in the transactions of the store."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from tieline.contract.event import LogRow
from tieline.contract.objective import AnyHappening, Objective, ObjectiveEvent, ObjectiveId, Status
from tieline.core import ledger
from tieline.core.store import ObjectiveQuery, ObjectiveRow
from tieline.stores.sqlite.walk import merge, walk

_objective_decoder = msgspec.json.Decoder(Objective)
_happening_decoder: msgspec.json.Decoder[AnyHappening] = msgspec.json.Decoder(AnyHappening)
_parties_decoder = msgspec.json.Decoder(tuple[int, ...])
_Row = tuple[Any, ...]
_SERIAL_MAX = 2**63 - 1  # the largest number of the database


class SqliteObjectives:
    """Implementation of `ObjectiveStore`: stores the objectives in the main database of the SQLite store.

    `record` stores a log row. `write` and `select` run a named SQL statement. All run in the store's transaction.
    """

    def __init__(
        self,
        record: Callable[[LogRow], None],
        write: Callable[[str, _Row], None],
        select: Callable[[str, _Row], Iterator[_Row]],
    ) -> None:
        self._record = record
        self._write = write
        self._select = select

    def change(self, row: LogRow, kept: ObjectiveRow, event: ObjectiveEvent) -> None:
        """Store a changed objective (`kept`), its log row (`row`), and a new entry of its event log (`event`).

        See `ObjectiveStore.change`.
        """
        self._record(row)
        objective = kept.objective
        parties = ledger.encode_numbers(kept.parties).decode()
        content = ledger.encode_struct(objective)
        values = (kept.serial, objective.id, row.offset, objective.status.value, kept.assignee, parties, content)
        self._write("replace_objective", values)
        self._write("delete_parties", (kept.serial,))
        for number in kept.parties:
            self._write("insert_party", (number, kept.serial, objective.status.value, kept.assignee))
        happening = ledger.encode_struct(event.what)
        self._write("insert_objective_event", (event.offset, kept.serial, event.at_ms, event.actor, happening))

    def find(self, objective_id: ObjectiveId) -> ObjectiveRow | None:
        """Return the objective with this id, or `None`. See `ObjectiveStore.find`."""
        return next(map(_objective_row, self._select("objective_by_id", (objective_id,))), None)

    def select(self, query: ObjectiveQuery) -> Sequence[ObjectiveRow]:
        """Return the objectives that match a query, newest first. See `ObjectiveStore.select`."""
        party, assignee = query.party, query.assignee
        before = _SERIAL_MAX if query.before is None else query.before
        statement: str
        who: tuple[int, ...]
        if party is None and assignee is None:
            statement, who = "objectives", ()
        elif party is None or party == assignee:
            assert assignee is not None, "one of them is asked for"
            statement, who = "objectives_of_assignee", (assignee,)
        elif assignee is None:
            statement, who = "objectives_of_party", (party,)
        else:
            statement, who = "objectives_of_both", (party, assignee)
        statuses = set(query.statuses or Status)
        walks = [walk(self._select, statement, (*who, status.value), 0, before) for status in statuses]
        found = islice(merge(walks), query.limit)
        return [_objective_row(next(self._select("objective_at", (serial,)))) for serial in found]

    def events(self, serial: int, after: int, limit: int) -> Sequence[ObjectiveEvent]:
        """Return at most `limit` entries of the event log of an objective, oldest first.

        `serial` is the number of the objective. Only entries whose log offset is higher than `after` are returned. See
        `ObjectiveStore.events`.
        """
        rows = self._select("objective_events", (serial, after, limit))
        return [
            ObjectiveEvent(offset, at_ms, actor, _happening_decoder.decode(event))
            for offset, at_ms, actor, event in rows
        ]

    def open_rows(self) -> list[ObjectiveRow]:
        """Return the objectives that are neither done nor cancelled. The hub loads them when it starts."""
        return [_objective_row(row) for row in self._select("open_objectives", ())]


def _objective_row(row: Sequence[Any]) -> ObjectiveRow:
    serial, parties, content = row
    return ObjectiveRow(serial, _objective_decoder.decode(content), _parties_decoder.decode(parties))
