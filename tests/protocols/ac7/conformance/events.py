"""Activity events as the protocol's existing clients read them.

Clients ignore keys that they do not know, so these shapes are not closed: all of their keys are required, and others
are allowed.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Milliseconds = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Count = Annotated[int, Meta(ge=0)]


class Part(Struct, frozen=True, rename="camel"):
    """Part of an event: these keys are there, and others may be."""


class TextBlock(Part, frozen=True, tag_field="type", tag="text"):
    """Text of a message."""

    text: str


class ThinkingBlock(Part, frozen=True, tag_field="type", tag="thinking"):
    """Text of a thought."""

    text: str


class ToolUseBlock(Part, frozen=True, tag_field="type", tag="tool_use"):
    """A tool that was called."""

    id: str
    name: str
    input: Any


class ToolResultBlock(Part, frozen=True, tag_field="type", tag="tool_result"):
    """Answer of a tool."""

    tool_use_id: str
    content: Any
    is_error: bool


class ImageBlock(Part, frozen=True, tag_field="type", tag="image"):
    """A picture."""

    media_type: str | None


class UnknownBlock(Part, frozen=True, tag_field="type", tag="unknown"):
    """Anything else."""

    raw: Any


class Said(Part, frozen=True):
    """A message to or from a model."""

    role: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ImageBlock | UnknownBlock]


class Tool(Part, frozen=True):
    """A tool that a model was offered."""

    name: str
    description: str | None
    input_schema: Any


class Usage(Part, frozen=True):
    """Tokens of a call."""

    input_tokens: float | None
    output_tokens: float | None
    cache_creation_input_tokens: float | None
    cache_read_input_tokens: float | None


class ModelRequest(Part, frozen=True):
    """Request to a model."""

    model: str | None
    max_tokens: float | None
    temperature: float | None
    system: str | None
    messages: list[Said]
    tools: list[Tool] | None


class ModelResponse(Part, frozen=True):
    """Response of a model."""

    stop_reason: str | None
    stop_sequence: str | None
    messages: list[Said]
    usage: Usage | None
    status: float | None


class ModelEntry(Part, frozen=True):
    """A call of a model."""

    kind: Literal["anthropic_messages"]
    started_at: Milliseconds
    ended_at: Milliseconds
    request: ModelRequest
    response: ModelResponse | None


class HttpEntry(Part, frozen=True):
    """An HTTP request that is not a call of a model."""

    kind: Literal["opaque_http"]
    started_at: Milliseconds
    ended_at: Milliseconds
    host: str
    method: str
    url: str
    status: float | None
    request_headers: dict[str, str]
    response_headers: dict[str, str]
    request_body_preview: str | None
    response_body_preview: str | None


class ObjectiveOpened(Part, frozen=True, tag_field="kind", tag="objective_open"):
    """Event that marks the start or the end of work on an objective."""

    ts: Milliseconds
    objective_id: Annotated[str, Meta(min_length=1)]


class ObjectiveClosed(Part, frozen=True, tag_field="kind", tag="objective_close"):
    """Event that marks the start or the end of work on an objective."""

    ts: Milliseconds
    objective_id: Annotated[str, Meta(min_length=1)]
    result: Literal["done", "cancelled", "reassigned", "runner_shutdown"]


class ModelExchange(Part, frozen=True, tag_field="kind", tag="llm_exchange"):
    """A call of a model."""

    ts: Milliseconds
    duration: Count
    entry: ModelEntry


class HttpExchange(Part, frozen=True, tag_field="kind", tag="opaque_http"):
    """An HTTP request that is not a call of a model."""

    ts: Milliseconds
    duration: Count
    entry: HttpEntry


Event = ObjectiveOpened | ObjectiveClosed | ModelExchange | HttpExchange
