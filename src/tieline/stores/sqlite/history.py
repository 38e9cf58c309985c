"""History in the SQLite store: finds the messages of a query by their targets and senders.

The store uses this module. This module reads two indexes: the messages by target, and the trail (an index of the
messages by sender and target). A query needs several walks. Each walk reads, in order, the offsets of messages to one
target, or from one sender to one target. The walks are merged. So a page costs one read for each walk, and one for each
message of the page. The number of stored messages does not matter.
"""

from collections.abc import Iterator

import msgspec

from tieline.core.store import THREADS_MAX, HistoryQuery, Span
from tieline.stores.sqlite.trail import Trail
from tieline.stores.sqlite.walk import Select, merge, walk


class SqliteHistory:
    """Finds the log offsets of the messages that match a query. The store then reads the messages."""

    def __init__(self, select: Select, trail: Trail) -> None:
        self._select = select
        self._trail = trail

    def offsets(self, history_query: HistoryQuery, before: int) -> Iterator[int]:
        """Yield the log offsets of all messages that match a query, in the order of the query.

        Only offsets lower than `before` are yielded.
        """
        since, forward = history_query.since, history_query.forward
        if history_query.reader is None and history_query.peer is None and history_query.places is None:
            return walk(self._select, "all_forth" if forward else "all_back", (), since, before, forward=forward)
        return merge(self._walks(history_query, since, before), forward=forward)

    def _walks(self, history_query: HistoryQuery, since: int, before: int) -> Iterator[Iterator[int]]:
        reader, peer, forward = history_query.reader, history_query.peer, history_query.forward
        if history_query.places is not None:
            for span in history_query.places:
                yield self._at(span, since, before, forward=forward)
        elif peer is not None and reader is None:
            yield self._at(Span(f"@{peer}"), since, before, forward=forward)
        elif peer is not None and reader is not None:
            yield self._trail.walk(reader, f"@{peer}", since, before, forward=forward)
            yield self._trail.walk(peer, f"@{reader}", since, before, forward=forward)
        elif reader is not None:
            for target in self._trail.targets_of(reader):
                yield self._trail.walk(reader, target, since, before, forward=forward)
            yield from self._seen(history_query, since, before)

    def _seen(self, history_query: HistoryQuery, since: int, before: int) -> Iterator[Iterator[int]]:
        """Yield a walk for each span that the reader may see. A walk yields the log offsets of messages, in order.

        A span is a target and a part of the log. Targets without messages are left out.
        """
        spans: dict[str, list[Span]] = {}
        for span in history_query.spans:
            spans.setdefault(span.target, []).append(span)
        if history_query.all_threads:
            threads = self._select("threads", (THREADS_MAX,))
        else:
            threads = self._select("threads_of_party", (history_query.threads, THREADS_MAX))
        for (target,) in threads:
            spans[target] = [Span(target)]
        targets = msgspec.json.encode(list(spans)).decode()
        for (target,) in list(self._select("targets_with_messages", (targets, since, before))):
            for span in spans[target]:
                yield self._at(span, since, before, forward=history_query.forward)

    def _at(self, span: Span, since: int, before: int, *, forward: bool) -> Iterator[int]:
        """Yield the log offsets of the messages in a span (a target and a part of the log).

        Only offsets with `since` <= offset < `before` are yielded: oldest first if `forward`, else newest first.
        """
        end = before if span.end is None else min(before, span.end)
        query = "target_forth" if forward else "target_back"
        return walk(self._select, query, (span.target,), max(since, span.start), end, forward=forward)

    def received(self, name: str, peer: str, before: int) -> Iterator[int]:
        """Yield the log offsets of messages that `peer` may have sent to the member `name`, newest first.

        The offsets are lower than `before`. The peer `@place` stands for all senders without identity at that place.
        """
        if peer.startswith("@"):
            place = peer.removeprefix("@")
            return merge(self._at(Span(target), 0, before, forward=False) for target in (f"#{place}", f"@{name}"))
        # Direct messages to other members are left out.
        targets = (target for target in self._trail.targets_of(peer) if target == f"@{name}" or target[0] != "@")
        return merge(self._trail.walk(peer, target, 0, before) for target in targets)
