"""Objectives in the PostgreSQL store: implements `ObjectiveStore`, and writes in the transactions of the store."""

from collections.abc import Callable, Sequence

import msgspec

from tieline.contract.event import LogRow
from tieline.contract.objective import AnyHappening, Objective, ObjectiveEvent, ObjectiveId, Status
from tieline.core import ledger
from tieline.core.store import INTEGER_MAX, ObjectiveQuery, ObjectiveRow
from tieline.stores.postgres.columns import Bigints, Texts
from tieline.stores.postgres.connection import PostgresConnection, Row

_objective_decoder = msgspec.json.Decoder(Objective)
_happening_decoder: msgspec.json.Decoder[AnyHappening] = msgspec.json.Decoder(AnyHappening)


class PostgresObjectives:
    """Implementation of `ObjectiveStore`: stores the objectives in the database of the store.

    `record` stores a log row. `flush` sends all buffered writes of the store, so that reads see them.
    """

    def __init__(
        self, connection: PostgresConnection, record: Callable[[LogRow], None], flush: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._record = record
        self._flush = flush

    def change(self, row: LogRow, kept: ObjectiveRow, event: ObjectiveEvent) -> None:
        """Store a changed objective (`kept`), its log row (`row`), and a new entry of its event log (`event`).

        See `ObjectiveStore.change`.
        """
        self._record(row)
        objective, status, write = kept.objective, kept.objective.status.value, self._connection.write
        parties, content = Bigints(kept.parties), ledger.encode_struct(objective)
        write("replace_objective", (kept.serial, objective.id, row.offset, status, kept.assignee, parties, content))
        write("delete_parties", (kept.serial,))
        write("insert_parties", (parties, kept.serial, status, kept.assignee))
        happening = ledger.encode_struct(event.what)
        write("insert_objective_event", (event.offset, kept.serial, event.at_ms, event.actor, happening))

    def find(self, objective_id: ObjectiveId) -> ObjectiveRow | None:
        """Return the objective with this id, or `None`. See `ObjectiveStore.find`."""
        self._flush()
        rows = self._connection.select("objective_by_id", (objective_id,))
        return _objective_row(rows[0]) if rows else None

    def select(self, query: ObjectiveQuery) -> Sequence[ObjectiveRow]:
        """Return the objectives that match a query, newest first. See `ObjectiveStore.select`."""
        self._flush()
        party, assignee = query.party, query.assignee
        before = INTEGER_MAX if query.before is None else query.before
        statuses = Texts(sorted({status.value for status in query.statuses or Status}))
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
        return [
            _objective_row(row) for row in self._connection.select(statement, (statuses, before, query.limit, *who))
        ]

    def events(self, serial: int, after: int, limit: int) -> Sequence[ObjectiveEvent]:
        """Return entries of the event log of an objective, oldest first. See `ObjectiveStore.events`."""
        self._flush()
        rows = self._connection.select("objective_events", (serial, after, limit))
        return [
            ObjectiveEvent(offset, at_ms, actor, _happening_decoder.decode(event))
            for offset, at_ms, actor, event in rows
        ]

    def open_rows(self) -> list[ObjectiveRow]:
        """Return the objectives that are neither done nor cancelled. The hub loads them when it starts."""
        return [_objective_row(row) for row in self._connection.select("open_objectives")]


def _objective_row(row: Row) -> ObjectiveRow:
    serial, parties, content = row
    return ObjectiveRow(serial, _objective_decoder.decode(content), tuple(parties))
