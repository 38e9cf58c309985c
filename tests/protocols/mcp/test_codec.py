"""Tests of decoding and checking the messages of MCP over HTTP, without a connection."""

import json
from typing import Any

import pytest

from tieline.protocols.mcp import codec
from tieline.protocols.mcp.codec import Invalid, check_stateless, decode
from tieline.wire.json_text import VALUES_MAX

META = {codec.VERSION_KEY: "2026-07-28", codec.CAPABILITIES_KEY: {}}


def asked(method: str, **params: Any) -> codec.Message:
    (message,) = decode(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
    return message


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in (("mcp-protocol-version", "2026-07-28"), *pairs)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", codec.PARSE_ERROR),
        (b"{", codec.PARSE_ERROR),
        (b"\xff", codec.PARSE_ERROR),
        (b"1", codec.INVALID_REQUEST),
        (b"[]", codec.INVALID_REQUEST),
        (b"{}", codec.INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","method":"x"}', codec.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', codec.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', codec.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":1}', codec.INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","method":"x","params":1}', codec.INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_refused(body: bytes, code: int) -> None:
    with pytest.raises(Invalid) as caught:
        decode(body)
    assert caught.value.code == code


def test_a_request_a_notification_and_an_answer_are_told_apart() -> None:
    request, notification, answer = decode(
        b'[{"jsonrpc":"2.0","id":"a","method":"x"},{"jsonrpc":"2.0","method":"y"},{"jsonrpc":"2.0","id":1,"result":{}}]'
    )
    assert [one.is_request for one in (request, notification, answer)] == [True, False, False]
    assert [one.named for one in (request, notification, answer)] == ["x", "y", ""]


def test_a_list_is_bounded() -> None:
    one = b'{"jsonrpc":"2.0","method":"y"}'
    assert len(decode(b"[" + b",".join([one] * codec.BATCH_MAX) + b"]")) == codec.BATCH_MAX
    with pytest.raises(Invalid):
        decode(b"[" + b",".join([one] * (codec.BATCH_MAX + 1)) + b"]")


@pytest.mark.parametrize("many", ["[],", '"",', "1,", '{"a":1},'])
def test_a_body_of_very_many_values_is_refused_before_it_is_decoded(many: str) -> None:
    listed = many * VALUES_MAX + "0"
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":[{listed}]}}}}'
    with pytest.raises(Invalid, match="values"):
        decode(body.encode())


def test_a_long_text_with_many_marks_is_one_string() -> None:
    text = '\\"[],{}' * VALUES_MAX
    assert asked("tools/call", arguments={"body": text}).params == {"arguments": {"body": text}}


def test_headers_of_the_stateless_era_repeat_the_body() -> None:
    check_stateless(asked("tools/list", _meta=META), headers(("mcp-method", "tools/list")))
    named = asked("tools/call", name="send", _meta=META)
    for value in ("send", "=?base64?c2VuZA==?="):
        check_stateless(named, headers(("mcp-method", "tools/call"), ("mcp-name", value)))


@pytest.mark.parametrize(
    ("pairs", "params"),
    [
        ([], {"_meta": META}),
        ([("mcp-method", "tools/call"), ("mcp-method", "tools/call")], {"_meta": META}),
        ([("mcp-method", "tools/call")], {"_meta": META, "name": "send"}),
        ([("mcp-method", "tools/call"), ("mcp-name", "drain")], {"_meta": META, "name": "send"}),
        ([("mcp-method", "tools/call"), ("mcp-name", "=?base64?!?=")], {"_meta": META, "name": "send"}),
        ([("mcp-method", "tools/call"), ("mcp-name", "=?base64?/w==?=")], {"_meta": META, "name": "send"}),
        ([("mcp-method", "tools/call"), ("mcp-name", "=?base64?a?=")], {"_meta": META, "name": "send"}),
        ([("mcp-method", "tools/call")], {"_meta": {**META, codec.VERSION_KEY: 1}}),
    ],
)
def test_headers_that_differ_from_the_body_are_refused(pairs: list[tuple[str, str]], params: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        check_stateless(asked("tools/call", **params), headers(*pairs))
    assert caught.value.code == codec.HEADER_MISMATCH


@pytest.mark.parametrize("meta", [None, 1, {}, {codec.VERSION_KEY: "2026-07-28"}])
def test_a_stateless_request_without_its_meta_is_refused(meta: Any) -> None:
    with pytest.raises(Invalid) as caught:
        check_stateless(asked("tools/list", _meta=meta), headers(("mcp-method", "tools/list")))
    assert caught.value.code == codec.INVALID_PARAMS


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Invalid) as caught:
        codec.check_version("2099-01-01")
    assert json.loads(codec.error(1, caught.value))["error"]["data"] == {
        "supported": ["2026-07-28"],
        "requested": "2099-01-01",
    }


def test_a_client_of_an_unknown_version_is_offered_the_newest_of_its_era() -> None:
    assert codec.initialized({"protocolVersion": "2025-03-26"})[0] == "2025-03-26"
    assert codec.initialized({"protocolVersion": "2099-01-01"})[0] == codec.initialized(None)[0] == "2025-11-25"


def test_a_token_for_progress_is_a_number_or_a_text() -> None:
    tokens: list[Any] = [1, "a", True, []]
    found = [codec.progress_token({"_meta": {"progressToken": token}}) for token in tokens]
    assert found == [1, "a", None, None]
    assert codec.progress_token(None) is codec.progress_token({"_meta": 1}) is None
    said = json.loads(codec.progress("a", 5.0, "waiting"))
    assert said["params"] == {"progressToken": "a", "progress": 5.0, "message": "waiting"}


def test_results_of_the_stateless_era_say_whose_they_are() -> None:
    assert codec.discovered()["supportedVersions"] == ["2026-07-28"]
    assert codec.listed([], is_stateless=False) == {"tools": []}
    assert codec.listed([], is_stateless=True)["resultType"] == "complete"
    assert codec.stateless({}, "s")["_meta"][codec.SUBSCRIPTION_KEY] == "s"
    assert json.loads(codec.notification("x", None)) == {"jsonrpc": "2.0", "method": "x"}
    assert json.loads(codec.answer(1, {})) == {"jsonrpc": "2.0", "id": 1, "result": {}}
