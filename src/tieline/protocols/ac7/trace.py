"""The types of activity events that a runner reports about its agent.

Existing clients check answers strictly: one bad event makes them reject a whole list. So uploads are checked against
the same types. Keys that a type does not have are stored and ignored. An event of a kind that is not in this module
needs only its kind and its time. Such an event is stored, and is shown only to clients that know its kind.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from tieline.protocols.ac7.shapes import Shape

KINDS = ("objective_open", "objective_close", "llm_exchange", "opaque_http")

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
ObjectiveKey = Annotated[str, Meta(min_length=1)]


class AnyEvent(Shape, frozen=True):
    """Type with the keys that every activity event has, of any kind."""

    kind: Annotated[str, Meta(min_length=1, max_length=64)]
    ts: Count


# Exchanges with a model.


class TextBlock(Shape, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ThinkingBlock(Shape, frozen=True, tag_field="type", tag="thinking"):
    """Thinking of a model."""

    text: str


class ToolUseBlock(Shape, frozen=True, tag_field="type", tag="tool_use"):
    """A tool call of the model."""

    id: str
    name: str
    input: Any


class ToolResultBlock(Shape, frozen=True, tag_field="type", tag="tool_result"):
    """Result of a tool call."""

    tool_use_id: str
    content: Any
    is_error: bool


class ImageBlock(Shape, frozen=True, tag_field="type", tag="image"):
    """An image, without its data."""

    media_type: str | None


class UnknownBlock(Shape, frozen=True, tag_field="type", tag="unknown"):
    """A block of an unknown type, unchanged."""

    raw: Any


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ImageBlock | UnknownBlock


class ModelMessage(Shape, frozen=True):
    """One message of a conversation with a model."""

    role: str
    content: list[Block]


class ToolDefinition(Shape, frozen=True):
    """A tool that the model may call."""

    name: str
    description: str | None
    input_schema: Any


class ModelRequest(Shape, frozen=True):
    """Request to a model."""

    model: str | None
    max_tokens: float | None
    temperature: float | None
    system: str | None
    messages: list[ModelMessage]
    tools: list[ToolDefinition] | None


class Usage(Shape, frozen=True):
    """Tokens that the exchange used."""

    input_tokens: float | None
    output_tokens: float | None
    cache_creation_input_tokens: float | None
    cache_read_input_tokens: float | None


class ModelResponse(Shape, frozen=True):
    """Answer of a model."""

    stop_reason: str | None
    stop_sequence: str | None
    messages: list[ModelMessage]
    usage: Usage | None
    status: float | None


class ExchangeEntry(Shape, frozen=True):
    """One exchange with a model."""

    kind: Literal["anthropic_messages"]
    started_at: Count
    ended_at: Count
    request: ModelRequest
    response: ModelResponse | None


class HttpEntry(Shape, frozen=True):
    """An HTTP exchange that is not a call of a model."""

    kind: Literal["opaque_http"]
    started_at: Count
    ended_at: Count
    host: str
    method: str
    url: str
    status: float | None
    request_headers: dict[str, str]
    response_headers: dict[str, str]
    request_body_preview: str | None
    response_body_preview: str | None


# Events.


class ObjectiveOpen(Shape, frozen=True, tag_field="kind", tag="objective_open"):
    """The agent started work on an objective."""

    ts: Count
    objective_id: ObjectiveKey


class ObjectiveClose(Shape, frozen=True, tag_field="kind", tag="objective_close"):
    """The agent stopped work on an objective."""

    ts: Count
    objective_id: ObjectiveKey
    result: Literal["done", "cancelled", "reassigned", "runner_shutdown"]


class LlmExchange(Shape, frozen=True, tag_field="kind", tag="llm_exchange"):
    """The agent called a model."""

    ts: Count
    duration: Count
    entry: ExchangeEntry


class OpaqueHttp(Shape, frozen=True, tag_field="kind", tag="opaque_http"):
    """The agent made an HTTP call that was not a call of a model."""

    ts: Count
    duration: Count
    entry: HttpEntry


# spec, Activity events vs message events: markers, typed records of a model's API, opaque records of all else.
ActivityEvent = ObjectiveOpen | ObjectiveClose | LlmExchange | OpaqueHttp


class Uploaded(Shape, frozen=True):
    """Number of events that were stored durably: all events of the upload."""

    accepted: Count
