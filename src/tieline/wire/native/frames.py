"""The frames of the hub's own protocol.

Above: the server in this folder and the SDK. Below: nothing. It refuses to know sockets. A *batch* is a JSON array of
frames; on a Unix socket it is the payload of one length-prefixed frame, on a WebSocket it is one text message. A
frame is an object whose `t` says its type. A request carries `n`, a number chosen by the client that the answer
repeats; answers come in the order of their requests.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import message as m
from tieline.contract.member import MemberKind
from tieline.contract.refusal import Code
from tieline.wire.native import activity, channels, objectives, tail, team
from tieline.wire.native import frame as root

VERSION = 1

Frame = root.Frame
Number = root.Number


# What a client says.


class Hello(Frame, frozen=True, omit_defaults=True, tag="hello"):
    """Must come first. Who the client is: by token, or on the hub's machine by the key of its home and a name."""

    v: int = VERSION
    token: str | None = None
    key: str | None = None
    member: str | None = None
    receive: bool = False
    """Whether the hub shall push deliveries."""
    window: int = 256
    """How many deliveries may be on the way without an acknowledgement."""


class Send(Frame, frozen=True, omit_defaults=True, tag="send"):
    """Say something. Answered by `accepted` once it is durable."""

    n: int
    target: str
    body: str
    data: dict[str, Any] | None = None
    title: str | None = None
    level: m.Level = m.Level.INFO
    priority: m.Priority = m.Priority.NORMAL
    kind: m.Kind = m.Kind.CHAT
    topic: str = ""
    scope: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    refs: tuple[str, ...] = ()
    attachments: tuple[m.Attachment, ...] = ()
    ttl_ms: int | None = None
    wire_id: str | None = None
    """Saying the same thing again under the same id is a no-op."""
    allow_empty: bool = False
    supersedes: str | None = None
    """An earlier message of one's own, which whoever receives this one need not handle any more."""


class Ack(Frame, frozen=True, omit_defaults=True, tag="ack"):
    """Deliveries are done with, as inclusive ranges of keys. Has no answer; acknowledging twice is a no-op."""

    keys: tuple[tuple[int, int], ...]
    evidence: str = "ack"


class See(Frame, frozen=True, omit_defaults=True, tag="see"):
    """Deliveries were read, by this evidence. Has no answer."""

    keys: tuple[tuple[int, int], ...]
    evidence: str


class Discard(Frame, frozen=True, omit_defaults=True, tag="discard"):
    """Deliveries will not be handled, for this reason; then they are `expired`. Answered by `done`."""

    n: int
    keys: tuple[tuple[int, int], ...]
    reason: str


class Claim(Frame, frozen=True, omit_defaults=True, tag="claim"):
    """Take a message for this session alone. Answered by `claimed`."""

    n: int
    id: str


class Fetch(Frame, frozen=True, omit_defaults=True, tag="fetch"):
    """Look into the inbox. Answered by `inbox`."""

    n: int
    after: Number = 0
    limit: Number = 100
    unseen: bool = False
    """Only what nothing shows to have been read."""


class Follow(Frame, frozen=True, omit_defaults=True, tag="follow"):
    """Hear of every step a message takes. Answered by `receipts`, then `progress` frames."""

    n: int
    id: str
    until: str = "acked"


class Subscribe(Frame, frozen=True, omit_defaults=True, tag="sub"):
    """Join a channel. Answered by `done`."""

    n: int
    channel: str


class Unsubscribe(Frame, frozen=True, omit_defaults=True, tag="unsub"):
    """Leave a channel. Answered by `done`."""

    n: int
    channel: str


class PauseThread(Frame, frozen=True, omit_defaults=True, tag="pause_thread"):
    """Hold messages of agents and scripts in a conversation for a while. Answered by `done`."""

    n: int
    thread: str


class ResumeThread(Frame, frozen=True, omit_defaults=True, tag="resume_thread"):
    """End the pause of a conversation: what is held in it is delivered. Answered by `done`."""

    n: int
    thread: str


class AddMember(Frame, frozen=True, omit_defaults=True, tag="add_member"):
    """Make a member. Answered by `issued`."""

    n: int
    name: str
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    token: str | None = None


class RemoveMember(Frame, frozen=True, omit_defaults=True, tag="remove_member"):
    """Remove a member. Answered by `done`."""

    n: int
    name: str


class RotateToken(Frame, frozen=True, omit_defaults=True, tag="rotate_token"):
    """Replace a member's tokens. Answered by `issued`."""

    n: int
    name: str


class ListMembers(Frame, frozen=True, omit_defaults=True, tag="members"):
    """Answered by `roster`."""

    n: int


class ReadReceipts(Frame, frozen=True, omit_defaults=True, tag="read_receipts"):
    """Answered by `receipts`."""

    n: int
    id: str
    after: str = ""
    """Only for recipients whose names come after this one."""


class ReadHistory(Frame, frozen=True, omit_defaults=True, tag="read_history"):
    """Answered by `history`."""

    n: int
    peer: str | None = None
    before: Number | None = None
    limit: Number = 50
    after: Number = -1
    everything: bool = False
    """What others say to each other, too; needs `log.read`."""


class Search(Frame, frozen=True, omit_defaults=True, tag="search", rename={"sender": "from"}):
    """Look for words in what the member may see. Answered by `history`."""

    n: int
    query: str
    """Words, "phrases in quotes", and beginnings of words with a star; all must be there."""
    sender: str | None = None
    place: str | None = None
    """Only with this `@member`, in this `#channel`, `chan:<id>` or `obj:<id>`; anything else is a thread."""
    from_ms: Number | None = None
    to_ms: Number | None = None
    before: Number | None = None
    limit: Number = 50


class ReadLog(Frame, frozen=True, omit_defaults=True, tag="read_log"):
    """Answered by `log`."""

    n: int
    log: str = "main"
    start: Number = 0
    limit: Number = 1000


Request = (
    Send
    | Ack
    | See
    | Discard
    | Claim
    | Fetch
    | Follow
    | Subscribe
    | Unsubscribe
    | PauseThread
    | ResumeThread
    | AddMember
    | RemoveMember
    | RotateToken
    | ListMembers
    | ReadReceipts
    | ReadHistory
    | Search
    | ReadLog
    | channels.Request
    | objectives.Request
    | team.Request
    | activity.Request
    | tail.Request
)
ClientFrame = Hello | Request


# What the hub says.


class Message(Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """A message as clients see it."""

    id: str
    offset: int
    sender: str
    target: str
    body: str
    sent_at_ms: int
    protocol: str
    data: dict[str, Any] | None = None
    title: str | None = None
    level: m.Level = m.Level.INFO
    priority: m.Priority = m.Priority.NORMAL
    kind: m.Kind = m.Kind.CHAT
    topic: str = ""
    scope: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    refs: tuple[str, ...] = ()
    attachments: tuple[m.Attachment, ...] = ()
    ttl_ms: int | None = None
    wire_id: str | None = None
    notes: tuple[str, ...] = ()
    verified: bool = True
    hops: int = 0
    cause: str | None = None
    signature: m.Signature = m.Signature.NONE
    supersedes: str | None = None


class Welcome(Frame, frozen=True, omit_defaults=True, tag="welcome"):
    """The session is open."""

    v: int
    session: str
    speaker: str
    member: str | None
    window: int
    frame_bytes_max: int


class Accepted(Frame, frozen=True, omit_defaults=True, tag="accepted"):
    """The message is durable."""

    n: int
    id: str
    offset: int
    recipients: int
    duplicate: bool = False
    held: str = ""
    """Why it is not delivered yet, if it is held for any recipient: it is kept, and comes later."""


class Refused(Frame, frozen=True, omit_defaults=True, tag="refused"):
    """The request was refused; without `n`, the connection ends with this."""

    code: Code
    message: str
    n: int | None = None
    near: tuple[str, ...] = ()


class Deliver(Frame, frozen=True, omit_defaults=True, tag="deliver"):
    """A delivery. Acknowledge it by its key."""

    key: int
    seq: int
    message: Message


class RawDeliver(Frame, frozen=True, omit_defaults=True, tag="deliver"):
    """`Deliver` with the message encoded before, so that a broadcast is encoded once."""

    key: int
    seq: int
    message: msgspec.Raw


class Item(Struct, frozen=True, omit_defaults=True):
    """One unsettled delivery of an inbox."""

    key: int
    seq: int
    state: str
    message: Message


class Claimed(Frame, frozen=True, omit_defaults=True, tag="claimed"):
    """The message is this session's alone, or nothing: another was first."""

    n: int
    item: Item | None = None


class Inbox(Frame, frozen=True, omit_defaults=True, tag="inbox"):
    """A page of the inbox."""

    n: int
    items: tuple[Item, ...]
    through: int
    complete: bool
    held: int = 0
    """How many more wait that are held, and in no page before they are released."""
    held_in: tuple[str, ...] = ()
    """The paused conversations that these wait for; those that are only slowed wait for none."""


class StepView(Struct, frozen=True, omit_defaults=True):
    """A rung that a delivery reached, with its evidence."""

    state: str
    at_ms: int
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    way: str = ""
    """If it did not move but fell: the way that it is at since then."""


class ReceiptView(Struct, frozen=True, omit_defaults=True):
    """What became of a message for one recipient."""

    member: str
    state: str
    steps: tuple[StepView, ...]
    way: str = ""
    """The way by which it is to be seen now, where the member has any and nothing shows that it was."""
    held: str = ""
    """Why it is held, if it is."""


class Receipts(Frame, frozen=True, omit_defaults=True, tag="receipts"):
    """What became of a message, by the names of its recipients."""

    n: int
    id: str
    receipts: tuple[ReceiptView, ...]
    more: bool = False
    """Whether there are recipients whose names come after the last of these."""


class Progress(Frame, frozen=True, omit_defaults=True, tag="progress"):
    """A followed message took a step."""

    id: str
    member: str
    state: str
    at_ms: int
    way: str = ""
    """If it did not move but fell: the way that it is at now."""


class Issued(Frame, frozen=True, omit_defaults=True, tag="issued"):
    """A new token, shown this once."""

    n: int
    member: str
    token: str


class MemberView(Struct, frozen=True, omit_defaults=True):
    """A member with what is known of it now."""

    name: str
    kind: str
    permissions: tuple[str, ...]
    sessions: tuple[str, ...]
    backlog: int
    created_at_ms: int
    last_seen_ms: int | None
    title: str = ""
    description: str = ""
    busy: bool = False
    held: int = 0
    """Those of the backlog that are held."""


class Roster(Frame, frozen=True, omit_defaults=True, tag="roster"):
    """All members."""

    n: int
    members: tuple[MemberView, ...]


class History(Frame, frozen=True, omit_defaults=True, tag="history"):
    """Messages, newest first."""

    n: int
    messages: tuple[Message, ...]


class Said(Frame, frozen=True, omit_defaults=True, tag="said"):
    """What was said, oldest first, that the client may see; see `tail`, whose number it has."""

    n: int
    messages: tuple[Message, ...]


class RawSaid(Frame, frozen=True, omit_defaults=True, tag="said"):
    """`Said` with its messages encoded before, so that many who look on cost little."""

    n: int
    messages: tuple[msgspec.Raw, ...]


class LogRowView(Struct, frozen=True, omit_defaults=True):
    """One row of a log; `event` is the text that was hashed."""

    offset: int
    at_ms: int
    event: str
    hash: str = ""


class Log(Frame, frozen=True, omit_defaults=True, tag="log"):
    """Consecutive rows of a log; go on reading at `next`."""

    n: int
    rows: tuple[LogRowView, ...]
    next: int


class Done(Frame, frozen=True, omit_defaults=True, tag="done"):
    """It is done."""

    n: int


Answer = (
    Accepted
    | Refused
    | Claimed
    | Inbox
    | Receipts
    | Issued
    | Roster
    | History
    | Log
    | Done
    | channels.Answer
    | objectives.Answer
    | team.Answer
    | activity.Recorded
    | activity.ActivityRows
)
HubFrame = Welcome | Deliver | Progress | Said | activity.Did | Answer


# Bytes.


class BadBatch(ValueError):
    """What came is not a batch of frames."""


_encoder = msgspec.json.Encoder()
_client_decoder: msgspec.json.Decoder[list[ClientFrame]] = msgspec.json.Decoder(list[ClientFrame])
_hub_decoder: msgspec.json.Decoder[list[HubFrame]] = msgspec.json.Decoder(list[HubFrame])


def encode_batch(frames: Sequence[Frame]) -> bytes:
    """A batch as JSON."""
    return _encoder.encode(frames)


def encode_struct(value: Struct) -> bytes:
    """One frame, or a part of one, as JSON."""
    return _encoder.encode(value)


def split_batch(frames: Sequence[bytes], size_max: int) -> Iterator[bytes]:
    """Frames that are encoded already, as batches of at most `size_max` bytes; a frame is never split."""
    start, size = 0, 2
    for index, frame in enumerate(frames):
        if size + len(frame) > size_max and index > start:
            yield b"[" + b",".join(frames[start:index]) + b"]"
            start, size = index, 2
        size += len(frame) + 1
    yield b"[" + b",".join(frames[start:]) + b"]"


def decode_client_batch(payload: bytes | str) -> list[ClientFrame]:
    """What a client sent. Raises `BadBatch`."""
    try:
        return _client_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatch(str(error)) from error


def decode_hub_batch(payload: bytes | str) -> list[HubFrame]:
    """What the hub sent. Raises `BadBatch`."""
    try:
        return _hub_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatch(str(error)) from error
