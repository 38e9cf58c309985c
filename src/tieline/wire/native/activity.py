"""Activity in the hub's own protocol. Events are sent as they are stored, without decoding them."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.wire.native.frame import Frame


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


# Conversions from the contract to the frames.


def answer_of(n: int, reply: r.Activity) -> RawActivityRows:
    """Make the answer with a member's activity."""
    return RawActivityRows(n, tuple(map(_view, reply.rows)))


def did_frames(rows: Sequence[ActivityRow], missed: int, bytes_max: int) -> Iterator[RawDid]:
    """Split the activity of a followed member into frames of about this size."""
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
