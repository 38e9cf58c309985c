"""Tests of OpenTelemetry exports: JSON and protobuf become activity. Broken or too large exports are reported."""

import gzip
import json
import struct
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.contract.redaction import redact
from tieline.services.otlp import (
    BODY_BYTES_MAX,
    JSON,
    PROTOBUF,
    Malformed,
    Signal,
    Telemetry,
    decode,
    encode_answer,
)

NOW = 1_700_000_000_000
START_NS, END_NS = 1_700_000_000_000_000_000, 1_700_000_002_500_000_000

CHAT: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-x",
    "gen_ai.response.model": "claude-x-1",
    "gen_ai.request.max_tokens": 100,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 8,
    "gen_ai.usage.cache_read.input_tokens": 3,
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "be brief"}]),
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]),
    "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "t1", "name": "ls", "arguments": {"p": "/"}}]}]
    ),
}


# The two forms


def any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            words = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
            return {"doubleValue": words.get(value, value)}
        case list():
            return {"arrayValue": {"values": [any_value(one) for one in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs(value)}}
        case _:
            return {"stringValue": value}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


def traces(*spans: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    items = [
        {
            "traceId": "5b8efff798038103d269b633813fc60c",
            "spanId": "eee19b7ec3c1b174",
            "name": "chat",
            "kind": 3,
            "startTimeUnixNano": str(START_NS),
            "endTimeUnixNano": str(END_NS),
            "attributes": pairs(attributes),
            "unknownField": {"a": 1},
        }
        for attributes in spans
    ]
    about = {"attributes": pairs(resource)} if resource else {}
    return json.dumps({"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {}, "spans": items}]}]}).encode()


def logs(attributes: dict[str, Any], **more: Any) -> bytes:
    record = {"timeUnixNano": str(END_NS), "attributes": pairs(attributes), **more}
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()


def varint(number: int) -> bytes:
    number %= 2**64
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def packed_value(value: Any) -> bytes:
    match value:
        case bool():
            return varint(2 << 3) + varint(value)
        case int():
            return varint(3 << 3) + varint(value)
        case float():
            return varint(4 << 3 | 1) + struct.pack("<d", value)
        case list():
            return block(5, b"".join(block(1, packed_value(one)) for one in value))
        case dict():
            return block(6, packed_pairs(1, value))
        case _:
            return block(1, value.encode())


def packed_pairs(number: int, attributes: dict[str, Any]) -> bytes:
    return b"".join(
        block(number, block(1, key.encode()) + block(2, packed_value(value))) for key, value in attributes.items()
    )


def packed_traces(attributes: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    span = block(1, bytes.fromhex("5b8efff798038103d269b633813fc60c")) + block(2, bytes.fromhex("eee19b7ec3c1b174"))
    span += block(5, b"chat") + varint(6 << 3) + varint(3)
    span += varint(7 << 3 | 1) + struct.pack("<Q", START_NS) + varint(8 << 3 | 1) + struct.pack("<Q", END_NS)
    span += packed_pairs(9, attributes)
    return block(1, block(1, packed_pairs(1, resource or {})) + block(2, block(2, span)))


def read(signal: Signal, body: bytes, content_type: str = JSON, encoding: str = "") -> Telemetry:
    result = decode(signal, body, content_type, encoding, NOW)
    assert isinstance(result, Telemetry), result
    return result


def one(signal: Signal, body: bytes) -> dict[str, Any]:
    (event,) = read(signal, body).events
    return event


# Conversion of records


def test_a_span_of_a_model_becomes_an_exchange() -> None:
    event = one(Signal.TRACES, traces(CHAT))
    assert (event["kind"], event["ts"], event["duration"]) == ("llm_exchange", NOW, 2500)
    entry = event["entry"]
    assert (entry["kind"], entry["startedAt"], entry["endedAt"]) == ("anthropic_messages", NOW, NOW + 2500)
    assert entry["provider"] == "anthropic"
    assert entry["request"] == {
        "model": "claude-x",
        "maxTokens": 100,
        "temperature": 0.5,
        "system": "be brief",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "tools": None,
    }
    response = entry["response"]
    assert response["messages"] == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "/"}}]}
    ]
    # Of the twelve input tokens three came from the cache.
    assert response["usage"] == {
        "inputTokens": 9,
        "outputTokens": 8,
        "cacheCreationInputTokens": None,
        "cacheReadInputTokens": 3,
    }
    assert (response["stopReason"], response["status"], response["model"]) == ("stop", None, "claude-x-1")


def test_a_call_names_the_repository_of_its_record_or_else_of_its_resource() -> None:
    url, name = "vcs.repository.url.full", "vcs.repository.name"
    program = {"service.name": "agent", url: "https://github.com/acme/api"}
    assert "scope" not in one(Signal.TRACES, traces(CHAT))
    for body, kind in ((traces(CHAT, resource=program), JSON), (packed_traces(CHAT, program), PROTOBUF)):
        (event,) = read(Signal.TRACES, body, kind).events
        assert event["scope"] == "https://github.com/acme/api"
    assert one(Signal.TRACES, traces({**CHAT, url: "own"}, resource=program))["scope"] == "own"
    assert one(Signal.LOGS, logs({**CHAT, name: "acme/api"}))["scope"] == "acme/api"
    assert "scope" not in one(Signal.TRACES, traces({**CHAT, name: ["no", "text"]}))


def test_both_forms_plain_and_packed_say_the_same() -> None:
    plain = read(Signal.TRACES, traces(CHAT))
    assert read(Signal.TRACES, packed_traces(CHAT), PROTOBUF) == plain
    assert read(Signal.TRACES, gzip.compress(traces(CHAT)), f"{JSON}; charset=utf-8", "gzip") == plain
    assert read(Signal.TRACES, gzip.compress(packed_traces(CHAT)), PROTOBUF, "gzip") == plain


def test_names_of_earlier_conventions_are_understood() -> None:
    attributes = {
        "gen_ai.system": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.usage.prompt_tokens": 1,
        "gen_ai.usage.completion_tokens": 2,
        "gen_ai.prompt": "plain words",
    }
    entry = one(Signal.TRACES, traces(attributes))["entry"]
    assert entry["provider"] == "openai"
    assert entry["response"]["usage"]["inputTokens"] == 1
    assert entry["request"]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "plain words"}]}]


def test_a_log_event_of_a_model_becomes_an_exchange() -> None:
    structured = {**CHAT, "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]}
    event = one(Signal.LOGS, logs(structured, eventName="gen_ai.client.inference.operation.details"))
    assert event["entry"]["request"]["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert event["ts"] == END_NS // 1_000_000


def test_claude_codes_own_event_becomes_an_exchange() -> None:
    attributes = {"model": "claude-x", "input_tokens": "7", "output_tokens": 5, "duration_ms": "1500"}
    event = one(Signal.LOGS, logs(attributes, body={"stringValue": "claude_code.api_request"}))
    assert (event["ts"], event["duration"]) == (END_NS // 1_000_000 - 1500, 1500)
    assert event["entry"]["request"]["model"] == "claude-x"
    assert event["entry"]["response"]["usage"]["inputTokens"] == 7


def test_a_span_around_exchanges_does_not_count_their_tokens_again() -> None:
    telemetry = read(Signal.TRACES, traces({**CHAT, "gen_ai.operation.name": "invoke_agent"}))
    assert (telemetry.events, telemetry.ignored) == ((), 1)


def test_a_span_of_another_request_is_opaque_and_without_its_secrets() -> None:
    attributes = {
        "http.request.method": "GET",
        "url.full": "https://ada:hunter22@example.org/x?token=abcdefgh",
        "http.response.status_code": 200,
        "http.request.header.authorization": ["Bearer abcdefghijk"],
    }
    event = redact(one(Signal.TRACES, traces(attributes)))
    entry = event["entry"]
    assert event["kind"] == entry["kind"] == "opaque_http"
    assert (entry["host"], entry["method"], entry["status"]) == ("example.org", "GET", 200)
    text = json.dumps(event)
    assert not any(secret in text for secret in ("hunter22", "abcdefgh"))


def test_other_records_are_ignored_and_counted() -> None:
    telemetry = read(Signal.TRACES, traces({"db.system": "sqlite"}, CHAT, {}))
    assert (len(telemetry.events), telemetry.ignored, telemetry.rejected) == (1, 2, 0)


def test_events_come_in_uploads_that_the_hub_takes() -> None:
    telemetry = read(Signal.TRACES, traces(*[CHAT] * 5))
    uploads = list(telemetry.uploads(2))
    assert [len(events) for events, _ in uploads] == [2, 2, 1]
    assert sum(size for _, size in uploads) == sum(telemetry.sizes)


def test_json_inside_an_attribute_that_is_nested_too_deep_stays_a_text() -> None:
    deep = "[" * 5000 + "]" * 5000
    entry = one(Signal.TRACES, traces({**CHAT, "gen_ai.input.messages": deep}))["entry"]
    assert entry["request"]["messages"][0]["content"] == [{"type": "text", "text": deep}]


def test_a_record_that_cannot_be_kept_is_left_out_and_the_sender_is_told() -> None:
    large = {**CHAT, "gen_ai.prompt": "", "gen_ai.input.messages": "x" * (9 * 1024 * 1024)}
    telemetry = read(Signal.TRACES, traces(large, CHAT))
    assert (len(telemetry.events), telemetry.rejected) == (1, 1)
    body, content_type = encode_answer(Signal.TRACES, JSON, telemetry)
    assert content_type == JSON
    assert json.loads(body)["partialSuccess"]["rejectedSpans"] == "1"
    packed, content_type = encode_answer(Signal.TRACES, PROTOBUF, telemetry)
    assert content_type == PROTOBUF
    assert packed[2:4] == b"\x08\x01"
    taken = read(Signal.TRACES, traces(CHAT))
    assert encode_answer(Signal.TRACES, JSON, taken) == (b"{}", JSON)
    assert encode_answer(Signal.TRACES, PROTOBUF, taken) == (b"", PROTOBUF)


# Refusals


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "status"),
    [
        (b"", JSON, "", 400),
        (b"[]", JSON, "", 400),
        (b'{"resourceSpans": 1}', JSON, "", 400),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": 1}]}]}]}]}', JSON, "", 400),
        (b"\xff\xfe", JSON, "", 400),
        (b"\x0a\x05abc", PROTOBUF, "", 400),
        (b"\x08\x01", PROTOBUF, "", 400),
        (b"\xff" * 20, PROTOBUF, "", 400),
        (b"{}", JSON, "gzip", 400),
        (gzip.compress(b"{}")[:-4], JSON, "gzip", 400),
        (gzip.compress(b"{}") * 2, JSON, "gzip", 400),
        (b"{}", JSON, "br", 415),
        (b"{}", "text/plain", "", 415),
        (gzip.compress(b" " * (BODY_BYTES_MAX + 1)), JSON, "gzip", 413),
        (b" " * (BODY_BYTES_MAX + 1), JSON, "", 413),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 10_000 + b"{}]}]}]}", JSON, "", 413),
    ],
    # Bodies are no names: gzip writes the time into them.
    ids=lambda value: "body" if isinstance(value, bytes) else str(value),
)
def test_a_body_that_is_no_request_is_refused(body: bytes, content_type: str, encoding: str, status: int) -> None:
    result = decode(Signal.TRACES, body, content_type, encoding, NOW)
    assert isinstance(result, Malformed)
    assert result.status == status


def test_a_value_that_is_nested_too_deep_is_no_fault() -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(100):
        value = {"arrayValue": {"values": [value]}}
    record = {"attributes": [{"key": "gen_ai.prompt", "value": value}]}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    assert read(Signal.LOGS, body).rejected == 1
    deeper = b'{"resourceLogs":' + b"[" * 100_000
    assert isinstance(decode(Signal.LOGS, deeper, JSON, "", NOW), Malformed)
    packed = b""
    for _ in range(2000):
        packed = block(5, block(1, packed))
    nested = block(1, block(2, block(2, block(6, block(1, b"k") + block(2, packed)))))
    assert isinstance(decode(Signal.LOGS, nested, PROTOBUF, "", NOW), Malformed)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([JSON, PROTOBUF]), st.sampled_from(list(Signal)))
def test_garbage_is_refused_or_says_nothing(body: bytes, content_type: str, signal: Signal) -> None:
    assert isinstance(decode(signal, body, content_type, "", NOW), Malformed | Telemetry)


_values = st.recursive(
    st.text(max_size=5) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*CHAT, "http.method", "url.full", "error.type"]), _values, max_size=8))
def test_any_values_say_the_same_in_both_forms(attributes: dict[str, Any]) -> None:
    assert read(Signal.TRACES, packed_traces(attributes), PROTOBUF) == read(Signal.TRACES, traces(attributes))


def test_the_time_to_read_grows_with_the_size_and_no_faster() -> None:
    def seconds(count: int) -> float:
        body = packed_traces({f"k{number}": "v" * 1000 for number in range(count)})
        best = 1e9
        for _ in range(3):
            began = time.perf_counter()
            decode(Signal.TRACES, body, PROTOBUF, "", NOW)
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(800) < 60 * seconds(100) + 0.05
