"""Activity in the hub's own protocol: frames, and what they mean in the contract."""

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName, SessionId
from tieline.wire.native.frame import Frame, Number

# What a client says.


class RecordActivity(Frame, frozen=True, omit_defaults=True, tag="activity"):
    """Report what the member did. Answered by `recorded`."""

    n: int
    events: tuple[dict[str, Any], ...]


class ReadActivity(Frame, frozen=True, omit_defaults=True, tag="read_activity"):
    """Answered by `activity_rows`."""

    n: int
    member: str
    from_ms: Number | None = None
    to_ms: Number | None = None
    kinds: tuple[str, ...] = ()
    limit: Number = 200


class FollowActivity(Frame, frozen=True, omit_defaults=True, tag="follow_activity"):
    """Hear of what a member does. Answered by `done`, then `did` frames."""

    n: int
    member: str


Request = RecordActivity | ReadActivity | FollowActivity


# What the hub says.


class ActivityView(Struct, frozen=True):
    """One thing that a member did."""

    offset: int
    member: str
    kind: str
    ts_ms: int
    at_ms: int
    event: dict[str, Any]


class RawActivityView(Struct, frozen=True):
    """`ActivityView` with the event as it is stored."""

    offset: int
    member: str
    kind: str
    ts_ms: int
    at_ms: int
    event: msgspec.Raw


class Recorded(Frame, frozen=True, omit_defaults=True, tag="recorded"):
    """The activity is durable."""

    n: int
    count: int


class ActivityRows(Frame, frozen=True, omit_defaults=True, tag="activity_rows"):
    """What a member did, newest first."""

    n: int
    rows: tuple[ActivityView, ...]


class RawActivityRows(Frame, frozen=True, omit_defaults=True, tag="activity_rows"):
    """`ActivityRows` with the events as they are stored."""

    n: int
    rows: tuple[RawActivityView, ...]


class Did(Frame, frozen=True, omit_defaults=True, tag="did"):
    """What a followed member just did; `missed` counts what came before it while the client did not read."""

    rows: tuple[ActivityView, ...]
    missed: int = 0


class RawDid(Frame, frozen=True, omit_defaults=True, tag="did"):
    """`Did` with the events as they are stored."""

    rows: tuple[RawActivityView, ...]
    missed: int = 0


# Between both and the contract.


def command_of(frame: Request, session: SessionId) -> c.Command:
    """What a frame asks of the hub."""
    match frame:
        case RecordActivity():
            # What it was on the wire, nearly; the wire itself counts whole batches.
            return c.RecordActivity(session, frame.events, len(msgspec.json.encode(frame.events)))
        case ReadActivity():
            asked = (frame.from_ms, frame.to_ms, frame.kinds, frame.limit)
            return c.ReadActivity(session, MemberName(frame.member), *asked)
        case FollowActivity():
            return c.FollowActivity(session, MemberName(frame.member))
        case _:
            assert_never(frame)


def answer_of(n: int, reply: r.Recorded | r.Activity) -> Recorded | RawActivityRows:
    """What the hub answers."""
    match reply:
        case r.Recorded():
            return Recorded(n, reply.count)
        case r.Activity():
            return RawActivityRows(n, tuple(map(_view, reply.rows)))
        case _:
            assert_never(reply)


def did_frames(rows: Sequence[ActivityRow], missed: int, bytes_max: int) -> Iterator[RawDid]:
    """What a followed member did, in frames of about this size."""
    batch: list[RawActivityView] = []
    size = 0
    for row in rows:
        if batch and size + len(row.event) > bytes_max:
            yield RawDid(tuple(batch), missed)
            batch, size, missed = [], 0, 0
        batch.append(_view(row))
        size += len(row.event)
    yield RawDid(tuple(batch), missed)


def _view(row: ActivityRow) -> RawActivityView:
    return RawActivityView(row.offset, row.member, row.kind, row.ts_ms, row.at_ms, msgspec.Raw(row.event))
