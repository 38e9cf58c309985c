"""The memory store: the Store port over plain dictionaries.

`restore` after an abandoned batch gives back what was committed, as on disk, so that simulations can crash it.
"""

from collections.abc import Iterator, Sequence

from tieline.contract.delivery import State, Step
from tieline.contract.event import LogRow, Moved
from tieline.contract.identifiers import ChannelName, MessageId
from tieline.contract.message import Message
from tieline.core import ledger
from tieline.core.ladder import STATES
from tieline.core.store import (
    ACTIVITY,
    Chronicle,
    Foundation,
    Known,
    MemberImage,
    MemberRow,
    MovedReplay,
    Replay,
    Route,
    SentReplay,
    StoreError,
    TokenRow,
)


class _Kept:
    """A message with what belongs to it."""

    __slots__ = ("content", "message", "route")

    def __init__(self, message: Message, content: bytes, route: Route) -> None:
        self.message = message
        self.content = content
        self.route = route


class MemoryStore:
    """A hub's storage in memory. Small changes apply at once; only messages and log rows can be abandoned."""

    def __init__(self) -> None:
        self._log: list[LogRow] = []
        self._committed_end = 0
        self._activity: list[LogRow] = []
        self._messages: dict[int, _Kept] = {}
        self._offsets_by_id: dict[MessageId, int] = {}
        self._offsets_by_wire_id: dict[tuple[str, str, str], int] = {}
        # Ranges of each member and state, with the log offset of the event that moved them.
        self._steps: dict[tuple[int, State], list[tuple[int, int, int]]] = {}
        self._members: dict[int, MemberRow] = {}
        self._names: dict[int, str] = {}
        self._tokens: dict[int, TokenRow] = {}
        self._subscriptions: set[tuple[ChannelName, int]] = set()
        self._images: dict[int, MemberImage] = {}
        self._snapshot_end = 0

    # Writes.

    def accept(self, row: LogRow, message: Message, content: bytes, route: Route) -> None:
        """See `Store.accept`."""
        self._append(row)
        self._messages[row.offset] = _Kept(message, content, route)
        self._offsets_by_id[message.id] = row.offset
        if message.wire_id is not None:
            self._offsets_by_wire_id[message.sender, message.protocol, message.wire_id] = row.offset

    def advance(self, row: LogRow, number: int, state: State, ranges: Sequence[tuple[int, int]]) -> None:
        """See `Store.advance`."""
        self._append(row)
        kept = self._steps.setdefault((number, state), [])
        kept.extend((first, last, row.offset) for first, last in ranges)

    def record(self, row: LogRow) -> None:
        """See `Store.record`."""
        self._append(row)

    def _append(self, row: LogRow) -> None:
        if row.offset != len(self._log):
            raise StoreError(f"the log is at {len(self._log)}, a row for {row.offset} does not fit")
        self._log.append(row)

    def save_member(self, row: MemberRow) -> None:
        """See `Store.save_member`."""
        self._members[row.number] = row
        self._names[row.number] = row.member.name

    def drop_member(self, number: int, at_ms: int) -> None:
        """See `Store.drop_member`."""
        del at_ms
        del self._members[number]
        self._tokens.pop(number, None)
        self._images.pop(number, None)
        self._subscriptions = {(channel, other) for channel, other in self._subscriptions if other != number}

    def save_token(self, row: TokenRow) -> None:
        """See `Store.save_token`."""
        self._tokens[row.number] = row

    def subscribe(self, channel: ChannelName, number: int) -> None:
        """See `Store.subscribe`."""
        self._subscriptions.add((channel, number))

    def unsubscribe(self, channel: ChannelName, number: int) -> None:
        """See `Store.unsubscribe`."""
        self._subscriptions.discard((channel, number))

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """See `Store.save_snapshot`."""
        self._images.update((image.number, image) for image in images)
        self._snapshot_end = end

    def record_activity(self, number: int, rows: Sequence[LogRow]) -> None:
        """See `Store.record_activity`."""
        del number
        self._activity.extend(rows)

    def prune(self, before_ms: int, keep: frozenset[int], limit: int) -> Sequence[int]:
        """See `Store.prune`."""
        doomed: list[int] = []
        for offset, kept in self._messages.items():
            if kept.message.sent_at_ms >= before_ms or len(doomed) == limit:
                break
            if offset not in keep:
                doomed.append(offset)
        for offset in doomed:
            message = self._messages.pop(offset).message
            del self._offsets_by_id[message.id]
            if message.wire_id is not None:
                del self._offsets_by_wire_id[message.sender, message.protocol, message.wire_id]
        return doomed

    def commit(self) -> None:
        """See `Store.commit`."""
        self._committed_end = len(self._log)

    # Reads.

    def restore(self) -> Foundation:
        """See `Store.restore`."""
        for offset in range(self._committed_end, len(self._log)):
            kept = self._messages.pop(offset, None)
            if kept is not None:
                del self._offsets_by_id[kept.message.id]
                wire_id = kept.message.wire_id
                if wire_id is not None:
                    del self._offsets_by_wire_id[kept.message.sender, kept.message.protocol, wire_id]
        del self._log[self._committed_end :]
        for ranges in self._steps.values():
            ranges[:] = [step for step in ranges if step[2] < self._committed_end]
        return Foundation(
            members=list(self._members.values()),
            tokens=list(self._tokens.values()),
            subscriptions=list(self._subscriptions),
            images=list(self._images.values()),
            snapshot_end=self._snapshot_end,
            log_end=len(self._log),
            log_head=self._log[-1].hash if self._log else ledger.GENESIS,
            activity_end=len(self._activity),
            next_number=max(self._names, default=0) + 1,
        )

    def replay(self, start: int) -> Iterator[Replay]:
        """See `Store.replay`."""
        for row in self._log[start:]:
            kept = self._messages.get(row.offset)
            if kept is not None:
                yield SentReplay(row.offset, kept.message.sender, kept.message.content.topic, kept.route)
                continue
            event = ledger.decode_event(row.event)
            if isinstance(event, Moved):
                yield MovedReplay(event.number, event.keys, STATES[type(event)], event.mute)

    def expiring(self) -> Iterator[tuple[int, Route]]:
        """See `Store.expiring`."""
        for kept in self._messages.values():
            ttl_ms = kept.message.content.ttl_ms
            if ttl_ms is not None:
                yield kept.message.sent_at_ms + ttl_ms, kept.route

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> Known | None:
        """See `Store.find_wire_id`."""
        offset = self._offsets_by_wire_id.get((sender, protocol, wire_id))
        if offset is None:
            return None
        kept = self._messages[offset]
        return Known(kept.message.id, offset, ledger.digest(kept.content), len(kept.route.keys))

    def messages(self, offsets: Sequence[int]) -> dict[int, Message]:
        """See `Store.messages`."""
        return {offset: self._messages[offset].message for offset in offsets if offset in self._messages}

    def find_message(self, message_id: MessageId) -> tuple[Message, Route] | None:
        """See `Store.find_message`."""
        offset = self._offsets_by_id.get(message_id)
        return None if offset is None else (self._messages[offset].message, self._messages[offset].route)

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """See `Store.steps`."""
        steps = []
        for state in State:
            for first, last, offset in self._steps.get((number, state), ()):
                if first <= key <= last:
                    row = self._log[offset]
                    event = ledger.decode_event(row.event)
                    assert isinstance(event, Moved), "a step points at the event that made it"
                    steps.append(Step(state, row.at_ms, event.session, event.protocol, event.evidence))
        return steps

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """See `Store.names`."""
        return {number: self._names[number] for number in numbers}

    def history(self, chronicle: Chronicle) -> Sequence[Message]:
        """See `Store.history`."""
        found: list[Message] = []
        for kept in reversed(self._messages.values()):
            message = kept.message
            if chronicle.before is not None and message.offset >= chronicle.before:
                continue
            if _belongs(message, chronicle):
                found.append(message)
                if len(found) == chronicle.limit:
                    break
        return found

    def read_log(self, log: str, start: int, limit: int) -> Sequence[LogRow]:
        """See `Store.read_log`."""
        rows, end = (self._activity, len(self._activity)) if log == ACTIVITY else (self._log, self._committed_end)
        return rows[start : min(start + limit, end)]

    def close(self) -> None:
        """See `Store.close`."""


def _belongs(message: Message, chronicle: Chronicle) -> bool:
    reader, peer, target = chronicle.reader, chronicle.peer, str(message.content.target)
    channels = {f"#{channel}" for channel in chronicle.channels}
    if peer is not None and peer.startswith("#"):
        return target == peer and (reader is None or peer in channels)
    if peer is not None:
        forth = target == f"@{peer}" and reader in (None, message.sender)
        back = message.sender == peer and reader is not None and target == f"@{reader}"
        return forth or back
    return reader is None or message.sender == reader or target in {"*", f"@{reader}"} | channels
