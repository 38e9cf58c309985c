"""Converts one record of telemetry to an activity event.

Used by: `otlp`. Uses: nothing. Attribute names come from the GenAI and HTTP semantic conventions of OpenTelemetry, and
from Claude Code's own log event. Current names are tried before older names. The event of a model call (`llm_exchange`)
has the same form for every provider of models; its field `provider` names the provider.

Only model calls become `llm_exchange` events. A span around several model calls (`invoke_agent`) has the sum of their
tokens, so it would count these tokens twice. The span of a tool (`execute_tool`) has no tokens.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from tieline.contract.message import nested_deeper

_MODEL_OPERATIONS = frozenset({"chat", "text_completion", "generate_content", "embeddings", "completion", "messages"})
_DETAILS = "gen_ai.client.inference.operation.details"
_CLAUDE_CODE = "claude_code.api_request"
_NESTING_MAX = 64
"""Maximum number of levels of nesting in the JSON of a telemetry attribute. The hub itself allows more levels."""
_NUMBER_MAX = 2**53 - 1
"""Largest integer that clients can represent exactly."""

_Attributes = dict[str, Any]

_PROVIDER = ("gen_ai.provider.name", "gen_ai.system")
_MODEL = ("gen_ai.request.model", "gen_ai.response.model")
_INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_CACHE_READ = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
_CACHE_WRITE = (
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
)
REPOSITORY = ("vcs.repository.url.full", "vcs.repository.name")
"""Attributes that name the repository in which the agent works."""
_METHOD = ("http.request.method", "http.method")
_STATUS = ("http.response.status_code", "http.status_code")
_URL = ("url.full", "http.url")
_PATH = ("url.path", "http.target", "http.route")
_HOST = ("server.address", "http.host", "net.peer.name", "peer.service")
_REQUEST_HEADER = "http.request.header."
_RESPONSE_HEADER = "http.response.header."


class TelemetryRecord(Struct, frozen=True):
    """Decoded OpenTelemetry span (a timed operation) or log record: attributes as plain values, times and ids."""

    attributes: _Attributes
    start_ms: int
    end_ms: int
    name: str
    """Name of a log record's event. Empty for a span."""
    body: Any
    trace_id: str
    span_id: str
    is_span: bool


def activity_of(record: TelemetryRecord) -> dict[str, Any] | None:
    """Return the activity event for a telemetry record; `None` if it is about neither a model call nor HTTP."""
    attributes = record.attributes
    if _CLAUDE_CODE in (record.name, record.body):
        return _claude_code(record)
    if _is_model_call(record):
        return _model_call(record)
    if _first(attributes, _METHOD) is not None:
        return _http(record)
    return None


def _is_model_call(record: TelemetryRecord) -> bool:
    attributes = record.attributes
    if record.name == _DETAILS:
        return True
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None:
        counted = record.is_span or _count(attributes, _INPUT_TOKENS) is not None
        return counted and isinstance(operation, str) and operation in _MODEL_OPERATIONS
    return _first(attributes, _MODEL) is not None and (
        _count(attributes, _INPUT_TOKENS) is not None or _count(attributes, _OUTPUT_TOKENS) is not None
    )


# Model calls


def _model_call(record: TelemetryRecord) -> dict[str, Any]:
    attributes = record.attributes
    output = _messages(attributes, ("gen_ai.output.messages", "gen_ai.completion"), "assistant")
    reasons = attributes.get("gen_ai.response.finish_reasons")
    given, read, written = (_count(attributes, names) for names in (_INPUT_TOKENS, _CACHE_READ, _CACHE_WRITE))
    usage = {
        # By OpenTelemetry's convention the input tokens include the cached ones; in an activity event they do not.
        "inputTokens": None if given is None else max(0, given - (read or 0) - (written or 0)),
        "outputTokens": _count(attributes, _OUTPUT_TOKENS),
        "cacheCreationInputTokens": written,
        "cacheReadInputTokens": read,
    }
    request = {
        "model": _text(_first(attributes, _MODEL)),
        "maxTokens": _count(attributes, ("gen_ai.request.max_tokens",)),
        "temperature": _number(attributes.get("gen_ai.request.temperature")),
        "system": _system(attributes.get("gen_ai.system_instructions")),
        "messages": _messages(attributes, ("gen_ai.input.messages", "gen_ai.prompt"), "user"),
        "tools": _tools(attributes.get("gen_ai.tool.definitions")),
    }
    response = {
        "stopReason": _text(reasons[0]) if isinstance(reasons, list) and reasons else _text(reasons),
        "stopSequence": None,
        "messages": output,
        "usage": usage if any(count is not None for count in usage.values()) else None,
        "status": _status(attributes),
        "model": _text(attributes.get("gen_ai.response.model")),
        "id": _text(attributes.get("gen_ai.response.id")),
        "error": _text(attributes.get("error.type")),
    }
    return _event(record, "llm_exchange", _entry(record, "anthropic_messages", request, response))


def _claude_code(record: TelemetryRecord) -> dict[str, Any]:
    """Return the activity event for Claude Code's log record of a model call.

    This log record has token counts, but no messages.
    """
    attributes = record.attributes
    lasted = _count(attributes, ("duration_ms",)) or 0
    whole = msgspec.structs.replace(record, start_ms=max(0, record.end_ms - lasted))
    usage = {
        "inputTokens": _count(attributes, ("input_tokens",)),
        "outputTokens": _count(attributes, ("output_tokens",)),
        "cacheCreationInputTokens": _count(attributes, ("cache_creation_tokens",)),
        "cacheReadInputTokens": _count(attributes, ("cache_read_tokens",)),
    }
    model = _text(attributes.get("model"))
    request: dict[str, Any] = {
        "model": model,
        "maxTokens": None,
        "temperature": None,
        "system": None,
        "messages": [],
        "tools": None,
    }
    response: dict[str, Any] = {
        "stopReason": None,
        "stopSequence": None,
        "messages": [],
        "usage": usage,
        "status": None,
        "model": model,
        "id": _text(attributes.get("request_id")),
        "error": None,
    }
    return _event(whole, "llm_exchange", _entry(whole, "anthropic_messages", request, response))


def _entry(record: TelemetryRecord, kind: str, request: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": kind,
        "startedAt": record.start_ms,
        "endedAt": record.end_ms,
        "request": request,
        "response": response,
        "provider": _text(_first(record.attributes, _PROVIDER)),
    }


def _event(record: TelemetryRecord, kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    event = {"kind": kind, "ts": record.start_ms, "duration": record.end_ms - record.start_ms, "entry": entry}
    scope = _first(record.attributes, REPOSITORY)
    if isinstance(scope, str) and scope:
        event["scope"] = scope
    if record.trace_id:
        event["trace"] = {"traceId": record.trace_id, "spanId": record.span_id}
    return event


def _messages(attributes: _Attributes, names: Sequence[str], role: str) -> list[dict[str, Any]]:
    """Return the messages of a model call from its telemetry attributes.

    The messages are in the first attribute of `names` that is set, as values or as JSON text. A message without a role
    gets `role`.
    """
    found = _first(attributes, names)
    value = _unfold(found)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return [{"role": role, "content": [_said(str(found))]}] if found not in (None, "") else []
    return [_message(one, role) for one in value]


def _message(value: Any, role: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {"role": role, "content": [_said(value) if isinstance(value, str) else _unknown(value)]}
    parts = value.get("parts", value.get("content"))
    blocks = (
        [_block(part) for part in parts] if isinstance(parts, list) else [_block(parts)] if parts is not None else []
    )
    named = value.get("role")
    return {"role": named if isinstance(named, str) else role, "content": blocks}


def _block(part: Any) -> dict[str, Any]:
    """Return one part of a model call's message (text, thinking, tool call…) in the form of activity events.

    A part of unknown type goes unchanged into a part of the type `unknown`.
    """
    match part:
        case str():
            return _said(part)
        case {"type": "text", "content": str(text)} | {"type": "text", "text": str(text)}:
            return _said(text)
        case {"type": "reasoning" | "thinking", "content": str(text)}:
            return {"type": "thinking", "text": text}
        case {"type": "tool_call", "name": str(name)}:
            return {"type": "tool_use", "id": str(part.get("id") or ""), "name": name, "input": part.get("arguments")}
        case {"type": "tool_call_response"}:
            content = part.get("response", part.get("result"))
            return {"type": "tool_result", "toolUseId": str(part.get("id") or ""), "content": content, "isError": False}
        case {"type": "blob" | "uri" | "file", "modality": "image"}:
            # The image itself is not stored: activity is a record of actions.
            return {"type": "image", "mediaType": _text(part.get("mime_type"))}
        case _:
            return _unknown(part)


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _unknown(raw: Any) -> dict[str, Any]:
    return {"type": "unknown", "raw": raw}


def _system(found: Any) -> str | None:
    value = _unfold(found)
    if isinstance(value, list):
        texts = (block["text"] for block in map(_block, value) if block["type"] == "text")
        return "\n".join(texts) or None
    return _text(found)


def _tools(found: Any) -> list[dict[str, Any]] | None:
    value = _unfold(found)
    if not isinstance(value, list):
        return None
    tools = []
    for one in value:
        tool = one.get("function", one) if isinstance(one, dict) else None
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            schema = tool.get("parameters", tool.get("input_schema"))
            tools.append({"name": tool["name"], "description": _text(tool.get("description")), "inputSchema": schema})
    return tools


def _unfold(value: Any) -> Any:
    """Return the decoded value of a text that is a JSON object or list. Return any other value unchanged."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        unfolded = msgspec.json.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return value
    return value if nested_deeper(unfolded, _NESTING_MAX) else unfolded


# Other requests


def _http(record: TelemetryRecord) -> dict[str, Any]:
    attributes = record.attributes
    url = _without_userinfo(_text(_first(attributes, _URL)) or _text(_first(attributes, _PATH)) or "")
    host = _text(_first(attributes, _HOST)) or _host(url)
    entry = {
        "kind": "opaque_http",
        "startedAt": record.start_ms,
        "endedAt": record.end_ms,
        "host": host,
        "method": _text(_first(attributes, _METHOD)) or "",
        "url": url,
        "status": _status(attributes),
        "requestHeaders": _headers(attributes, _REQUEST_HEADER),
        "responseHeaders": _headers(attributes, _RESPONSE_HEADER),
        "requestBodyPreview": None,
        "responseBodyPreview": None,
    }
    return _event(record, "opaque_http", entry)


def _without_userinfo(url: str) -> str:
    """Return a URL without its user name and password."""
    if "@" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _headers(attributes: _Attributes, prefix: str) -> dict[str, str]:
    headers = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            values = value if isinstance(value, list) else [value]
            headers[name[len(prefix) :].replace("_", "-")] = ", ".join(map(str, values))
    return headers


# Values of attributes


def _first(attributes: _Attributes, names: Sequence[str]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _text(value: Any) -> str | None:
    match value:
        case None | "":
            return None
        case str():
            return value
        case bool() | int() | float():
            return str(value)
        case _:
            return None


def _count(attributes: _Attributes, names: Sequence[str]) -> int | None:
    """Return the first telemetry attribute of `names` that is set, as a non-negative integer.

    The attribute may be a number or a text of digits. Return `None` for any other value.
    """
    value = _first(attributes, names)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(_NUMBER_MAX)):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    counted = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX
    return int(value) if counted else None


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= _NUMBER_MAX else None


def _status(attributes: _Attributes) -> int | None:
    return _count(attributes, _STATUS)
