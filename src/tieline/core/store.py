"""The Store port: the durable storage that the broker needs.

Writes are buffered. `commit` makes all of them durable together, or none. `commit` returns only when the operating
system reports that the writes are on disk. Reads see buffered writes. One thread calls the store. The broker's ledger
gives the offsets of the main log, dense and in order, and a store refuses a gap. Every integer fits 64 bits. After an
exception, `intact` is true if the buffered writes are still there. If they are not, the broker must call `restore`
before the next write.
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from tieline.contract.chain import GENESIS
from tieline.contract.channel import ChannelId, Role
from tieline.contract.delivery import Fall, State, Step
from tieline.contract.event import LogRow
from tieline.contract.identifiers import ChannelName, MessageId
from tieline.contract.keys import Ranges
from tieline.contract.member import Member
from tieline.contract.message import Message
from tieline.contract.objective import Objective, ObjectiveEvent, ObjectiveId, Status
from tieline.core.inbox import Image
from tieline.core.readers import Cutoff, ReaderStore

_pack_single = struct.Struct("=qqq").pack

ROUTE_BYTES = 24
"""Bytes of one recipient in a packed route."""

INTEGER_MAX = 2**63 - 1
"""The largest integer that a store can keep or search for."""

MAIN = "main"
ACTIVITY = "activity"


_T = TypeVar("_T")


def page(items: Iterable[_T], size: Callable[[_T], int], bytes_max: int) -> list[_T]:
    """The first items that together have at most `bytes_max` bytes, but at least one item."""
    shown: list[_T] = []
    total = 0
    for item in items:
        total += size(item)
        if shown and total > bytes_max:
            break
        shown.append(item)
    return shown


class StoreError(Exception):
    """The store cannot be used: it is newer than this program, locked by another process, full or damaged."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        """Advice for a person to solve the problem."""


class DiskError(StoreError):
    """The disk refuses writes, because it is full, read-only or failing. No command caused this."""


class DamagedError(StoreError):
    """Some or all of the stored data cannot be read."""


def pack_route(numbers: Sequence[int], keys: Sequence[int], stream_seqs: Sequence[int]) -> bytes:
    """Pack the deliveries of one message (see `DeliveryRoute`) as 64-bit integers, one column after the other."""
    if len(keys) == 1:
        return _pack_single(numbers[0], keys[0], stream_seqs[0])
    columns = array("q", numbers)
    columns.extend(keys)
    columns.extend(stream_seqs)
    return columns.tobytes()


class DeliveryRoute(Struct, frozen=True, gc=False):
    """The deliveries of one message, as parallel columns: recipient's number, delivery key, sequence in its stream."""

    numbers: Sequence[int]
    keys: Sequence[int]
    stream_seqs: Sequence[int]

    def pack(self) -> bytes:
        """Pack these deliveries as bytes, for storage."""
        return pack_route(self.numbers, self.keys, self.stream_seqs)

    @classmethod
    def unpack(cls, packed: bytes) -> "DeliveryRoute":
        """Read the deliveries of a message from the bytes that `pack` made."""
        columns = array("q")
        columns.frombytes(packed)
        count = len(columns) // 3
        return cls(columns[:count], columns[count : 2 * count], columns[2 * count :])


class MemberRow(Struct, frozen=True):
    """A member with its number. Stored deliveries name members by number. A number is never used twice."""

    number: int
    member: Member
    since: int = 0
    """The log offset when the member was created. It cannot see what a former member of its name sent or received."""


class TokenRow(Struct, frozen=True):
    """A token of the member with this number. Only the hash of the token is stored."""

    digest: bytes
    number: int
    created_at_ms: int
    expires_at_ms: int | None = None
    id: str = ""
    """Public id of the token, for people who must not know the token itself."""
    label: str = ""
    created_by: str = ""


class Grant(Struct, frozen=True):
    """The right of a member to resume a session, with hashes of its current and of its previous token."""

    id: str
    number: int
    digest: bytes
    previous: bytes | None
    expires_at_ms: int


class Span(Struct, frozen=True, array_like=True):
    """The messages to one target from the log offset `start` to before `end`."""

    target: str
    start: int = 0
    end: int | None = None
    """The offset after the last message, or `None` if the span is still open."""

    def holds(self, offset: int) -> bool:
        """True if a message to the target at this offset is in the span."""
        return self.start <= offset and (self.end is None or offset < self.end)


class ChannelRow(Struct, frozen=True):
    """The stored form of a channel, without its subscribers: id, name, creator, and the spans of its messages."""

    id: ChannelId
    name: ChannelName
    created_by: str
    created_at_ms: int
    archived_at_ms: int | None
    spans: tuple[Span, ...]
    """The messages of this channel. Another channel may have had the name before, or may have it later."""


class Subscription(Struct, frozen=True):
    """The membership of the member with this number in a channel."""

    channel: ChannelId
    number: int
    role: Role
    joined_at_ms: int


class ObjectiveRow(Struct, frozen=True):
    """An objective with the member numbers of its parties (assignee, originator, watchers). No number is used again."""

    serial: int
    """Serial number of the objective in its hub: 1, 2, 3…"""
    objective: Objective
    parties: tuple[int, ...]
    """The numbers of the assignee, the originator and the watchers, in this order."""

    @property
    def assignee(self) -> int:
        """The member number of the assignee."""
        return self.parties[0]

    @property
    def originator(self) -> int:
        """The member number of the originator."""
        return self.parties[1]


class ObjectiveQuery(Struct, frozen=True):
    """A query for objectives. All conditions must hold."""

    party: int | None
    """Only objectives that the member with this number takes part in."""
    assignee: int | None
    statuses: Sequence[Status]
    before: int | None
    """Only objectives with a lower serial."""
    limit: int


class MemberImage(Struct, frozen=True):
    """The part of a snapshot for one member: the inbox, and the last sequence of each stream."""

    number: int
    inbox: Image
    streams: dict[str, int]
    """Last sequence by stream, `sender␟topic`."""
    last_seen_ms: int | None


class Foundation(Struct, frozen=True):
    """The stored state that a broker starts from. The log after `snapshot_end` is replayed on top of it."""

    members: Sequence[MemberRow] = ()
    tokens: Sequence[TokenRow] = ()
    channels: Sequence[ChannelRow] = ()
    subscriptions: Sequence[Subscription] = ()
    grants: Sequence[Grant] = ()
    owners: Sequence[tuple[int, bytes]] = ()
    """Members whose names belong to a shared token, as pairs of member number and hash of the token."""
    settings: Mapping[str, bytes] = {}
    """Small stored values by key; see `save_setting`."""
    objectives: Sequence[ObjectiveRow] = ()
    """Objectives that are neither done nor cancelled."""
    next_serial: int = 1
    images: Sequence[MemberImage] = ()
    snapshot_end: int = 0
    log_end: int = 0
    log_head: str = GENESIS
    next_number: int = 1


class SentReplay(Struct, frozen=True):
    """A message, with its deliveries, that was accepted after the last snapshot and is replayed at a start."""

    offset: int
    sender: str
    topic: str
    route: DeliveryRoute


class MovedReplay(Struct, frozen=True):
    """Deliveries of one member that reached a state after the last snapshot. The change is replayed at a start."""

    number: int
    ranges: Ranges
    state: State
    ackless: bool
    held: bool = False
    """For pending deliveries: true if they were held, false if they were released."""


Replay = SentReplay | MovedReplay


class Received(Struct, frozen=True):
    """One delivery of a member, settled or not. `offset` is the log offset of its message."""

    offset: int
    sender: str
    topic: str
    key: int
    stream_seq: int


class ReceivedPage(Struct, frozen=True):
    """One page of deliveries of a member, newest first."""

    received: Sequence[Received]
    looked: int
    """Number of messages that were read for this page."""
    following: int | None
    """The next page ends before this offset. `None` if there is no next page."""


class Known(Struct, frozen=True):
    """A message found by its wire id, to recognise one that is sent again. `digest` is the hash of its content."""

    message_id: MessageId
    offset: int
    digest: str
    recipients: int


THREADS_MAX = 1000
"""Number of newest objective threads in the full history of a reader. Older threads must be read by name."""


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """A query for past messages: between two members, in channels or threads, or all that the reader may see."""

    reader: str | None
    """Only messages that this member sent or may see. `None` sees everything."""
    since: int
    """Only messages from this log offset on."""
    spans: Sequence[Span] = ()
    """Messages that the reader may see, in addition to its own messages."""
    threads: int | None = None
    """The reader may also see threads of the newest objectives that the member with this number takes part in."""
    all_threads: bool = False
    """The reader may see the threads of all objectives."""
    places: Sequence[Span] | None = None
    """Only messages in these spans, merged in log order. The caller has checked that the reader may see them."""
    peer: str | None = None
    """Only direct messages between the reader and this member. Without a reader, direct messages to this member."""
    before: int | None
    """Only messages before this log offset."""
    forward: bool = False
    """Return the oldest messages first. Cannot be combined with `peer` or `places`."""
    limit: int
    bytes_max: int
    """Limit of stored content in bytes. The first message is returned even if it is larger."""


class ChannelStore(Protocol):
    """The part of a store that has the channels. Its writes are committed with all others."""

    def save(self, row: ChannelRow) -> None:
        """Store a new or changed channel."""

    def drop(self, channel_id: ChannelId) -> None:
        """Delete a channel and its subscriptions."""

    def join(self, subscription: Subscription) -> None:
        """Store that a member is in a channel, or its new role there."""

    def leave(self, channel_id: ChannelId, number: int) -> None:
        """Store that the member with this number left a channel."""


class ActivityEntry(Struct, frozen=True, gc=False):
    """A row of the activity log: one event of an agent's activity, with its member, kind and times."""

    offset: int
    at_ms: int
    """Time when the hub got the event."""
    number: int
    """The number of the member that acted."""
    kind: str
    ts_ms: int
    """Time of the event itself."""
    event: bytes


class ActivityQuery(Struct, frozen=True):
    """A query for activity of one member, by time range and kinds."""

    number: int
    from_ms: int | None
    to_ms: int | None
    """The time range includes both `from_ms` and `to_ms`."""
    kinds: Sequence[str]
    limit: int
    bytes_max: int
    """Limit of content in bytes. The first event is returned even if it is larger."""


class ActivityStore(Protocol):
    """Durable storage of the activity log, separate from the hub's own store. One dedicated thread calls it.

    Writes are buffered. `commit` makes them durable together. After any exception the buffered writes are lost.
    """

    @property
    def readers(self) -> ReaderStore:
        """The part of this store that has the readers of the activity log."""

    def restore(self) -> int:
        """Drop buffered writes, and return the offset of the next row."""

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        """Append rows. Their offsets are dense, and a store refuses a gap."""

    def commit(self) -> None:
        """Make everything buffered durable, at once."""

    def retry(self) -> None:
        """Check, while nothing is buffered, that the store can write again. Raises if it cannot."""

    def select(self, query: ActivityQuery) -> Sequence[ActivityEntry]:
        """Return the committed activity that matches the query, newest first by the time of the event."""

    def read_log(self, start: int, limit: int, bytes_max: int) -> tuple[Sequence[LogRow], int]:
        """Return committed rows from offset `start` on, and the offset that the next new row will get.

        There are at most `limit` rows of together `bytes_max` bytes. The first row is returned even if it is larger.
        """

    def prune(self, cutoff: Cutoff, limit: int) -> range:
        """Delete up to `limit` committed rows, oldest first, as far as `cutoff` allows. Returns their offsets.

        The newest row always stays, so that offsets continue from it.
        """

    def close(self) -> None:
        """Release everything. Uncommitted writes are lost. A second call does nothing."""


class ObjectiveStore(Protocol):
    """The part of a store that has the objectives. Its writes are committed with all others."""

    def change(self, row: LogRow, kept: ObjectiveRow, event: ObjectiveEvent) -> None:
        """Store the new state of an objective, and append to its event log. `row` is the log row of the change."""

    def find(self, objective_id: ObjectiveId) -> ObjectiveRow | None:
        """Return the objective with this id, or `None`."""

    def select(self, query: ObjectiveQuery) -> Sequence[ObjectiveRow]:
        """Return the objectives that match the query, newest first."""

    def events(self, serial: int, after: int, limit: int) -> Sequence[ObjectiveEvent]:
        """Return entries of the event log of the objective `serial`, after the log offset `after`, oldest first."""


class Store(Protocol):
    """Durable storage of one hub: the main log, members, tokens, messages, deliveries, channels and objectives."""

    @property
    def channels(self) -> ChannelStore:
        """The part of this store that has the channels."""

    @property
    def objectives(self) -> ObjectiveStore:
        """The part of this store that has the objectives."""

    @property
    def readers(self) -> ReaderStore:
        """The part of this store that has the readers of the main log."""

    @property
    def intact(self) -> bool:
        """False after an error that lost buffered writes; `restore` is needed then."""

    @property
    def trouble(self) -> str:
        """Description of background work that failed and is retried later. Empty if there is none."""

    def explain(self, error: Exception) -> Exception:
        """Translate an error of the database or the disk to a `StoreError`. Other errors are returned unchanged."""

    def retry(self) -> None:
        """Check, while nothing is buffered, that the store can write again. Raises if it cannot."""

    def restore(self) -> Foundation:
        """Drop buffered writes, and return the committed state."""

    def replay(self, start: int) -> Iterator[Replay]:
        """Yield the messages and the status changes of deliveries in the main log, from offset `start` on, in order."""

    def expiring(self) -> Iterator[tuple[int, DeliveryRoute]]:
        """Yield the deadline and the deliveries (route) of every stored message that has a time to live."""

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes, shared_id: bool = False) -> None:
        """Store a message with its deliveries (the packed route). `row` is the log row of its `Sent` event.

        The wire id must be new for this sender. A shared wire id must be new for all senders of the protocol.
        """

    def advance(self, row: LogRow, number: int, state: State, ranges: Ranges) -> None:
        """Store that deliveries of the member `number` reached a state. `row` is the log row of the `Moved` event."""

    def fall(self, row: LogRow, number: int, ranges: Ranges) -> None:
        """Store that deliveries of the member `number` were escalated. `row` is the log row of the `Fell` event."""

    def record(self, row: LogRow) -> None:
        """Store the log row of an event about members, channels, pauses, the team or refusals, or of `Released`.

        The other events have their own methods: `accept`, `advance`, `fall` and `objectives.change`.
        """

    def save_member(self, row: MemberRow) -> None:
        """Store a new member, or replace the row of a changed member."""

    def drop_member(self, number: int, at_ms: int) -> None:
        """Delete a member's name, tokens, grants, wire ids and subscriptions. Stored deliveries keep its number."""

    def save_token(self, row: TokenRow) -> None:
        """Store a token, in addition to other tokens of its member."""

    def drop_token(self, digest: bytes) -> None:
        """Delete the token with this hash."""

    def save_setting(self, key: str, value: bytes) -> None:
        """Store a small value under a key, such as the ways of a member, and replace the earlier value."""

    def save_owner(self, number: int, digest: bytes) -> None:
        """Store the hash of the shared token that owns a member's name, and replace the earlier hash."""

    def save_grant(self, grant: Grant) -> None:
        """Store the grant to resume a session, and replace the earlier grant of that session."""

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """Store a snapshot of these members: their inboxes and streams, as of the log offset `end`.

        It replaces their earlier images. All log rows before `end` are included.
        """

    def prune(self, start: int, cutoff: Cutoff, keep: frozenset[int], limit: int) -> tuple[Sequence[int], int | None]:
        """Delete old messages: check the next `limit` messages from the log offset `start` on.

        A message is deleted if `cutoff` allows it and its offset is not in `keep`. Returns the offsets of the deleted
        messages, and the offset to continue from. That offset is `None` at the first message that `cutoff` keeps. The
        log rows of deleted messages stay.
        """

    def commit(self) -> None:
        """Make all buffered writes durable, at once. If this raises, none of them is stored."""

    def prefetch(self, wire_keys: Sequence[tuple[str, str, str]]) -> None:
        """Read wire ids ahead, if that is cheaper. `find_wire_id` will ask for them before the next commit.

        Each of `wire_keys` is a sender, a protocol and a wire id.
        """

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> Known | None:
        """Find the message of this sender with this wire id. An empty sender finds an id that all senders share."""

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """Return the messages at these log offsets. Messages that retention deleted are missing.

        Stops before the message that would exceed `bytes_max` of stored content, but never before the first. Also
        returns the number of offsets that were considered.
        """

    def received(self, number: int, name: str, peer: str, before: int | None, limit: int) -> ReceivedPage:
        """Return deliveries to a member from a peer, newest first, unless retention deleted them.

        The peer `@place` means all senders without an identity at that place, who wrote to that channel or to the
        member. Reads at most `limit` messages that the peer may have sent. With `before`, reads only messages before
        that log offset.
        """

    def find_message(self, message_id: MessageId) -> tuple[Message, DeliveryRoute] | None:
        """Return the message with this id, and its deliveries (route); or `None`."""

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """Return the status changes of one delivery after its first status, `pending`, oldest first.

        `number` is the member number of the recipient, `key` the key of the delivery.
        """

    def falls(self, number: int, first: int, last: int) -> Sequence[Fall]:
        """Return the escalations of a member's deliveries with keys `first` to `last`, oldest first.

        An escalation may also cover deliveries outside these keys, if they were escalated together.
        """

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """Return the names of the members with these numbers, including removed members."""

    def history(self, history_query: HistoryQuery) -> Sequence[Message]:
        """Return a page of messages that match the query, newest first unless `forward` is set."""

    def read_log(self, start: int, limit: int) -> tuple[Sequence[LogRow], int]:
        """Return at most `limit` committed rows of the main log from `start` on, and the offset of the next new row."""

    def close(self) -> None:
        """Release everything. Uncommitted writes are lost. A second call does nothing."""
