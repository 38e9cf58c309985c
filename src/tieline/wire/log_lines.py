"""The rows of a log as lines of JSON, as `GET /api/log/{log}` gives them: the hub encodes, the pipeline decodes.

A row of the main log has its event as it was hashed, and beside it what is kept of the message or the objective that it
tells of. Bodies are not in it, only their size.
"""

from msgspec import Struct


class MessageLine(Struct, frozen=True, omit_defaults=True):
    """What is kept of a message."""

    id: str
    sender: str
    protocol: str
    target: str
    sent_at_ms: int
    verified: bool
    numbers: list[int]
    keys: list[int]
    recipients: list[str | None]
    """Who it went to; parallel to the numbers and keys of the deliveries."""
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
    """What happened to an objective."""

    id: str
    actor: str
    happening: str
    """As JSON, as it was sealed."""


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
"""Says the offset that the next row of the log will have."""
NEXT_HEADER = "x-tieline-next"
"""Says where the next answer begins, if this one comes whole."""
CUT = b"{"
"""Ends an answer that is not compressed and was broken off; one that is compressed lacks the end that gzip has."""
