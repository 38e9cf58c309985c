"""The interface `Store`: the durable storage that the broker needs.

Writes are buffered. `commit` makes all of them durable together, or none. `commit` returns only when the operating
system reports that the writes are on disk. Reads see buffered writes. One thread calls the store. The broker's ledger
gives the offsets of the main log, in order and without gaps, and a store refuses a gap. Every integer fits 64 bits.
If an exception lost the buffered writes, `intact` is false, and the broker must call `restore` before the next write.
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
    """Return the first items whose sizes (`size`) add up to at most `bytes_max` bytes, but always at least one item."""
    shown: list[_T] = []
    total = 0
    for item in items:
        total += size(item)
        if shown and total > bytes_max:
            break
        shown.append(item)
    return shown


class StoreError(Exception):
    """Error: the store cannot be used. It is newer than this program, locked by another process, full or damaged."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        """Advice for a person to solve the problem."""


class DiskError(StoreError):
    """Error: the disk refuses writes, because it is full, read-only or failing. No command caused this."""


class DamagedError(StoreError):
    """Error: some or all of the stored data cannot be read."""


def pack_route(numbers: Sequence[int], keys: Sequence[int], stream_seqs: Sequence[int]) -> bytes:
    """Return the deliveries of one message as bytes, for storage.

    The bytes are 64-bit integers: first all member numbers, then all keys, then all `stream_seqs`.
    """
    if len(keys) == 1:
        return _pack_single(numbers[0], keys[0], stream_seqs[0])
    columns = array("q", numbers)
    columns.extend(keys)
    columns.extend(stream_seqs)
    return columns.tobytes()


class DeliveryRoute(Struct, frozen=True, gc=False):
    """The deliveries of one message, as three lists with one value for each recipient, in the same order.

    The values are the member number of the recipient, the key of the delivery, and its number in its stream.
    """

    numbers: Sequence[int]
    keys: Sequence[int]
    stream_seqs: Sequence[int]

    def pack(self) -> bytes:
        """Return these deliveries as bytes, for storage."""
        return pack_route(self.numbers, self.keys, self.stream_seqs)

    @classmethod
    def unpack(cls, packed: bytes) -> "DeliveryRoute":
        """Return the deliveries of a message from the bytes that `pack` made."""
        columns = array("q")
        columns.frombytes(packed)
        count = len(columns) // 3
        return cls(columns[:count], columns[count : 2 * count], columns[2 * count :])


class MemberRow(Struct, frozen=True):
    """Row of a member, with its number. Stored deliveries name members by number. A number is never used twice."""

    number: int
    member: Member
    since: int = 0
    """The log offset at which the member was created. The member cannot see messages of an earlier member with the same
    name."""


class TokenRow(Struct, frozen=True):
    """Row of a token of the member with this number. Only the hash of the token is stored."""

    digest: bytes
    number: int
    created_at_ms: int
    expires_at_ms: int | None = None
    id: str = ""
    """Public id of the token, for people who must not know the token itself."""
    label: str = ""
    created_by: str = ""


class Grant(Struct, frozen=True):
    """Row of a grant (the right to resume a session). It has the hashes of the current and the previous token."""

    id: str
    number: int
    digest: bytes
    previous: bytes | None
    expires_at_ms: int


class Span(Struct, frozen=True, array_like=True):
    """A part of the log: the messages to one target, from the log offset `start` up to the offset before `end`."""

    target: str
    start: int = 0
    end: int | None = None
    """The first offset after the span; `None` if the span still grows."""

    def contains(self, offset: int) -> bool:
        """True if a message at this offset is in this part of the log. The message must be to the same target."""
        return self.start <= offset and (self.end is None or offset < self.end)


class ChannelRow(Struct, frozen=True):
    """Row of a channel, without its subscribers: id, name, creator, and the spans of its messages."""

    id: ChannelId
    name: ChannelName
    created_by: str
    created_at_ms: int
    archived_at_ms: int | None
    spans: tuple[Span, ...]
    """The parts of the log with the messages of this channel. Other messages under its name are of other channels."""


class Subscription(Struct, frozen=True):
    """Row that says that the member with this number is in a channel, and in which role."""

    channel: ChannelId
    number: int
    role: Role
    joined_at_ms: int


class ObjectiveRow(Struct, frozen=True):
    """Row of an objective, with the member numbers of its parties.

    A name may be reused later, but a number never is.
    """

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
    """The part of a snapshot for one member: the inbox, and the last number of each stream."""

    number: int
    inbox: Image
    streams: dict[str, int]
    """Last number in each stream. The key is the name of the stream, `sender␟topic`."""
    last_seen_ms: int | None


class StoredState(Struct, frozen=True):
    """The stored state that a broker starts from. After that, the broker replays the log from `snapshot_end` on."""

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
    """A message that was accepted after the last snapshot, with its deliveries. The hub replays it when it starts."""

    offset: int
    sender: str
    topic: str
    route: DeliveryRoute


class MovedReplay(Struct, frozen=True):
    """A change of one member's deliveries after the last snapshot. The hub replays it when it starts."""

    number: int
    ranges: Ranges
    state: State
    ackless: bool
    held: bool = False
    """For pending deliveries: true if they were held, false if they were released."""


Replay = SentReplay | MovedReplay


class Received(Struct, frozen=True):
    """One delivery of a member, in any state. `offset` is the log offset of its message."""

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
    """Pass this offset as `before` to read the next page. `None` if there is no next page."""


class KnownMessage(Struct, frozen=True):
    """A stored message that was found by its wire id (the id that its sender gave).

    `digest` is the hash of its content. The hash shows if a sender sends the same message again.
    """

    message_id: MessageId
    offset: int
    digest: str
    recipients: int


THREADS_MAX = 1000
"""Limit on the threads of objectives in the full history of a reader: the newest. It must ask for others by name."""


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """A query for past messages: between two members, in a channel or thread, or all that the reader may see."""

    reader: str | None
    """Only messages that this member sent or may see. `None` for all messages."""
    since: int
    """Only messages from this log offset on."""
    spans: Sequence[Span] = ()
    """The parts of the log that the reader may see, in addition to the messages that it sent."""
    threads: int | None = None
    """Number of a member. The reader may also see the threads of the newest objectives of this member."""
    all_threads: bool = False
    """True if the reader may see the threads of all objectives."""
    places: Sequence[Span] | None = None
    """Only messages in these parts of the log. The caller has checked that the reader may see them."""
    peer: str | None = None
    """Only direct messages between the reader and this member. Without a reader, direct messages to this member."""
    before: int | None
    """Only messages before this log offset."""
    forward: bool = False
    """True to return the oldest messages first. Cannot be combined with `peer` or `places`."""
    limit: int
    bytes_max: int
    """Limit on the stored size of all messages in the answer. The first message is returned even if it is larger."""


class ChannelStore(Protocol):
    """Interface to the part of a store that has the channels.

    Its writes are committed together with all other writes of the store.
    """

    def save(self, row: ChannelRow) -> None:
        """Store a new or changed channel."""

    def drop(self, channel_id: ChannelId) -> None:
        """Delete a channel and its subscriptions."""

    def join(self, subscription: Subscription) -> None:
        """Store a subscription: a member joined a channel, or has a new role in the channel."""

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
    """Limit on the size of all events in the answer. The first event is returned even if it is larger."""


class ActivityStore(Protocol):
    """Interface of the durable storage of the activity log. It is separate from the hub's own store.

    One dedicated thread calls it. `commit` makes buffered writes durable together. Any exception drops buffered writes.
    """

    @property
    def erasing(self) -> bool:
        """True if a file may still have erased content, for example because a reader needs it. `retry` tries again."""

    @property
    def readers(self) -> ReaderStore:
        """The part of this store that has the readers of the activity log."""

    def restore(self) -> int:
        """Forget buffered writes, and return the offset of the next row."""

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        """Append rows. Raise if their offsets have a gap."""

    def commit(self) -> None:
        """Make all buffered writes durable together."""

    def retry(self) -> None:
        """Check, while nothing is buffered, that the store can write again. Raise if it cannot."""

    def select(self, query: ActivityQuery) -> Sequence[ActivityEntry]:
        """Return the committed activity that matches the query, newest first by the time of the event."""

    def read_log(self, start: int, limit: int, bytes_max: int) -> tuple[Sequence[LogRow], int]:
        """Return committed rows from offset `start` on, and the offset that the next new row will get.

        There are at most `limit` rows, and together they have at most `bytes_max` bytes. The first row is returned even
        if it is larger.
        """

    def erase(self, text: str, note: str) -> None:
        """Replace all events that have this text. A new event has only the kind, the time and the text `note`."""

    def prune(self, cutoff: Cutoff, limit: int) -> range:
        """Delete up to `limit` committed rows, oldest first, as far as `cutoff` allows. Return their offsets.

        The newest row always stays, so that the next row gets the offset after it.
        """

    def close(self) -> None:
        """Close the store. Uncommitted writes are lost. A second call does nothing."""


class ObjectiveStore(Protocol):
    """Interface to the part of a store that has the objectives.

    Its writes are committed together with all other writes of the store.
    """

    def change(self, row: LogRow, kept: ObjectiveRow, event: ObjectiveEvent) -> None:
        """Store the new state `kept` of an objective, and append `event` to its event log. `row` is the log row."""

    def find(self, objective_id: ObjectiveId) -> ObjectiveRow | None:
        """Return the objective with this id, or `None`."""

    def select(self, query: ObjectiveQuery) -> Sequence[ObjectiveRow]:
        """Return the objectives that match the query, newest first."""

    def events(self, serial: int, after: int, limit: int) -> Sequence[ObjectiveEvent]:
        """Return entries of the event log of the objective `serial`, after the log offset `after`, oldest first."""


class Store(Protocol):
    """Interface of a hub's durable storage: log, members, tokens, messages, deliveries, channels, objectives."""

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
        """False if an error lost buffered writes. In this case, call `restore`."""

    @property
    def trouble(self) -> str:
        """Description of background work that failed and is retried later. Empty if there is none."""

    def explain(self, error: Exception) -> Exception:
        """Return a `StoreError` for an error of the database or the disk. Return any other error unchanged."""

    def retry(self) -> None:
        """Check, while nothing is buffered, that the store can write again. Raise if it cannot."""

    def restore(self) -> StoredState:
        """Forget buffered writes, and return the committed state."""

    def replay(self, start: int) -> Iterator[Replay]:
        """Yield the messages and the status changes of deliveries in the main log, from offset `start` on, in order."""

    def expiring(self) -> Iterator[tuple[int, DeliveryRoute]]:
        """Yield the deadline and the deliveries (route) of every stored message that has a time to live."""

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes, shared_id: bool = False) -> None:
        """Store a message with its deliveries (the packed route). `row` is the log row of its `Sent` event.

        The wire id (the sender's own id of the message) must be new for this sender. With `shared_id`, it must be new
        for all senders of the protocol.
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
        """Delete a member, with its tokens, subscriptions, rights to resume sessions, and the wire ids of its messages.

        Stored deliveries keep the member's number.
        """

    def save_token(self, row: TokenRow) -> None:
        """Store a token. Other tokens of the same member stay."""

    def drop_token(self, digest: bytes) -> None:
        """Delete the token with this hash."""

    def save_setting(self, key: str, value: bytes) -> None:
        """Store a small value under a key, for example the ways to reach a member. Replace the earlier value."""

    def save_owner(self, number: int, digest: bytes) -> None:
        """Store the hash of the shared token that owns a member's name. Replace the earlier hash.

        A shared token is a token that several members use.
        """

    def save_grant(self, grant: Grant) -> None:
        """Store a grant (the right to resume a session). It replaces the earlier grant of that session."""

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """Store a snapshot of these members: their inboxes and streams, as of the log offset `end`.

        It replaces the earlier snapshot of these members. It includes the changes of all log rows before `end`.
        """

    def prune(self, start: int, cutoff: Cutoff, keep: frozenset[int], limit: int) -> tuple[Sequence[int], int | None]:
        """Delete old messages among the next `limit` messages, from the log offset `start` on.

        A message is deleted if `cutoff` allows it and its offset is not in `keep`. Return the offsets of the deleted
        messages, and the offset from which to continue. This offset is `None` if no more messages are old enough. The
        log rows of deleted messages stay.
        """

    def redact(self, row: LogRow, offset: int, content: bytes) -> None:
        """Replace the content of the message at `offset`, without its signature, and erase the old content.

        `row` is the log row of the `Redacted` event. Soon after the commit, no file of the store has the old content.
        """

    def commit(self) -> None:
        """Make all buffered writes durable together. If this raises, none of them is stored."""

    def prefetch(self, wire_keys: Sequence[tuple[str, str, str]]) -> None:
        """Look up these wire ids (senders' ids of messages) in advance, if that is faster.

        The broker will ask for them before the commit. Each of `wire_keys` is a sender, a protocol and a wire id.
        """

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> KnownMessage | None:
        """Return the message of this sender with this wire id (the sender's own id); `None` if there is none.

        An empty sender finds a shared wire id, which is unique among all senders of the protocol.
        """

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """Return the messages at these log offsets, and the number of offsets that were considered.

        Old messages that the hub deleted are missing. Stop before the total stored size would exceed `bytes_max`. The
        first message is returned even if it is larger.
        """

    def received(self, number: int, name: str, peer: str, before: int | None, limit: int) -> ReceivedPage:
        """Return deliveries to a member from a peer, newest first. Deliveries of deleted messages are missing.

        The member has this `number` and `name`. A peer `@place` means all senders without an identity at that place.
        Read at most `limit` messages that the peer may have sent. With `before`, read only messages before that log
        offset.
        """

    def find_message(self, message_id: MessageId) -> tuple[Message, DeliveryRoute] | None:
        """Return the message with this id, and its deliveries (route); or `None`."""

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """Return the status changes of one delivery, oldest first. Its first status, `pending`, is left out.

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
        """Close the store. Uncommitted writes are lost. A second call does nothing."""
