"""The rows of the hub's two logs, `main` and `activity`, as lines of JSON. `GET /api/log/{log}` returns these lines.

The hub encodes the lines, and the pipeline decodes them. A line of the main log (the hub's event log) holds the event
in the form in which it was hashed. It also holds the stored fields of the event's message or objective. It holds the
size of a message's body, but not the body.
"""

from msgspec import Struct


class MessageLine(Struct, frozen=True, omit_defaults=True):
    """The stored fields of a message, in the line of the event that accepted the message. The body is left out."""

    id: str
    sender: str
    protocol: str
    target: str
    sent_at_ms: int
    verified: bool
    numbers: list[int]
    keys: list[int]
    recipients: list[str | None]
    """Names of the recipients. `numbers` (the recipients' numbers in the store), `keys` (their delivery keys) and this
    list have the same order."""
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
    """A change of an objective, in the line of the event that made the change."""

    id: str
    actor: str
    happening: str
    """The change as JSON text, byte for byte as the audit chain hashed it."""


class MainLine(Struct, frozen=True, omit_defaults=True):
    """One row of the main log, the hub's event log.

    `event` is the event as JSON text, `hash` its hash in the audit chain.
    """

    offset: int
    at_ms: int
    event: str
    hash: str
    message: MessageLine | None = None
    objective: ObjectiveLine | None = None


class ActivityLine(Struct, frozen=True, omit_defaults=True):
    """One row of the activity log: an action that an agent reported. `number` is the agent's number in the store."""

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
"""Header with the offset to use in the next request, if the reader has received this answer completely."""
EPOCH_HEADER = "x-tieline-epoch"
"""Header with the random id of the log. It changes if the hub is restored from a backup."""
KEPT_HEADER = "x-tieline-kept-from"
"""Header with the lowest offset from which on the log is complete. Retention has deleted no row at or after this
offset."""
CUT = b"{"
"""Last byte of an uncompressed answer that the hub could not finish. A compressed answer that the hub could not finish
has no gzip trailer."""
