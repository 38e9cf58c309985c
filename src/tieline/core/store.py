"""The Store port: what the broker needs of durable storage, as intentions.

Writes are buffered: they become durable together, all or none, at `commit`, which returns only when the operating
system says that they are on disk. Reads see buffered writes. The caller is one thread. Offsets of the main log are
given by the broker's ledger and come in dense and in order; a store refuses a gap. Every integer is within 64 bits.
After an exception `intact` says whether the buffered writes are still there; if not, nothing may be written before
`restore`.
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

_pack_single = struct.Struct("=qqq").pack

ROUTE_BYTES = 24
"""Bytes of one recipient in a packed route."""

INTEGER_MAX = 2**63 - 1
"""The largest integer that a store keeps or looks for."""

MAIN = "main"
ACTIVITY = "activity"


_T = TypeVar("_T")


def page(items: Iterable[_T], size: Callable[[_T], int], bytes_max: int) -> list[_T]:
    """As many of the items as fit an answer of this size, but at least one."""
    shown: list[_T] = []
    total = 0
    for item in items:
        total += size(item)
        if shown and total > bytes_max:
            break
        shown.append(item)
    return shown


class StoreError(Exception):
    """The store cannot be used: it is newer than this program, held by another process, full or damaged."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        """What a person can do about it."""


class DiskError(StoreError):
    """The disk does not take what is written: it is full, read-only or failing. No command is to blame."""


class DamagedError(StoreError):
    """What is stored cannot be read: some of it, or all."""


def pack_route(numbers: Sequence[int], keys: Sequence[int], stream_seqs: Sequence[int]) -> bytes:
    """The three columns of 64-bit integers, one after the other."""
    if len(keys) == 1:
        return _pack_single(numbers[0], keys[0], stream_seqs[0])
    columns = array("q", numbers)
    columns.extend(keys)
    columns.extend(stream_seqs)
    return columns.tobytes()


class Route(Struct, frozen=True, gc=False):
    """Where one message goes, as parallel columns: recipient, delivery key, sequence in its stream."""

    numbers: Sequence[int]
    keys: Sequence[int]
    stream_seqs: Sequence[int]

    def pack(self) -> bytes:
        """The route as it is stored."""
        return pack_route(self.numbers, self.keys, self.stream_seqs)

    @classmethod
    def unpack(cls, packed: bytes) -> "Route":
        """The route that was packed."""
        columns = array("q")
        columns.frombytes(packed)
        count = len(columns) // 3
        return cls(columns[:count], columns[count : 2 * count], columns[2 * count :])


class MemberRow(Struct, frozen=True):
    """A member with the number that stands for it in routes; numbers are never used twice."""

    number: int
    member: Member
    since: int = 0
    """The log offset at which it was made: what a former member of the same name said is none of its business."""


class TokenRow(Struct, frozen=True):
    """A token, hashed."""

    digest: bytes
    number: int
    created_at_ms: int
    expires_at_ms: int | None = None
    id: str = ""
    """By which it is known to those who must not know the token."""
    label: str = ""
    created_by: str = ""


class Grant(Struct, frozen=True):
    """The right to take up a session, with its token and the one before it, hashed."""

    id: str
    number: int
    digest: bytes
    previous: bytes | None
    expires_at_ms: int


class Span(Struct, frozen=True, array_like=True):
    """Messages to one target, between two log offsets."""

    target: str
    start: int = 0
    end: int | None = None
    """The offset after the last, or `None` while it goes on."""

    def holds(self, offset: int) -> bool:
        """Whether a message to the target at this offset is one of them."""
        return self.start <= offset and (self.end is None or offset < self.end)


class ChannelRow(Struct, frozen=True):
    """A channel without its members."""

    id: ChannelId
    name: ChannelName
    created_by: str
    created_at_ms: int
    archived_at_ms: int | None
    spans: tuple[Span, ...]
    """Which messages are its own: a name may have been another's before, and may be again."""


class Subscription(Struct, frozen=True):
    """A member in a channel."""

    channel: ChannelId
    number: int
    role: Role
    joined_at_ms: int


class ObjectiveRow(Struct, frozen=True):
    """An objective with the numbers that stand for its parties: a name may be given anew, a number never is."""

    serial: int
    """Counts the objectives of a hub: 1, 2, 3…"""
    objective: Objective
    parties: tuple[int, ...]
    """The numbers of the assignee, the originator and the watchers, in this order."""

    @property
    def assignee(self) -> int:
        """The number of its assignee."""
        return self.parties[0]

    @property
    def originator(self) -> int:
        """The number of its originator."""
        return self.parties[1]


class ObjectiveQuery(Struct, frozen=True):
    """Which objectives a reader asks for."""

    party: int | None
    """Only those that this member has a part in."""
    assignee: int | None
    statuses: Sequence[Status]
    before: int | None
    """Only those with a lower serial."""
    limit: int


class MemberImage(Struct, frozen=True):
    """What a snapshot keeps of a member: its inbox and where its streams stand."""

    number: int
    inbox: Image
    streams: dict[str, int]
    """Last sequence by stream, `sender␟topic`."""
    last_seen_ms: int | None


class Foundation(Struct, frozen=True):
    """All that a broker starts from; what the log says after `snapshot_end` is replayed on top."""

    members: Sequence[MemberRow] = ()
    tokens: Sequence[TokenRow] = ()
    channels: Sequence[ChannelRow] = ()
    subscriptions: Sequence[Subscription] = ()
    grants: Sequence[Grant] = ()
    owners: Sequence[tuple[int, bytes]] = ()
    """Members whose names belong to a shared token, with its digest."""
    settings: Mapping[str, bytes] = {}
    """What was kept by key."""
    objectives: Sequence[ObjectiveRow] = ()
    """Those that are neither done nor cancelled."""
    next_serial: int = 1
    images: Sequence[MemberImage] = ()
    snapshot_end: int = 0
    log_end: int = 0
    log_head: str = GENESIS
    next_number: int = 1


class SentReplay(Struct, frozen=True):
    """A message that was accepted after the snapshot."""

    offset: int
    sender: str
    topic: str
    route: Route


class MovedReplay(Struct, frozen=True):
    """Deliveries that moved after the snapshot."""

    number: int
    ranges: Ranges
    state: State
    ackless: bool
    held: bool = False
    """If they are still pending: whether they are held since then, or released."""


Replay = SentReplay | MovedReplay


class Received(Struct, frozen=True):
    """One delivery of a member, settled or not."""

    offset: int
    sender: str
    topic: str
    key: int
    stream_seq: int


class ReceivedPage(Struct, frozen=True):
    """Some deliveries of a member, newest first."""

    received: Sequence[Received]
    looked: int
    """Messages that were looked at for it."""
    following: int | None
    """The offset before which to go on, unless there is nothing more."""


class Known(Struct, frozen=True):
    """What is stored under a sender's wire id."""

    message_id: MessageId
    offset: int
    digest: str
    recipients: int


THREADS_MAX = 1000
"""Threads of objectives, the newest, among all that a reader may see; an older one is read by its own name."""


class HistoryQuery(Struct, frozen=True, kw_only=True):
    """A question for past messages: between two parties, at some places, or all that the reader may see."""

    reader: str | None
    """Only what this member sent or was sent; `None` sees everything."""
    since: int
    """Only from this log offset on."""
    spans: Sequence[Span] = ()
    """What the reader may see beside what it sent itself."""
    threads: int | None = None
    """It may see the threads of the newest objectives that the member with this number has a part in, too."""
    all_threads: bool = False
    """It may see the threads of all objectives."""
    places: Sequence[Span] | None = None
    """Only these, in the order of the log; whether the reader may see them was decided before."""
    peer: str | None = None
    """Only messages with this member."""
    before: int | None
    forward: bool = False
    """Oldest first; neither between two parties nor at some places."""
    limit: int
    bytes_max: int
    """Stop before the message that would pass this much stored content, but never before the first."""


class ChannelStore(Protocol):
    """The channels of a store, within its transactions."""

    def save(self, row: ChannelRow) -> None:
        """Keep a channel, in place of what was kept of it before."""

    def drop(self, channel_id: ChannelId) -> None:
        """Forget a channel and who is in it."""

    def join(self, subscription: Subscription) -> None:
        """Keep that a member is in a channel, in place of what was kept of that before."""

    def leave(self, channel_id: ChannelId, number: int) -> None:
        """Forget that a member is in a channel."""


class ActivityEntry(Struct, frozen=True, gc=False):
    """A row of the activity log."""

    offset: int
    at_ms: int
    number: int
    """The member that did it."""
    kind: str
    ts_ms: int
    event: bytes


class ActivityQuery(Struct, frozen=True):
    """Which of a member's activity a reader asks for."""

    number: int
    from_ms: int | None
    to_ms: int | None
    """Both ends count."""
    kinds: Sequence[str]
    limit: int
    bytes_max: int
    """Stop before the event that would pass this much, but never before the first."""


class ActivityStore(Protocol):
    """Durable storage of the activity log, apart from the hub's own. Its caller is one thread, of its own.

    Writes are buffered, and become durable together at `commit`. After any exception the buffered writes are gone.
    """

    def restore(self) -> int:
        """The offset that the next row will have. Also drops anything buffered."""

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        """Keep rows; their offsets are dense, a store refuses a gap."""

    def commit(self) -> None:
        """Make everything buffered durable, at once."""

    def retry(self) -> None:
        """Find out, while nothing is buffered, whether the store can write again; raises if it cannot."""

    def select(self, query: ActivityQuery) -> Sequence[ActivityEntry]:
        """A member's committed activity, newest first by the time it happened."""

    def read_log(self, start: int, limit: int, bytes_max: int) -> tuple[Sequence[LogRow], int]:
        """Consecutive committed rows, up to an amount of content but at least one; and the next row's offset."""

    def prune(self, before_ms: int, limit: int) -> int:
        """Forget up to `limit` committed rows that came before a time, oldest first; returns how many.

        It is durable at once. The newest row always stays, so that offsets go on from it.
        """

    def close(self) -> None:
        """Release everything. What was not committed is gone. Closing again does nothing."""


class ObjectiveStore(Protocol):
    """The objectives of a store, within its transactions."""

    def change(self, row: LogRow, kept: ObjectiveRow, event: ObjectiveEvent) -> None:
        """Keep an objective as it stands now, and append to its event log. `row` is the event that says so."""

    def find(self, objective_id: ObjectiveId) -> ObjectiveRow | None:
        """The objective with this id."""

    def select(self, query: ObjectiveQuery) -> Sequence[ObjectiveRow]:
        """Objectives, newest first."""

    def events(self, serial: int, after: int, limit: int) -> Sequence[ObjectiveEvent]:
        """The event log of an objective after a log offset, oldest first."""


class Store(Protocol):
    """Durable storage of one hub."""

    @property
    def channels(self) -> ChannelStore:
        """What it keeps of channels."""

    @property
    def objectives(self) -> ObjectiveStore:
        """What it keeps of objectives."""

    @property
    def intact(self) -> bool:
        """Whether everything buffered is still there."""

    @property
    def trouble(self) -> str:
        """Work on what is committed that failed and is tried again later; empty if there is none."""

    def explain(self, error: Exception) -> Exception:
        """The `StoreError` that an error from below this port stands for; any other error as it is."""

    def retry(self) -> None:
        """Find out, while nothing is buffered, whether the store can write again; raises if it cannot."""

    def restore(self) -> Foundation:
        """What was committed. Also drops anything buffered."""

    def replay(self, start: int) -> Iterator[Replay]:
        """Messages and moves of the main log from `start` on, in order."""

    def expiring(self) -> Iterator[tuple[int, Route]]:
        """Deadline and route of every stored message that has a time to live."""

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes, shared_id: bool = False) -> None:
        """Keep a message with its deliveries, the packed route. `row` is its `Sent` event.

        Its wire id must be new for this sender, and if it is shared, for all senders of the protocol.
        """

    def advance(self, row: LogRow, number: int, state: State, ranges: Ranges) -> None:
        """Keep that deliveries of one member reached a rung. `row` is the `Moved` event that says so."""

    def fall(self, row: LogRow, number: int, ranges: Ranges) -> None:
        """Keep that deliveries of one member fell to another way. `row` is the `Fell` event that says so."""

    def record(self, row: LogRow) -> None:
        """Keep any other event."""

    def save_member(self, row: MemberRow) -> None:
        """Keep a new member, or that another credential owns its name now."""

    def drop_member(self, number: int, at_ms: int) -> None:
        """Forget a member's name, tokens, grants, wire ids and subscriptions. Its number still means it in routes."""

    def save_token(self, row: TokenRow) -> None:
        """Keep a token, beside the others of its member."""

    def drop_token(self, digest: bytes) -> None:
        """Forget a token."""

    def save_setting(self, key: str, value: bytes) -> None:
        """Keep something small, in place of what was kept under this key before."""

    def save_owner(self, number: int, digest: bytes) -> None:
        """Keep which shared token a member's name belongs to."""

    def save_grant(self, grant: Grant) -> None:
        """Keep the right to take up a session, in place of what was kept for it before."""

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """Replace the images of these members: they hold what the log says before `end`."""

    def prune(self, start: int, before_ms: int, keep: frozenset[int], limit: int) -> tuple[Sequence[int], int | None]:
        """Look at the next `limit` messages from an offset on, and forget those sent before a time and not in `keep`.

        Returns the offsets of what was forgotten, whose rows in the log stay, and where to go on, or `None` if nothing
        older is left.
        """

    def commit(self) -> None:
        """Make everything buffered durable, at once. If it raises, nothing of it is kept; otherwise all is."""

    def prefetch(self, wire_keys: Sequence[tuple[str, str, str]]) -> None:
        """`find_wire_id` will be asked these, until the next commit: read the answers at once, if that is cheaper."""

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> Known | None:
        """What this sender said under this wire id; without a sender, what any said under a shared one."""

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """Messages by their log offset; those that retention forgot are missing.

        Stops before the message that would pass `bytes_max` of stored content, but never before the first; also says
        how many of the offsets it got to.
        """

    def received(self, number: int, name: str, peer: str, before: int | None, limit: int) -> ReceivedPage:
        """What a member was sent by a peer, newest first, as far as retention reaches.

        `@place` stands for those without an identity, who spoke to that channel or to the member. Looks at no more than
        `limit` messages that the peer may have sent, before a log offset if one is given.
        """

    def find_message(self, message_id: MessageId) -> tuple[Message, Route] | None:
        """A message and where it went."""

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """Steps that one delivery took after `pending`, in order."""

    def falls(self, number: int, first: int, last: int) -> Sequence[Fall]:
        """Falls of a member's deliveries between two keys, and of others that fell with them, in order."""

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """Names of members, removed ones too."""

    def history(self, history_query: HistoryQuery) -> Sequence[Message]:
        """Messages, newest first."""

    def read_log(self, start: int, limit: int) -> tuple[Sequence[LogRow], int]:
        """Consecutive committed rows of the main log, and the offset that its next row will have."""

    def close(self) -> None:
        """Release everything. What was not committed is gone. Closing again does nothing."""
