"""Activity events that a runner reports about its agent, as types.

Existing clients check answers strictly: one bad event makes them reject a whole list. Uploads are therefore checked
against the same shapes. Other keys are stored and ignored.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from tieline.protocols.ac7.shapes import Shape

KINDS = ("objective_open", "objective_close", "llm_exchange", "opaque_http")

Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
ObjectiveKey = Annotated[str, Meta(min_length=1)]


# Exchanges with a model.


class TextBlock(Shape, frozen=True, tag_field="type", tag="text"):
    """Words."""

    text: str


class ThinkingBlock(Shape, frozen=True, tag_field="type", tag="thinking"):
    """What a model said to itself."""

    text: str


class ToolUseBlock(Shape, frozen=True, tag_field="type", tag="tool_use"):
    """A tool that the model calls."""

    id: str
    name: str
    input: Any


class ToolResultBlock(Shape, frozen=True, tag_field="type", tag="tool_result"):
    """What came of a tool."""

    tool_use_id: str
    content: Any
    is_error: bool


class ImageBlock(Shape, frozen=True, tag_field="type", tag="image"):
    """That there was an image."""

    media_type: str | None


class UnknownBlock(Shape, frozen=True, tag_field="type", tag="unknown"):
    """Anything else, as it came."""

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
    """What a model was asked."""

    model: str | None
    max_tokens: float | None
    temperature: float | None
    system: str | None
    messages: list[ModelMessage]
    tools: list[ToolDefinition] | None


class Usage(Shape, frozen=True):
    """What it cost, in tokens."""

    input_tokens: float | None
    output_tokens: float | None
    cache_creation_input_tokens: float | None
    cache_read_input_tokens: float | None


class ModelResponse(Shape, frozen=True):
    """What a model answered."""

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
    """Any other HTTP exchange."""

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
    """From here on the agent works on an objective."""

    ts: Count
    objective_id: ObjectiveKey


class ObjectiveClose(Shape, frozen=True, tag_field="kind", tag="objective_close"):
    """It does no more."""

    ts: Count
    objective_id: ObjectiveKey
    result: Literal["done", "cancelled", "reassigned", "runner_shutdown"]


class LlmExchange(Shape, frozen=True, tag_field="kind", tag="llm_exchange"):
    """It talked to a model."""

    ts: Count
    duration: Count
    entry: ExchangeEntry


class OpaqueHttp(Shape, frozen=True, tag_field="kind", tag="opaque_http"):
    """It talked to something else."""

    ts: Count
    duration: Count
    entry: HttpEntry


ActivityEvent = ObjectiveOpen | ObjectiveClose | LlmExchange | OpaqueHttp


class UploadActivity(Shape, frozen=True):
    """What an agent did."""

    events: Annotated[tuple[ActivityEvent, ...], Meta(min_length=1, max_length=500)]


class Uploaded(Shape, frozen=True):
    """How much of it is durable: all."""

    accepted: Count


class ActivityRowShape(Shape, frozen=True):
    """One thing that a member did."""

    id: Count
    member_name: str
    event: ActivityEvent
    created_at: Count


class ActivityList(Shape, frozen=True):
    """What a member did, newest first."""

    activity: list[ActivityRowShape]
