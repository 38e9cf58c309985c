"""Tests that a request to each model provider, with its answer, becomes one event.

No data from a provider, however odd, raises an error here.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.agents import model_call
from tieline.agents.model_call import ModelCall, event_of, stream_data, usage_event

JSON = (("Content-Type", "application/json"),)
STREAM = (("content-type", "text/event-stream; charset=utf-8"),)


def passed(path: str, request: Any, response: bytes, headers: tuple[tuple[str, str], ...] = JSON) -> ModelCall:
    provider = "anthropic" if "messages" in path else "openai"
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    return ModelCall(provider, "POST", f"https://api{path}", 1000, 1500, (), body, 200, headers, response)


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def test_all_sorts_of_blocks_are_kept_and_files_are_only_named() -> None:
    request = {
        "model": "m",
        "max_tokens": 10,
        "temperature": 0.5,
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "tools": [{"name": "ls", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": {"media_type": "image/png", "data": "AAAA"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "no"}],
            },
            {"role": "user", "content": [{"type": "new", "x": 1}]},
        ],
    }
    response = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    event = event_of(passed("/v1/messages", request, json.dumps(response).encode()))
    entry = event["entry"]
    assert (event["ts"], event["duration"], entry["provider"]) == (1000, 500, "anthropic")
    assert entry["request"]["system"] == "a\nb"
    assert entry["request"]["tools"] == [{"name": "ls", "description": "d", "inputSchema": {"type": "object"}}]
    assert [message["content"][0] for message in entry["request"]["messages"]] == [
        {"type": "image", "mediaType": "image/png"},
        {"type": "thinking", "text": "hm"},
        {"type": "tool_result", "toolUseId": "t", "content": "no", "isError": True},
        {"type": "unknown", "raw": {"type": "new", "x": 1}},
    ]
    assert (entry["response"]["error"], entry["response"]["usage"]) == ("busy", None)


@pytest.mark.parametrize("whole", [True, False])
def test_openai_responses_are_the_same_model_call(whole: bool) -> None:
    request = {
        "model": "g",
        "instructions": "be good",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "ls", "arguments": '{"p":"."}'},
            {"type": "function_call_output", "call_id": "c", "output": "a b"},
        ],
    }
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two files"}]},
    ]
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 80}, "output_tokens": 3}
    response = {"object": "response", "id": "r", "model": "g-1", "status": "completed", "usage": usage}
    if whole:
        event = event_of(passed("/v1/responses", request, json.dumps({**response, "output": output}).encode()))
    else:
        items = [{"type": "response.output_item.done", "item": item} for item in output]
        body = sse(*items, {"type": "response.completed", "response": {**response, "output": []}})
        event = event_of(passed("/v1/responses", request, body, STREAM))
    entry = event["entry"]
    assert [message["role"] for message in entry["request"]["messages"]] == ["user", "assistant", "user"]
    assert entry["request"]["messages"][1]["content"][0]["input"] == {"p": "."}
    assert entry["response"]["messages"][0]["content"] == [
        {"type": "thinking", "text": "think"},
        {"type": "text", "text": "two files"},
    ]
    # Tokens read from a cache are not among the input tokens, as in Anthropic's count.
    assert entry["response"]["usage"] == {
        "inputTokens": 20,
        "outputTokens": 3,
        "cacheCreationInputTokens": None,
        "cacheReadInputTokens": 80,
    }


def test_chat_completions_are_the_same_model_call_in_pieces_too() -> None:
    request = {
        "model": "c",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "ls", "parameters": {}}}],
    }
    call = {"index": 0, "id": "c1", "function": {"name": "ls", "arguments": '{"a"'}}
    pieces = [
        {"id": "x", "model": "c-1", "choices": [{"delta": {"content": "he"}}]},
        {"id": "x", "choices": [{"delta": {"content": "y", "tool_calls": [call]}}]},
        {"id": "x", "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}}]},
        {"id": "x", "choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"id": "x", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
    ]
    streamed = event_of(passed("/v1/chat/completions", request, sse(*pieces), STREAM))["entry"]
    tool = {"id": "c1", "function": {"name": "ls", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": "hey", "tool_calls": [tool]}
    whole = {
        "id": "x",
        "model": "c-1",
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }
    at_once = event_of(passed("/v1/chat/completions", request, json.dumps(whole).encode()))["entry"]
    assert streamed == at_once
    assert streamed["request"]["system"] == "s"
    assert streamed["response"]["messages"][0]["content"] == [
        {"type": "text", "text": "hey"},
        {"type": "tool_use", "id": "c1", "name": "ls", "input": {"a": 1}},
    ]


def test_a_model_call_that_is_too_long_is_kept_without_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "EVENT_BYTES_MAX", 2000)
    request = {"model": "m", "messages": [{"role": "user", "content": "x" * 5000}]}
    response = {"type": "message", "content": [], "usage": {"input_tokens": 1, "output_tokens": 2}}
    entry = event_of(passed("/v1/messages", request, json.dumps(response).encode()))["entry"]
    assert (entry["truncated"], entry["request"]["messages"], entry["request"]["model"]) == (True, [], "m")
    assert entry["response"]["usage"]["outputTokens"] == 2


def test_a_request_that_means_nothing_is_told_with_a_preview() -> None:
    event = event_of(passed("/v1/files", b"\xff" * 10_000, b"ok"))
    assert (event["kind"], event["entry"]["host"], event["entry"]["responseBodyPreview"]) == (
        "opaque_http",
        "api",
        "ok",
    )
    assert len(event["entry"]["requestBodyPreview"]) == model_call.PREVIEW_CHARS


def test_the_data_of_a_stream_is_found_with_any_line_ends() -> None:
    assert list(stream_data(b": hi\r\ndata: 1\r\ndata:2\r\n\r\nevent: x\ndata: 3\n\ndata: 4")) == [b"1\n2", b"3", b"4"]


def test_what_a_program_only_counts_is_a_model_call_without_words() -> None:
    event = usage_event({"inputTokens": 5, "outputTokens": "x"}, provider="openai", now_ms=7)
    assert event["entry"]["response"]["usage"]["inputTokens"] == 5
    assert event["entry"]["response"]["usage"]["outputTokens"] is None


_KEYS = st.sampled_from(
    [
        *(
            "type",
            "message",
            "content",
            "text",
            "index",
            "delta",
            "content_block",
            "usage",
            "model",
            "messages",
            "role",
        ),
        *("output", "response", "item", "choices", "tool_calls", "function", "arguments", "input", "error", "tools"),
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["message", "message_start", "text", "user", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(_VALUES, st.lists(_VALUES, max_size=4), st.sampled_from(["/v1/messages", "/responses", "/chat/completions"]))
def test_no_answer_of_a_provider_is_an_error_of_ours(request: Any, answers: list[Any], path: str) -> None:
    for headers, body in ((STREAM, sse(*answers)), (JSON, json.dumps(answers[:1]).encode()[1:-1])):
        event = event_of(passed(path, request, body, headers))
        json.dumps(event)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_nor_is_what_is_no_json(request: bytes, response: bytes) -> None:
    event_of(passed("/v1/messages", request, response, STREAM))
