"""Turns a call to a model's API into an activity event: `llm_exchange`, or `opaque_http` for an unknown format.

Used by: `loopback.py`, which has the bytes of the call. Uses: nothing; this module does no I/O. The event has the form
of Anthropic's Messages, with other spellings of the field names, because clients of the activity log know this form.
Calls to every provider get this form, and the field `provider` names the provider. Token counts have Anthropic's
meaning: input tokens do not include tokens that were read from a cache. OpenAI's counts include them, so they are
subtracted.

Images and files are named, but their content is not kept, because people read the activity to see what an agent did. An
event that was too long is marked as truncated.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from tieline.contract.message import nested_deeper

EVENT_BYTES_MAX = 4 * 1024 * 1024
"""Maximum size of an event in bytes, half of the hub's limit. A larger event of a model call loses its messages."""

PREVIEW_CHARS = 2048
"""Number of characters that the event keeps of a body in an unknown format."""

_NESTING_MAX = 64  # deeper JSON is no request of a model, and would exhaust the stack
_STREAM = "text/event-stream"

_Object = dict[str, Any]


class ModelCall(Struct, frozen=True):
    """One request of an agent's program to a model's API, with its response, as recorded by the proxy."""

    provider: str
    method: str
    url: str
    started_ms: int
    ended_ms: int
    request_headers: tuple[tuple[str, str], ...] = ()
    request: bytes = b""
    status: int | None = None
    """Status code of the response; `None` if no response came."""
    response_headers: tuple[tuple[str, str], ...] = ()
    response: bytes = b""
    cut: bool = False
    """True if the body of the request or of the response was longer than its recorded part."""


def event_of(passed: ModelCall) -> _Object:
    """Return the activity event for an API call: `llm_exchange`, or `opaque_http` if the call has an unknown format."""
    path = urlsplit(passed.url).path.rstrip("/")
    entry = None
    if passed.method == "POST" and not passed.cut:
        request = _parsed(passed.request)
        answer = _answers(passed)
        if isinstance(request, dict):
            if passed.provider == "anthropic" and path.endswith("/messages"):
                entry = _entry(passed, _anthropic_request(request), _anthropic_response(passed, answer))
            elif path.endswith("/responses"):
                entry = _entry(passed, _responses_request(request), _responses_response(passed, answer))
            elif path.endswith("/chat/completions"):
                entry = _entry(passed, _chat_request(request), _chat_response(passed, answer))
    kind = "llm_exchange" if entry is not None else "opaque_http"
    event = {
        "kind": kind,
        "ts": passed.started_ms,
        "duration": max(0, passed.ended_ms - passed.started_ms),
        "entry": entry if entry is not None else _opaque(passed),
    }
    return _within_limit(event)


def usage_event(usage: _Object, *, provider: str, now_ms: int) -> _Object:
    """Return the activity event for a model call of which only the token usage is known.

    `usage` is the token usage in the form in which Codex's app-server reports it.
    """
    counted = _usage(
        _count(usage.get("inputTokens")),
        _count(usage.get("outputTokens")),
        None,
        _count(usage.get("cachedInputTokens")),
    )
    request: _Object = {
        "model": None,
        "maxTokens": None,
        "temperature": None,
        "system": None,
        "messages": [],
        "tools": None,
    }
    response = _response([], usage=counted)
    entry = {
        "kind": "anthropic_messages",
        "startedAt": now_ms,
        "endedAt": now_ms,
        "request": request,
        "response": response,
        "provider": provider,
    }
    return {"kind": "llm_exchange", "ts": now_ms, "duration": 0, "entry": entry}


def _within_limit(event: _Object) -> _Object:
    if len(msgspec.json.encode(event)) <= EVENT_BYTES_MAX:
        return event
    entry = event["entry"]
    request = {**entry["request"], "system": None, "messages": [], "tools": None}
    response = {**entry["response"], "messages": []} if entry["response"] else None
    return {**event, "entry": {**entry, "request": request, "response": response, "truncated": True}}


# Requests to unknown APIs.


def _opaque(passed: ModelCall) -> _Object:
    return {
        "kind": "opaque_http",
        "startedAt": passed.started_ms,
        "endedAt": passed.ended_ms,
        "host": urlsplit(passed.url).hostname or "",
        "method": passed.method,
        "url": passed.url,
        "status": passed.status,
        "requestHeaders": dict(passed.request_headers),
        "responseHeaders": dict(passed.response_headers),
        "requestBodyPreview": _preview(passed.request),
        "responseBodyPreview": _preview(passed.response),
        "truncated": passed.cut,
    }


def _preview(body: bytes) -> str | None:
    return body[: 4 * PREVIEW_CHARS].decode(errors="replace")[:PREVIEW_CHARS] or None


# Parts that all model calls share.


def _entry(passed: ModelCall, request: _Object, response: _Object) -> _Object:
    return {
        "kind": "anthropic_messages",
        "startedAt": passed.started_ms,
        "endedAt": passed.ended_ms,
        "request": request,
        "response": response if passed.status is not None else None,
        "provider": passed.provider,
    }


def _response(
    content: list[_Object],
    *,
    usage: _Object | None,
    stop: Any = None,
    status: int | None = None,
    model: Any = None,
    response_id: Any = None,
    error: Any = None,
) -> _Object:
    return {
        "stopReason": _text(stop),
        "stopSequence": None,
        "messages": [{"role": "assistant", "content": content}] if content else [],
        "usage": usage,
        "status": status,
        "model": _text(model),
        "id": _text(response_id),
        "error": _text(error),
    }


def _usage(given: int | None, made: int | None, written: int | None, read: int | None) -> _Object | None:
    """Return the token counts of a model call in Anthropic's form; `None` if neither `given` nor `made` is known.

    `given` are the input tokens, including tokens that were read from a cache. `made` are the output tokens. `written`
    and `read` are the tokens that were written to a cache and read from a cache.
    """
    if given is None and made is None:
        return None
    return {
        "inputTokens": max(0, given - (read or 0)) if given is not None else None,
        "outputTokens": made,
        "cacheCreationInputTokens": written,
        "cacheReadInputTokens": read,
    }


def _answers(passed: ModelCall) -> list[_Object]:
    """Return the JSON objects of an API response: one object, or all objects of a stream in order."""
    kind = next((value for name, value in passed.response_headers if name.lower() == "content-type"), "")
    if kind.partition(";")[0].strip().lower() == _STREAM:
        return [value for data in stream_data(passed.response) if isinstance(value := _parsed(data), dict)]
    value = _parsed(passed.response)
    return [value] if isinstance(value, dict) else []


def stream_data(body: bytes) -> Iterator[bytes]:
    """Yield the data of each server-sent event in the body of an API response."""
    lines: list[bytes] = []
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            yield b"\n".join(lines)
            lines = []
    if lines:
        yield b"\n".join(lines)


def _parsed(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(value, dict | list) and nested_deeper(value, _NESTING_MAX) else value


def _objects(value: Any) -> Iterator[_Object]:
    yield from (one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def _object(value: Any) -> _Object:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _said(text: str) -> _Object:
    return {"type": "text", "text": text}


def _called(call: Any, name: Any, arguments: Any) -> _Object:
    given = _parsed(arguments.encode()) if isinstance(arguments, str) else arguments
    given = arguments if given is None else given
    return {"type": "tool_use", "id": _text(call) or "", "name": _text(name) or "", "input": given}


def _result(call: Any, content: Any, *, error: bool = False) -> _Object:
    return {"type": "tool_result", "toolUseId": _text(call) or "", "content": content, "isError": error}


def _unknown(raw: Any) -> _Object:
    return {"type": "unknown", "raw": raw}


# Anthropic's Messages


def _anthropic_request(request: _Object) -> _Object:
    system = request.get("system")
    if isinstance(system, list):
        system = "\n".join(text for block in _objects(system) if (text := _text(block.get("text"))))
    return {
        "model": _text(request.get("model")),
        "maxTokens": _count(request.get("max_tokens")),
        "temperature": request.get("temperature"),
        "system": _text(system),
        "messages": [
            {"role": _text(one.get("role")) or "user", "content": _anthropic_content(one.get("content"))}
            for one in _objects(request.get("messages"))
        ],
        "tools": _tools(request.get("tools"), "input_schema"),
    }


def _anthropic_content(content: Any) -> list[_Object]:
    if isinstance(content, str):
        return [_said(content)]
    return [_anthropic_block(block) for block in _objects(content)]


def _anthropic_block(block: _Object) -> _Object:
    match block:
        case {"type": "text", "text": str(text)}:
            return _said(text)
        case {"type": "thinking", "thinking": str(text)}:
            return {"type": "thinking", "text": text}
        case {"type": "tool_use", "name": str(name)}:
            return _called(block.get("id"), name, block.get("input"))
        case {"type": "tool_result"}:
            content = block.get("content")
            told = content if isinstance(content, str) else _anthropic_content(content)
            return _result(block.get("tool_use_id"), told, error=block.get("is_error") is True)
        case {"type": "image" | "document" as kind}:
            return {"type": kind, "mediaType": _text(_object(block.get("source")).get("media_type"))}
        case _:
            return _unknown(block)


def _anthropic_response(passed: ModelCall, answers: list[_Object]) -> _Object:
    """Return a response of Anthropic's API in the form of the activity event.

    `answers` are the JSON objects of the response: one object, or all objects of a stream.
    """
    message: _Object = {}
    blocks: dict[int, _Object] = {}
    error: Any = None
    for one in answers:
        match one:
            case {"type": "message"}:
                message = one
                blocks = dict(enumerate(_objects(one.get("content"))))
            case {"type": "message_start", "message": dict(begun)}:
                message = begun
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                blocks[index] = dict(block)
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)} if index in blocks:
                _grow(blocks[index], delta)
            case {"type": "message_delta", "delta": dict(delta)}:
                usage = {**_object(message.get("usage")), **_object(one.get("usage"))}
                message = {**message, **delta, "usage": usage}
            case {"type": "error", "error": dict(failure)}:
                error = failure.get("message") or failure.get("type")
            case _:
                pass
    for block in blocks.values():
        if isinstance(written := block.pop("_json", None), str):
            block["input"] = written
    usage = _object(message.get("usage"))
    read = _count(usage.get("cache_read_input_tokens"))
    given = _count(usage.get("input_tokens"))
    return _response(
        [_anthropic_block(block) for _, block in sorted(blocks.items())],
        usage=_usage(
            given + (read or 0) if given is not None else None,
            _count(usage.get("output_tokens")),
            _count(usage.get("cache_creation_input_tokens")),
            read,
        ),
        stop=message.get("stop_reason"),
        status=passed.status,
        model=message.get("model"),
        response_id=message.get("id"),
        error=error,
    )


def _grow(block: _Object, delta: _Object) -> None:
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            block["text"] = str(block.get("text") or "") + text
        case {"type": "thinking_delta", "thinking": str(text)}:
            block["thinking"] = str(block.get("thinking") or "") + text
        case {"type": "input_json_delta", "partial_json": str(text)}:
            block["_json"] = str(block.get("_json") or "") + text
        case _:
            pass


# OpenAI's Responses


def _responses_request(request: _Object) -> _Object:
    given = request.get("input")
    items: Iterable[_Object] = [{"role": "user", "content": given}] if isinstance(given, str) else _objects(given)
    return {
        "model": _text(request.get("model")),
        "maxTokens": _count(request.get("max_output_tokens")),
        "temperature": request.get("temperature"),
        "system": _text(request.get("instructions")),
        "messages": [
            {"role": _text(item.get("role")) or _role_of(item), "content": _responses_content(item)} for item in items
        ],
        "tools": _tools(request.get("tools"), "parameters"),
    }


def _role_of(item: _Object) -> str:
    return "user" if str(item.get("type", "")).endswith("_output") else "assistant"


def _responses_content(item: _Object) -> list[_Object]:
    match item:
        case {"type": "reasoning"}:
            thoughts = [*_objects(item.get("summary")), *_objects(item.get("content"))]
            return [{"type": "thinking", "text": text} for one in thoughts if (text := _text(one.get("text")))]
        case {"content": str(text)}:
            return [_said(text)]
        case {"content": list(parts), "role": str()}:
            return [_responses_part(part) for part in _objects(parts)]
        case {"type": "function_call" | "custom_tool_call", "name": name}:
            return [_called(item.get("call_id"), name, item.get("arguments", item.get("input")))]
        case {"type": "function_call_output" | "custom_tool_call_output"}:
            return [_result(item.get("call_id"), item.get("output"))]
        case _:
            return [_unknown(item)]


def _responses_part(part: _Object) -> _Object:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)} | {"refusal": str(text)}:
            return _said(text)
        case {"type": "input_image" | "image_url"}:
            return {"type": "image", "mediaType": None}
        case _:
            return _unknown(part)


def _responses_response(passed: ModelCall, answers: list[_Object]) -> _Object:
    whole: _Object = {}
    items: list[_Object] = []
    error: Any = None
    for one in answers:
        match one:
            case {"object": "response"}:
                whole = one
            case {"type": "response.output_item.done", "item": dict(item)}:
                items.append(item)
            case {"type": "response.completed" | "response.failed" | "response.incomplete", "response": dict(response)}:
                whole = response
            case {"type": "error", "message": str(message)} | {"error": {"message": str(message)}}:
                error = message
            case _:
                pass
    usage = _object(whole.get("usage"))
    cached = _count(_object(usage.get("input_tokens_details")).get("cached_tokens"))
    produced = list(_objects(whole.get("output"))) or items
    return _response(
        [block for item in produced for block in _responses_content({"role": "assistant", **item})],
        usage=_usage(_count(usage.get("input_tokens")), _count(usage.get("output_tokens")), None, cached),
        stop=_object(whole.get("incomplete_details")).get("reason") or whole.get("status"),
        status=passed.status,
        model=whole.get("model"),
        response_id=whole.get("id"),
        error=_object(whole.get("error")).get("message") or error,
    )


# OpenAI's Chat Completions


def _chat_request(request: _Object) -> _Object:
    messages = list(_objects(request.get("messages")))
    system = [text for one in messages if one.get("role") == "system" and (text := _text(one.get("content")))]
    return {
        "model": _text(request.get("model")),
        "maxTokens": _count(request.get("max_completion_tokens", request.get("max_tokens"))),
        "temperature": request.get("temperature"),
        "system": "\n".join(system) or None,
        "messages": [
            {"role": _text(one.get("role")) or "user", "content": _chat_content(one)}
            for one in messages
            if one.get("role") != "system"
        ],
        "tools": _tools(request.get("tools"), "parameters"),
    }


def _chat_content(message: _Object) -> list[_Object]:
    content = message.get("content")
    if message.get("role") == "tool":
        return [_result(message.get("tool_call_id"), content)]
    blocks = [_said(content)] if isinstance(content, str) else [_responses_part(part) for part in _objects(content)]
    calls = [
        _called(
            call.get("id"), _object(call.get("function")).get("name"), _object(call.get("function")).get("arguments")
        )
        for call in _objects(message.get("tool_calls"))
    ]
    return [*blocks, *calls]


def _chat_response(passed: ModelCall, answers: list[_Object]) -> _Object:
    said: list[str] = []
    calls: dict[int, _Object] = {}
    blocks: list[_Object] = []
    last: _Object = {}
    stop: Any = None
    usage: _Object = {}
    for one in answers:
        last = {**last, **one}
        usage = _object(one.get("usage")) or usage
        choice = next(_objects(one.get("choices")), {})
        stop = choice.get("finish_reason") or stop
        blocks = blocks or _chat_content(_object(choice.get("message")))
        delta = _object(choice.get("delta"))
        if text := _text(delta.get("content")):
            said.append(text)
        for call in _objects(delta.get("tool_calls")):
            _grow_call(calls.setdefault(_count(call.get("index")) or 0, {"name": "", "arguments": ""}), call)
    if said:
        blocks.append(_said("".join(said)))
    blocks += [_called(call.get("id"), call["name"], call["arguments"]) for _, call in sorted(calls.items())]
    cached = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return _response(
        blocks,
        usage=_usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), None, cached),
        stop=stop,
        status=passed.status,
        model=last.get("model"),
        response_id=last.get("id"),
        error=_object(last.get("error")).get("message"),
    )


def _grow_call(call: _Object, delta: _Object) -> None:
    function = _object(delta.get("function"))
    call["id"] = _text(delta.get("id")) or call.get("id")
    call["name"] += _text(function.get("name")) or ""
    call["arguments"] += _text(function.get("arguments")) or ""


def _tools(tools: Any, schema: str) -> list[_Object] | None:
    found = []
    for tool in _objects(tools):
        described = _object(tool.get("function")) or tool
        if name := _text(described.get("name")):
            description = _text(described.get("description"))
            found.append({"name": name, "description": description, "inputSchema": described.get(schema)})
    return found or None
