"""Answer shapes of ac7's activity, as the protocol's existing clients read it."""

from typing import Annotated

from msgspec import Meta

from tests.protocols.ac7.conformance.events import Count, Event, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name


class ActivityRow(Closed, frozen=True):
    """Part of an answer: one row of a member's activity."""

    id: Count
    member_name: Name
    event: Event
    created_at: Milliseconds


class ActivityList(Closed, frozen=True):
    """Answer with rows of a member's activity."""

    activity: list[ActivityRow]


class Uploaded(Closed, frozen=True):
    """Answer to an upload: the number of stored events."""

    accepted: Annotated[int, Meta(ge=1, le=500)]
