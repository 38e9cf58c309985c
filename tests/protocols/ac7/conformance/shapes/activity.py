"""Activity as the protocol's existing clients read it."""

from typing import Annotated

from msgspec import Meta

from tests.protocols.ac7.conformance.events import Count, Event, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name


class ActivityRow(Closed, frozen=True):
    """One thing that a member did."""

    id: Count
    member_name: Name
    event: Event
    created_at: Milliseconds


class ActivityList(Closed, frozen=True):
    """Activity of a member."""

    activity: list[ActivityRow]


class Uploaded(Closed, frozen=True):
    """An upload that is kept."""

    accepted: Annotated[int, Meta(ge=1, le=500)]
