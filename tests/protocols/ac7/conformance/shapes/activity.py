"""Activity as the protocol's existing clients read it."""

from typing import Annotated

from msgspec import Meta

from tests.protocols.ac7.conformance.events import Count, Event, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name


class ActivityRow(Closed, frozen=True):
    """One row of a member's activity."""

    id: Count
    member_name: Name
    event: Event
    created_at: Milliseconds


class ActivityList(Closed, frozen=True):
    """Activity of a member."""

    activity: list[ActivityRow]


class Uploaded(Closed, frozen=True):
    """The answer to an upload that was stored."""

    accepted: Annotated[int, Meta(ge=1, le=500)]
