"""Shapes of ac7's activity events, as the protocol's existing clients read them.

Clients ignore keys that they do not know, so these shapes are not closed: all of their keys are required, and others
are allowed.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Milliseconds = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Count = Annotated[int, Meta(ge=0)]


class Part(Struct, frozen=True, rename="camel"):
    """Base class of the parts of an event. The declared keys are required, and others are allowed."""


class TextBlock(Part, frozen=True, tag_field="type", tag="text"):
    """Part of a model's message: text."""

    text: str


class ThinkingBlock(Part, frozen=True, tag_field="type", tag="thinking"):
    """Part of a model's message: the text of a thought."""

    text: str


class ToolUseBlock(Part, frozen=True, tag_field="type", tag="tool_use"):
    """Part of a model's message: the call of a tool."""

    id: str
    name: str
    input: Any


class ToolResultBlock(Part, frozen=True, tag_field="type", tag="tool_result"):
    """Part of a model's message: the result of a tool."""

    tool_use_id: str
    content: Any
    is_error: bool


class ImageBlock(Part, frozen=True, tag_field="type", tag="image"):
    """Part of a model's message: an image."""

    media_type: str | None


class UnknownBlock(Part, frozen=True, tag_field="type", tag="unknown"):
    """Part of a model's message of an unknown type."""

    raw: Any


class Said(Part, frozen=True):
    """Part of an event: a message to or from a model."""

    role: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | ImageBlock | UnknownBlock]


class Tool(Part, frozen=True):
    """Part of an event: a tool that was offered to a model."""

    name: str
    description: str | None
    input_schema: Any


class Usage(Part, frozen=True):
    """Part of an event: the number of tokens that a call of a model used."""

    input_tokens: float | None
    output_tokens: float | None
    cache_creation_input_tokens: float | None
    cache_read_input_tokens: float | None


class ModelRequest(Part, frozen=True):
    """Part of an event: the request to a model."""

    model: str | None
    max_tokens: float | None
    temperature: float | None
    system: str | None
    messages: list[Said]
    tools: list[Tool] | None


class ModelResponse(Part, frozen=True):
    """Part of an event: the response of a model."""

    stop_reason: str | None
    stop_sequence: str | None
    messages: list[Said]
    usage: Usage | None
    status: float | None


class ModelEntry(Part, frozen=True):
    """Part of an event: a call of a model, with request and response."""

    kind: Literal["anthropic_messages"]
    started_at: Milliseconds
    ended_at: Milliseconds
    request: ModelRequest
    response: ModelResponse | None


class HttpEntry(Part, frozen=True):
    """Part of an event: an HTTP request that is not a call of a model."""

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
    """Activity event: a member began to work on an objective."""

    ts: Milliseconds
    objective_id: Annotated[str, Meta(min_length=1)]


class ObjectiveClosed(Part, frozen=True, tag_field="kind", tag="objective_close"):
    """Activity event: a member stopped working on an objective."""

    ts: Milliseconds
    objective_id: Annotated[str, Meta(min_length=1)]
    result: Literal["done", "cancelled", "reassigned", "runner_shutdown"]


class ModelExchange(Part, frozen=True, tag_field="kind", tag="llm_exchange"):
    """Activity event: a call of a model."""

    ts: Milliseconds
    duration: Count
    entry: ModelEntry


class HttpExchange(Part, frozen=True, tag_field="kind", tag="opaque_http"):
    """Activity event: an HTTP request that is not a call of a model."""

    ts: Milliseconds
    duration: Count
    entry: HttpEntry


Event = ObjectiveOpened | ObjectiveClosed | ModelExchange | HttpExchange
