"""The Store port: what the broker needs of durable storage, as intentions.

Writes are buffered: they become durable together, all or none, at `commit`, which returns only when the operating
system says that they are on disk. Reads see buffered writes. The caller is one thread. Offsets of the main log are
given by the broker's ledger and come in dense and in order; a store refuses a gap. After any exception the
buffered writes are gone and the broker restores itself from what was committed.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from tieline.contract.delivery import State, Step
from tieline.contract.event import LogRow
from tieline.contract.identifiers import ChannelName, MessageId
from tieline.contract.member import Member
from tieline.contract.message import Message
from tieline.core.inbox import Image
from tieline.core.ledger import GENESIS

_pack_single = struct.Struct("=qqq").pack

ROUTE_BYTES = 24
"""Bytes of one recipient in a packed route."""

MAIN = "main"
ACTIVITY = "activity"


class StoreError(Exception):
    """The store cannot be used: it is newer than this program, held by another process, or damaged."""


class Route(Struct, frozen=True, gc=False):
    """Where one message goes, as parallel columns: recipient, delivery key, sequence in its stream."""

    numbers: Sequence[int]
    keys: Sequence[int]
    stream_seqs: Sequence[int]

    def pack(self) -> bytes:
        """The three columns of 64-bit integers, one after the other."""
        if len(self.keys) == 1:
            return _pack_single(self.numbers[0], self.keys[0], self.stream_seqs[0])
        columns = array("q", self.numbers)
        columns.extend(self.keys)
        columns.extend(self.stream_seqs)
        return columns.tobytes()

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


class Grant(Struct, frozen=True):
    """The right to take up a session, with its token and the one before it, hashed."""

    id: str
    number: int
    digest: bytes
    previous: bytes | None
    expires_at_ms: int


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
    subscriptions: Sequence[tuple[ChannelName, int]] = ()
    grants: Sequence[Grant] = ()
    images: Sequence[MemberImage] = ()
    snapshot_end: int = 0
    log_end: int = 0
    log_head: str = GENESIS
    activity_end: int = 0
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
    ranges: Sequence[tuple[int, int]]
    state: State
    mute: bool


Replay = SentReplay | MovedReplay


class Received(Struct, frozen=True):
    """One delivery of a member, settled or not."""

    offset: int
    sender: str
    topic: str
    key: int
    stream_seq: int


class Known(Struct, frozen=True):
    """What is stored under a sender's wire id."""

    message_id: MessageId
    offset: int
    digest: str
    recipients: int


class Chronicle(Struct, frozen=True):
    """Which messages a reader asks for: between two parties or in a channel, among those it may see."""

    reader: str | None
    """Only what this member sent or was sent; `None` sees everything."""
    since: int
    """Only from this log offset on."""
    channels: Sequence[ChannelName]
    peer: str | None
    before: int | None
    limit: int
    bytes_max: int
    """Stop before the message that would pass this much stored content, but never before the first."""


class Store(Protocol):
    """Durable storage of one hub."""

    def restore(self) -> Foundation:
        """What was committed. Also drops anything buffered."""

    def replay(self, start: int) -> Iterator[Replay]:
        """Messages and moves of the main log from `start` on, in order."""

    def expiring(self) -> Iterator[tuple[int, Route]]:
        """Deadline and route of every stored message that has a time to live."""

    def accept(self, row: LogRow, message: Message, content: bytes, route: bytes) -> None:
        """Keep a message with its deliveries, the packed route. `row` is its `Sent` event.

        Its wire id must be new for this sender.
        """

    def advance(self, row: LogRow, number: int, state: State, ranges: Sequence[tuple[int, int]]) -> None:
        """Keep that deliveries of one member reached a rung. `row` is the `Moved` event that says so."""

    def record(self, row: LogRow) -> None:
        """Keep any other event."""

    def save_member(self, row: MemberRow) -> None:
        """Keep a new member."""

    def drop_member(self, number: int, at_ms: int) -> None:
        """Forget a member's name, tokens, grants, wire ids and subscriptions. Its number still means it in routes."""

    def save_token(self, row: TokenRow) -> None:
        """Keep a token. All earlier ones of that member are revoked."""

    def save_grant(self, grant: Grant) -> None:
        """Keep the right to take up a session, in place of what was kept for it before."""

    def subscribe(self, channel: ChannelName, number: int) -> None:
        """Keep a subscription."""

    def unsubscribe(self, channel: ChannelName, number: int) -> None:
        """Forget a subscription."""

    def save_snapshot(self, images: Sequence[MemberImage], end: int) -> None:
        """Replace the images of these members: they hold what the log says before `end`."""

    def record_activity(self, number: int, rows: Sequence[LogRow]) -> None:
        """Append to the activity log."""

    def prune(self, before_ms: int, keep: frozenset[int], limit: int) -> Sequence[int]:
        """Forget up to `limit` messages sent before a time, oldest first, except those at offsets in `keep`.

        Returns the offsets of what was forgotten; their rows in the log stay.
        """

    def commit(self) -> None:
        """Make everything buffered durable, at once."""

    def find_wire_id(self, sender: str, protocol: str, wire_id: str) -> Known | None:
        """What this sender said under this wire id."""

    def messages(self, offsets: Sequence[int], bytes_max: int) -> tuple[dict[int, Message], int]:
        """Messages by their log offset; those that retention forgot are missing.

        Stops before the message that would pass `bytes_max` of stored content, but never before the first; also says
        how many of the offsets it got to.
        """

    def received(self, number: int) -> Iterator[Received]:
        """What a member was sent, newest first, as far as retention reaches."""

    def find_message(self, message_id: MessageId) -> tuple[Message, Route] | None:
        """A message and where it went."""

    def steps(self, number: int, key: int) -> Sequence[Step]:
        """Steps that one delivery took after `pending`, in order."""

    def names(self, numbers: Sequence[int]) -> dict[int, str]:
        """Names of members, removed ones too."""

    def history(self, chronicle: Chronicle) -> Sequence[Message]:
        """Messages, newest first."""

    def read_log(self, log: str, start: int, limit: int) -> tuple[Sequence[LogRow], int]:
        """Consecutive committed rows of a log, and the offset that its next row will have."""

    def close(self) -> None:
        """Release everything. What was not committed is gone."""
