"""Activity: what an agent did, in a log of its own. It is never delivered as messages."""

from msgspec import Struct

from tieline.contract.identifiers import MemberName


class ActivityRow(Struct, frozen=True, gc=False):
    """One thing that a member did."""

    offset: int
    """Its place in the activity log."""
    member: MemberName
    kind: str
    """What the event itself says it is; empty if it says nothing."""
    ts_ms: int
    """When it happened, as the event says, or else when the hub heard of it."""
    at_ms: int
    """When the hub heard of it."""
    event: bytes
    """The event as JSON, without its secrets."""
