"""Reads a PostgreSQL store for the audit: read-only, in one transaction, without making the hub wait."""

from collections.abc import Iterable, Iterator

import msgspec

from tieline.contract.event import LogRow
from tieline.core.audit import StoredMessage, StoredObjective, StoredObjectiveEvent, StoredStep
from tieline.core.inbox import Image
from tieline.stores.postgres.reading import PostgresReading


class PostgresInspection:
    """Implementation of `Inspection`: reads the main tables of a hub for the audit.

    All methods see the database at the same moment.
    """

    def __init__(self, url: str, schema: str) -> None:
        self._reading = PostgresReading(url, schema)
        try:
            self._reading.check_versions()
        except BaseException:
            self._reading.close()
            raise

    def rows(self) -> Iterator[LogRow]:
        """Yield all rows of the main log, by offset. See `Inspection.rows`."""
        for offset, at_ms, event, hash_bytes in self._reading.stream("inspect_log"):
            yield LogRow(offset=offset, at_ms=at_ms, event=event, hash=hash_bytes.hex())

    def messages(self) -> Iterator[StoredMessage]:
        """Yield all stored messages, by log offset. See `Inspection.messages`."""
        for *row, verified, wire_id in self._reading.stream("inspect_messages"):
            offset, message_id, sender, target, protocol, sent_at_ms, route, content, signature = row
            yield StoredMessage(
                offset=offset,
                id=message_id,
                sender=sender,
                target=target,
                protocol=protocol,
                verified=int(verified),
                sent_at_ms=sent_at_ms,
                route=route,
                content=content,
                signature=signature,
                wire_id=None if wire_id is None else wire_id.decode(),
            )

    def steps(self) -> Iterator[StoredStep]:
        """Yield all stored status changes of deliveries, by log offset. See `Inspection.steps`."""
        for row in self._reading.stream("inspect_steps"):
            yield StoredStep(*row)

    def objectives(self) -> Iterator[StoredObjective]:
        """Yield all objectives, by the offset of their last change. See `Inspection.objectives`."""
        for offset, objective_id, status, parties, content in self._reading.stream("inspect_objectives"):
            yield StoredObjective(offset, objective_id, status, msgspec.json.encode(parties), content)

    def objective_events(self) -> Iterator[StoredObjectiveEvent]:
        """Yield the event logs of all objectives, by log offset. See `Inspection.objective_events`."""
        for row in self._reading.stream("inspect_objective_events"):
            yield StoredObjectiveEvent(*row)

    def members(self) -> Iterator[tuple[int, str, int]]:
        """Yield number, name and creation time of every member, including removed members."""
        for row in self._reading.stream("inspect_members"):
            number, name, created_at_ms = row
            yield number, name, created_at_ms

    def images(self) -> Iterable[tuple[int, Image]]:
        """Yield the number of each member, and the member's inbox as it was in the last snapshot.

        See `Inspection.images`.
        """
        for number, base, offsets, stream_seqs, rungs, *_ in self._reading.stream("images"):
            yield number, Image(base, offsets, stream_seqs, rungs)

    def snapshot_end(self) -> int:
        """Return the offset of the first log row after the last snapshot. See `Inspection.snapshot_end`."""
        return int(self._reading.select("snapshot_end")[0][0])

    def close(self) -> None:
        """Close the connection."""
        self._reading.close()
