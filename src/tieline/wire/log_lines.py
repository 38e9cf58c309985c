"""The rows of the hub's two logs, `main` and `activity`, as lines of JSON. `GET /api/log/{log}` returns these lines.

The hub encodes the lines, and the pipeline decodes them. A line of the main log (the hub's event log) holds the event
in the form in which it was hashed. It also holds the stored fields of the event's message or objective. It holds the
size of a message's body, but not the body.
"""

from msgspec import Struct


class MessageLine(Struct, frozen=True, omit_defaults=True):
    """Part of a `MainLine`: the stored fields of a message, without the body.

    Only the line of the event that accepted the message has this part.
    """

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
    scope: str | None = None
    thread: str | None = None
    reply_to: str | None = None


class ObjectiveLine(Struct, frozen=True):
    """Part of a `MainLine`: a change of an objective. Only the line of the event that made the change has this part."""

    id: str
    actor: str
    happening: str
    """The change as JSON text. It has exactly the bytes that were hashed for the audit chain (the hashes that link the
    rows)."""


class MainLine(Struct, frozen=True, omit_defaults=True):
    """JSON line of one row of the main log, the hub's event log.

    `event` is the event as JSON text. `hash` is its hash in the audit chain (the hashes that link the rows).
    """

    offset: int
    at_ms: int
    event: str
    hash: str
    message: MessageLine | None = None
    objective: ObjectiveLine | None = None


class ActivityLine(Struct, frozen=True, omit_defaults=True):
    """JSON line of one row of the activity log: an action that an agent reported.

    `number` is the number of the agent in the store.
    """

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
"""Header with the offset from which a reader continues in its next request, after it has received this answer
completely."""
EPOCH_HEADER = "x-tieline-epoch"
"""Header with the epoch (random id) of the log. A new log has a new epoch, so a reader notices that its offsets mean
other rows. A copy of a log has the same epoch."""
KEPT_HEADER = "x-tieline-kept-from"
"""Header with the offset of the first row after all deleted rows. The hub has deleted no row at or after this
offset."""
CUT = b"{"
"""Last byte of an uncompressed answer that the hub could not finish. A compressed answer that the hub could not finish
has no gzip trailer."""
