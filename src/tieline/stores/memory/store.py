"""The memory store: the Store port over plain dictionaries.

`restore` after an abandoned batch gives back what was committed, as on disk, so that simulations can crash it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile

from tieline.contract.delivery import Fall, State, Step
from tieline.contract.event import Fell, Held, LogRow, Moved
from tieline.contract.identifiers import MessageId
from tieline.contract.message import Message
from tieline.contract.objective import ObjectiveId
from tieline.core import ledger
from tieline.core.ladder import STATES
from tieline.core.store import (
    Chronicle,
    Foundation,
    Grant,
    Known,
    MemberImage,
    MemberRow,
    MovedReplay,
    Received,
    ReceivedPage,
    Replay,
    Route,
    SentReplay,
    StoreError,
    TokenRow,
)
from tieline.stores.memory.channels import MemoryChannels
from tieline.stores.memory.objectives import MemoryObjectives

_WireKey = tuple[str, str, str]
"""Whose it is, nobody's if it is shared; the protocol; the wire id."""


class _Kept:
    """A message with what belongs to it."""

    __slots__ = ("content", "message", "route", "wire_key")

    def __init__(self, message: Message, content: bytes, route: Route, wire_key: _WireKey | None) -> None:
        self.message = message
        self.wire_key = wire_key
        self.content = content
        self.route = route


class MemoryStore:
    """A hub's storage in memory. Every write leaves a note of how to take it back; a commit throws the notes away."""

    def __init__(self) -> None:
        self._log: list[LogRow] = []
        self._committed_end = 0
        self._messages: dict[int, _Kept] = {}
        self._offsets_by_id: dict[MessageId, int] = {}
        self._offsets_by_wire_id: dict[tuple[str, str, str], int] = {}
        # Ranges of each member and state, with the log offset of the event that moved them.
        self._steps: dict[tuple[int, State], list[tuple[int, int, int]]] = {}
        # Falls of each member, with the log offset of the event that says so.
        self._falls: dict[int, list[tuple[int, Fall]]] = {}
        self._members: dict[int, MemberRow] = {}
        self._names: dict[int, str] = {}
        self._tokens: dict[bytes, TokenRow] = {}
        self._settings: dict[str, bytes] = {}
        self._grants: dict[str, Grant] = {}
        self._owners: dict[int, bytes] = {}
        self._images: dict[int, MemberImage] = {}
        self._snapshot_end = 0
        self._undo: list[Callable[[], object]] = []
        self.intact = True
        self.trouble = ""
        self.channels = MemoryChannels(self._keep_in)
        self.objectives = MemoryObjectives(self.record, self._undo)

    # Writes.

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes, shared_id: bool = False) -> None:
        """See `Store.accept`."""
        wire_key = _wire_key(message, shared_id)
        if wire_key in self._offsets_by_wire_id:
            self._abandon()
            raise StoreError(f"{message.sender} used the wire id {message.wire_id!r} before")
        self._append(row)
        self._messages[row.offset] = _Kept(message, content, Route.unpack(route), wire_key)
        self._offsets_by_id[message.id] = row.offset
        if wire_key is not None:
            self._offsets_by_wire_id[wire_key] = row.offset

    def advance(self, row: LogRow, number: int, state: State, ranges: Sequence[tuple[int, int]]) -> None:
        """See `Store.advance`."""
        self._append(row)
        kept = self._steps.setdefault((number, state), [])
        kept.extend((first, last, row.offset) for first, last in ranges)

    def fall(self, row: LogRow, number: int, ranges: Sequence[tuple[int, int]]) -> None:
        """See `Store.fall`."""
        self._append(row)
        event = ledger.decode_event(row.event)
        assert isinstance(event, Fell), "the row says that they fell"
        made = [Fall(first, last, row.at_ms, event.way, event.after) for first, last in ranges]
        self._falls.setdefault(number, []).extend((row.offset, fall) for fall in made)

    def record(self, row: LogRow) -> None:
        """See `Store.record`."""
        self._append(row)

    def _append(self, row: LogRow) -> None:
        end = len(self._log)
        if row.offset != end:
            self._abandon()
            raise StoreError(f"the log is at {end}, a row for {row.offset} does not fit")
        self._log.append(row)

    def _keep(self, state: str, value: object) -> None:
        """Change one of the small tables as a whole, in a way that can be taken back."""
        self._keep_in(self, state, value)

    def _keep_in(self, owner: object, state: str, value: object) -> None:
        before = getattr(owner, state)
        self._undo.append(lambda: setattr(owner, state, before))
        setattr(owner, state, value)

    def save_member(self, row: MemberRow) -> None:
        """See `Store.save_member`."""
        self._keep("_members", {**self._members, row.number: row})
        self._keep("_names", {**self._names, row.number: row.member.name})

    def drop_member(self, number: int, at_ms: int) -> None:
        """See `Store.drop_member`."""
        del at_ms
        name = self._names[number]
        self._keep("_members", {other: row for other, row in self._members.items() if other != number})
        self._keep("_tokens", {digest: row for digest, row in self._tokens.items() if row.number != number})
        self._keep("_owners", {other: digest for other, digest in self._owners.items() if other != number})
        self._keep("_grants", {key: grant for key, grant in self._grants.items() if grant.number != number})
        self._keep("_images", {other: image for other, image in self._images.items() if other != number})
        self.channels.drop_member(number)
        wire_ids = self._offsets_by_wire_id
        self._keep("_offsets_by_wire_id", {key: offset for key, offset in wire_ids.items() if key[0] != name})

    def save_token(self, row: TokenRow) -> None:
        """See `Store.save_token`."""
        self._keep("_tokens", {**self._tokens, row.digest: row})

    def drop_token(self, digest: bytes) -> None:
        """See `Store.drop_token`."""
        self._keep("_tokens", {other: row for other, row in self._tokens.items() if other != digest})

    def save_setting(self, key: str, value: bytes) -> None:
        """See `Store.save_setting`."""
        self._keep("_settings", {**self._settings, key: value})

    def save_owner(self, number: int, digest: bytes) -> None:
        """See `Store.save_owner`."""
        self._keep("_owners", {**self._owners, number: digest})

    def save_grant(self, grant: Grant) -> None:
        """See `Store.save_grant`."""
        self._keep("_grants", {**self._grants, grant.id: grant})

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """See `Store.save_snapshot`."""
        self._keep("_images", {**self._images, **{image.number: image for image in images}})
        self._keep("_snapshot_end", end)

    def prune(self, start: int, before_ms: int, keep: frozenset[int], limit: int) -> tuple[Sequence[int], int | None]:
        """See `Store.prune`."""
        looked = list(islice((offset for offset in self._messages if offset >= start), limit))
        old = list(takewhile(lambda offset: self._messages[offset].message.sent_at_ms < before_ms, looked))
        doomed = [offset for offset in old if offset not in keep]
        if doomed:
            gone = set(doomed)
            ids = {key: offset for key, offset in self._offsets_by_id.items() if offset not in gone}
            wire_ids = {key: offset for key, offset in self._offsets_by_wire_id.items() if offset not in gone}
            self._keep("_messages", {offset: kept for offset, kept in self._messages.items() if offset not in gone})
            self._keep("_offsets_by_id", ids)
            self._keep("_offsets_by_wire_id", wire_ids)
        return doomed, looked[-1] + 1 if len(old) == limit else None

    def commit(self) -> None:
        """See `Store.commit`."""
        self._committed_end = len(self._log)
        self._undo.clear()

    def explain(self, error: Exception) -> Exception:
        """See `Store.explain`."""
        return error

    def retry(self) -> None:
        """See `Store.retry`."""

    def _abandon(self) -> None:
        self.intact = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        end = self._committed_end
        for offset in range(end, len(self._log)):
            kept = self._messages.pop(offset, None)
            if kept is None:
                continue
            del self._offsets_by_id[kept.message.id]
            if kept.wire_key is not None:
                self._offsets_by_wire_id.pop(kept.wire_key, None)
        del self._log[end:]
        for ranges in self._steps.values():
            ranges[:] = [step for step in ranges if step[2] < end]
        for falls in self._falls.values():
            falls[:] = [fall for fall in falls if fall[0] < end]

    # Reads.

    def restore(self) -> Foundation:
        """See `Store.restore`."""
        self._abandon()
        self.intact = True
        return Foundation(
            members=list(self._members.values()),
            tokens=list(self._tokens.values()),
            channels=list(self.channels.rows.values()),
            subscriptions=list(self.channels.subscriptions.values()),
            grants=list(self._grants.values()),
            owners=list(self._owners.items()),
            settings=dict(self._settings),
            objectives=self.objectives.open_rows(),
            next_serial=self.objectives.next_serial,
            images=list(self._images.values()),
            snapshot_end=self._snapshot_end,
            log_end=len(self._log),
            log_head=self._log[-1].hash if self._log else ledger.GENESIS,
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
                held = isinstance(event, Held)
                yield MovedReplay(event.number, event.keys, STATES[type(event)], event.mute, held)

    def expiring(self) -> Iterator[tuple[int, Route]]:
        """See `Store.expiring`."""
        for kept in self._messages.values():
            ttl_ms = kept.message.content.ttl_ms
            if ttl_ms is not None:
                yield kept.message.sent_at_ms + ttl_ms, kept.route

    def foresee(self, wire_keys: Sequence[tuple[str, str, str]]) -> None:
        """See `Store.foresee`."""

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> Known | None:
        """See `Store.find_wire_id`."""
        offset = self._offsets_by_wire_id.get((sender, protocol, wire_id))
        if offset is None:
            return None
        kept = self._messages[offset]
        return Known(kept.message.id, offset, ledger.digest(kept.content), len(kept.route.keys))

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """See `Store.messages`."""
        found: dict[int, Message] = {}
        total = 0
        for considered, offset in enumerate(offsets):
            kept = self._messages.get(offset)
            if kept is None:
                continue
            total += len(kept.content)
            if found and total > bytes_max:
                return found, considered
            found[offset] = kept.message
        return found, len(offsets)

    def received(self, number: int, name: str, peer: str, before: int | None, limit: int) -> ReceivedPage:
        """See `Store.received`."""
        end = len(self._log) if before is None else before
        asked = (
            offset
            for offset in reversed(self._messages)
            if offset < end and _may_have_said(self._messages[offset].message, name, peer)
        )
        offsets = list(islice(asked, limit))
        found = []
        for offset in offsets:
            route, message = self._messages[offset].route, self._messages[offset].message
            if number in route.numbers and (message.sender == peer or message.sender.endswith(peer)):
                index = route.numbers.index(number)
                topic = message.content.topic
                found.append(Received(offset, message.sender, topic, route.keys[index], route.stream_seqs[index]))
        return ReceivedPage(found, len(offsets), offsets[-1] if len(offsets) == limit else None)

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
                    break
        return steps

    def falls(self, number: int, first: int, last: int) -> Sequence[Fall]:
        """See `Store.falls`."""
        return [fall for _, fall in self._falls.get(number, ()) if fall.last >= first and fall.first <= last]

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """See `Store.names`."""
        return {number: self._names[number] for number in numbers}

    def history(self, chronicle: Chronicle) -> Sequence[Message]:
        """See `Store.history`."""
        found: list[Message] = []
        total = 0
        forward = chronicle.forward
        for kept in self._messages.values() if forward else reversed(self._messages.values()):
            message = kept.message
            if message.offset < chronicle.since:
                if forward:
                    continue
                break
            if chronicle.before is not None and message.offset >= chronicle.before:
                continue
            if self._belongs(message, chronicle):
                total += len(kept.content)
                if found and total > chronicle.bytes_max:
                    break
                found.append(message)
                if len(found) == chronicle.limit:
                    break
        return found

    def _belongs(self, message: Message, chronicle: Chronicle) -> bool:
        reader, peer, target = chronicle.reader, chronicle.peer, str(message.content.target)
        if chronicle.places is not None:
            return any(span.target == target and span.holds(message.offset) for span in chronicle.places)
        if peer is not None:
            forth = target == f"@{peer}" and reader in (None, message.sender)
            back = message.sender == peer and reader is not None and target == f"@{reader}"
            return forth or back
        if reader is None or message.sender == reader:
            return True
        if target.startswith("obj:"):
            row = self.objectives.find(ObjectiveId(target.removeprefix("obj:")))
            return chronicle.all_threads or (row is not None and chronicle.threads in row.parties)
        return any(span.target == target and span.holds(message.offset) for span in chronicle.spans)

    def committed_messages(self) -> list[Message]:
        """All messages, oldest first. For the search, which has a thread of its own: one step, so nothing changes."""
        end = self._committed_end
        return [kept.message for kept in list(self._messages.values()) if kept.message.offset < end]

    def threads_of(self, number: int | None) -> frozenset[str]:
        """The threads of the objectives that a member has a part in."""
        return frozenset(f"obj:{row.objective.id}" for row in self.objectives.of_party(number))

    def read_log(self, start: int, limit: int) -> tuple[Sequence[LogRow], int]:
        """See `Store.read_log`."""
        end = self._committed_end
        return self._log[start : min(start + limit, end)], end

    def close(self) -> None:
        """See `Store.close`."""


def _may_have_said(message: Message, name: str, peer: str) -> bool:
    """Whether a message may be one of a peer to a member, as far as its target and sender tell."""
    target = str(message.content.target)
    if peer.startswith("@"):
        return target in (f"#{peer.removeprefix('@')}", f"@{name}")
    return message.sender == peer and (target == f"@{name}" or not target.startswith("@"))


def _wire_key(message: Message, shared: bool) -> _WireKey | None:
    owner = "" if shared else message.sender
    return None if message.wire_id is None else (owner, message.protocol, message.wire_id)
