"""Type for activity: the record of an agent's actions. It has its own log, and is never delivered as messages."""

from msgspec import Struct

from tieline.contract.identifiers import MemberName


class ActivityRow(Struct, frozen=True, gc=False):
    """One row of the activity log: an event (an action) that a member reported."""

    offset: int
    """Position of the row in the activity log."""
    member: MemberName
    kind: str
    """The kind of the event, as its reporter wrote it into the event; empty if the event has no kind."""
    ts_ms: int
    """Time of the event, as its reporter wrote it into the event. If the event has no time, this equals `at_ms`."""
    at_ms: int
    """Time at which the hub received the event."""
    event: bytes
    """The event as JSON, with its secrets redacted."""
