"""History in the PostgreSQL store: finds the messages of a query by their targets and senders.

A query is about several parts of the log. Each part has the messages to one target, or from one sender to one target.
One statement reads the newest (or oldest) offsets of all parts, each from an index.
"""

from collections.abc import Sequence

from msgspec import Struct

from tieline.core.store import INTEGER_MAX, THREADS_MAX, HistoryQuery, Span
from tieline.stores.postgres.columns import Bigints, Texts
from tieline.stores.postgres.connection import PostgresConnection


class _Part(Struct, frozen=True):
    target: str
    sender: str | None = None
    start: int = 0
    end: int = INTEGER_MAX
    """The first offset after the part."""


class PostgresHistory:
    """Finds the log offsets of the messages that match a query. The store then reads the messages."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def offsets(self, query: HistoryQuery, before: int) -> list[int]:
        """Return the log offsets of a page of messages that match a query, in the order of the query.

        Only offsets lower than `before` are returned.
        """
        if query.reader is None and query.peer is None and query.places is None:
            statement = "all_forth" if query.forward else "all_back"
            return [row[0] for row in self._connection.select(statement, (query.since, before, query.limit))]
        return self._walk(self._parts(query), query.since, before, query.limit, forward=query.forward)

    def _parts(self, query: HistoryQuery) -> list[_Part]:
        reader, peer = query.reader, query.peer
        if query.places is not None:
            return [_part(span) for span in query.places]
        if peer is not None:
            if reader is None:
                return [_Part(f"@{peer}")]
            return [_Part(f"@{peer}", reader), _Part(f"@{reader}", peer)]
        assert reader is not None, "a history of all messages has no parts"
        said = [_Part(target, reader) for target in self._targets_of(reader)]
        if query.all_threads:
            threads = self._connection.select("threads", (THREADS_MAX,))
        else:
            threads = self._connection.select("threads_of_party", (query.threads, THREADS_MAX))
        targets = {target for (target,) in threads}
        spans = [_part(span) for span in query.spans if span.target not in targets]
        return [*said, *spans, *(_Part(target) for target in targets)]

    def _targets_of(self, sender: str) -> list[str]:
        return [target for (target,) in self._connection.select("targets_of_sender", (sender,))]

    def _walk(self, parts: Sequence[_Part], since: int, before: int, limit: int, *, forward: bool = False) -> list[int]:
        if not parts or since >= before:
            return []
        values = (
            Texts([part.target for part in parts]),
            Texts([part.sender for part in parts]),
            Bigints([max(part.start, since) for part in parts]),
            Bigints([min(part.end, before) - 1 for part in parts]),
            limit,
        )
        return [row[0] for row in self._connection.select("walk_forth" if forward else "walk_back", values)]

    def received(self, name: str, peer: str, before: int, limit: int) -> list[int]:
        """Return the log offsets of messages that `peer` may have sent to the member `name`, newest first.

        The offsets are lower than `before`. The peer `@place` stands for all senders without identity at that place.
        """
        if peer.startswith("@"):
            place = peer.removeprefix("@")
            parts = [_Part(target) for target in (f"#{place}", f"@{name}")]
        else:
            # Direct messages to other members are left out.
            targets = (target for target in self._targets_of(peer) if target == f"@{name}" or target[0] != "@")
            parts = [_Part(target, peer) for target in targets]
        return self._walk(parts, 0, before, limit)


def _part(span: Span) -> _Part:
    return _Part(span.target, None, span.start, INTEGER_MAX if span.end is None else span.end)
