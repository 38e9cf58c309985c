"""The rows of a log as lines of JSON, as `GET /api/log/{log}` returns them: the hub encodes, the pipeline decodes.

A line of the main log holds the event as it was hashed. It also holds the stored fields of the event's message or
objective. It holds the size of a body, but not the body.
"""

from msgspec import Struct


class MessageLine(Struct, frozen=True, omit_defaults=True):
    """Stored fields of a message."""

    id: str
    sender: str
    protocol: str
    target: str
    sent_at_ms: int
    verified: bool
    numbers: list[int]
    keys: list[int]
    recipients: list[str | None]
    """Recipients, parallel to the numbers and keys of the deliveries."""
    body_bytes: int
    wire_id: str | None = None
    expires_at_ms: int | None = None
    hops: int = 0
    cause: str | None = None
    signature: str = ""
    level: str = "info"
    priority: str = "normal"
    kind: str = "chat"
    thread: str | None = None
    reply_to: str | None = None


class ObjectiveLine(Struct, frozen=True):
    """A change of an objective."""

    id: str
    actor: str
    happening: str
    """The change as JSON, exactly as it was sealed."""


class MainLine(Struct, frozen=True, omit_defaults=True):
    """A row of the main log."""

    offset: int
    at_ms: int
    event: str
    hash: str
    message: MessageLine | None = None
    objective: ObjectiveLine | None = None


class ActivityLine(Struct, frozen=True, omit_defaults=True):
    """A row of the activity log."""

    offset: int
    at_ms: int
    number: int
    kind: str
    ts_ms: int
    event: str
    member: str | None = None


END_HEADER = "x-tieline-end"
"""Header with the offset that the next row of the log will have."""
NEXT_HEADER = "x-tieline-next"
"""Header with the offset at which the next request starts, if this answer arrives completely."""
CUT = b"{"
"""Last byte of an uncompressed answer that was broken off. A compressed one that was broken off has no gzip trailer."""
