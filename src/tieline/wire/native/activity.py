"""Frames (JSON objects of the hub's own protocol) with the activity of members: the actions that agents reported.

The hub sends the stored JSON of the events without decoding it. The types `Raw…` are for sending.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.wire.native.frame import Frame


class ActivityView(Struct, frozen=True):
    """One activity event of a member."""

    offset: int
    member: str
    kind: str
    ts_ms: int
    at_ms: int
    event: dict[str, Any]


class RawActivityView(Struct, frozen=True):
    """Form of `ActivityView` that the hub sends. `event` is the stored JSON text, which the hub does not decode."""

    offset: int
    member: str
    kind: str
    ts_ms: int
    at_ms: int
    event: msgspec.Raw


class ActivityRows(Frame, frozen=True, omit_defaults=True, tag="activity_rows"):
    """Activity of a member, newest first."""

    n: int
    rows: tuple[ActivityView, ...]


class RawActivityRows(Frame, frozen=True, omit_defaults=True, tag="activity_rows"):
    """Form of `ActivityRows` that the hub sends.

    The events in `rows` are stored JSON text, which the hub does not decode.
    """

    n: int
    rows: tuple[RawActivityView, ...]


class Did(Frame, frozen=True, omit_defaults=True, tag="did"):
    """New activity of a followed member. `missed` counts earlier events that a slow client did not get."""

    rows: tuple[ActivityView, ...]
    missed: int = 0


class RawDid(Frame, frozen=True, omit_defaults=True, tag="did"):
    """Form of `Did` that the hub sends. The events in `rows` are stored JSON text, which the hub does not decode."""

    rows: tuple[RawActivityView, ...]
    missed: int = 0


# Conversions from the contract to the frames.


def answer_of(n: int, reply: r.Activity) -> RawActivityRows:
    """Return the answer to the client's request number `n` for a member's activity. `reply` is the hub's reply."""
    return RawActivityRows(n, tuple(map(_view, reply.rows)))


def did_frames(rows: Sequence[ActivityRow], missed: int, bytes_max: int) -> Iterator[RawDid]:
    """Yield frames (JSON objects for a client) with new activity of followed members, each of about `bytes_max` bytes.

    The first frame also has `missed`, the number of earlier events that the client did not get.
    """
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
