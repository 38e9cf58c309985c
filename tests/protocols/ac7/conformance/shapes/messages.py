"""Answer shapes of ac7's messages, as the protocol's existing clients read them."""

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Level, Name, Path


class Attachment(Closed, frozen=True):
    """Part of an answer: a file that a message or an objective refers to."""

    path: Path
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    size: Count
    mime_type: Annotated[str, Meta(min_length=1, max_length=255)]


class Message(Closed, frozen=True):
    """Part of an answer, or event of a stream: a message, with its nine keys."""

    id: UUID
    ts: Milliseconds
    to: Name | None
    from_: str | None
    title: Annotated[str, Meta(max_length=200)] | None
    body: str
    level: Level
    data: dict[str, Any]
    attachments: list[Attachment]


class Delivery(Closed, frozen=True):
    """Part of an answer: the number of streams that a push was written to, and the number of its recipients."""

    live: Count
    targets: Count


class Pushed(Closed, frozen=True):
    """Answer of the hub to an accepted `POST /push`."""

    delivery: Delivery
    message: Message


class History(Closed, frozen=True):
    """Answer with messages of the history."""

    messages: list[Message]
