"""Tests of frames: they are read like in the first peerbus implementation, and written so that it can read them."""

import contextlib
import json
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract import message as m
from tieline.contract.identifiers import MessageId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.message import check_content
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import EVERYBODY, Target, parse_target
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.canonical import NESTING_MAX
from tieline.protocols.peerbus.codec import Ack, Deliver, Envelope, FrameError, Peers
from tieline.wire.json_text import VALUES_MAX

SECRET = b"k" * 32
FIELDS = ("v1", "m-1", "alice", "bob", "2026-05-18T12:00:00Z", "peer-bus", "msg")


def made(body: bytes = b'{"text":"hello"}', **fields: str) -> Envelope:
    names = ("version", "id", "sender", "to", "ts", "source", "kind")
    values = dict(zip(names, FIELDS, strict=True)) | fields
    raw = codec.encode_envelope(tuple(values[name] for name in names), body, SECRET)  # type: ignore[arg-type]
    return codec.decode_envelope(raw)


def content(body: bytes, **fields: str) -> m.Content:
    found = codec.content_of(made(body, **fields))
    assert isinstance(found, m.Content), found
    return found


def message(said: m.Content, protocol: str = "tieline", **fields: Any) -> m.Message:
    return m.Message(
        id=MessageId("0190-abc"),
        offset=1,
        sender="carol",
        protocol=protocol,
        sent_at_ms=1_779_105_600_123,
        content=said,
        **fields,
    )


# Reading


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'{"type":"ack","id":"k"}', Ack("k")),
        (b'{"protocol_version":"v1","type":"ack"}', Ack("")),
        (b'{"type":"ack","id":null}', Ack("")),
        (b'{"TYPE":"ack","Id":"k"}', Ack("k")),
        (b'{"type":"peers","names":null}', Peers()),
        (b'{"type":"peers","token":5}', Peers()),
        (b'{"type":"register"}', None),
        (b'{"type":"deliver","envelope":{}}', None),
    ],
)
def test_control_frames_are_told_by_their_type(frame: bytes, expected: object) -> None:
    assert codec.decode_request(frame) == expected


@pytest.mark.parametrize("frame", [b"", b"x", b"[]", b"1", b'"x"', b"{", b"{}x", b'{"id":5}', b'{"a":NaN}', b"\xff"])
def test_what_is_no_frame_is_an_error(frame: bytes) -> None:
    with pytest.raises(FrameError):
        codec.decode_request(frame)


def test_the_last_of_several_keys_wins_whatever_its_case() -> None:
    for frame, expected in (
        (b'{"id":"a","id":"b"}', "b"),
        (b'{"ID":"a","id":"b"}', "b"),
        (b'{"id":"b","ID":"a"}', "a"),
        (b'{"id":"c","ID":"a","id":"b"}', "b"),
        (b'{"id":"x","body":{"id":"y"},"to":"{\\"id\\":1}"}', "x"),
        ('{"\u212aind":"k","id":"z"}'.encode(), "z"),
    ):
        envelope = codec.decode_request(frame)
        assert isinstance(envelope, Envelope)
        assert envelope.id == expected


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'{"type":"ack","id":"k","names":5,"token":[1],"body":{},"hmac":7,"x":1}', Ack("k")),
        (b'{"type":"peers","id":5,"names":"x"}', Peers()),
        (b'{"type":"register","name":5}', None),
        (b'{"type":"deliver","envelope":5}', None),
    ],
)
def test_fields_that_a_frame_does_not_have_are_ignored_whatever_their_type(frame: bytes, expected: object) -> None:
    assert codec.decode_request(frame) == expected


@pytest.mark.parametrize(
    "frame",
    [
        b'{"type":"ack","id":5}',
        b'{"type":"ack","id":"k","protocol_version":1}',
        *(b'{"id":"1","to":"b","%s":5}' % name for name in (b"from", b"ts", b"source", b"kind", b"hmac")),
        b'{"id":"1","to":"b","protocol_version":{}}',
    ],
)
def test_fields_that_a_frame_has_must_be_of_their_type(frame: bytes) -> None:
    with pytest.raises(FrameError):
        codec.decode_request(frame)


def nested(levels: int) -> bytes:
    """Return an envelope with this many nested levels, including its own."""
    return b'{"id":"1","to":"bob","body":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_levels_are_counted_to_a_limit_that_does_not_depend_on_the_stack() -> None:
    def deep(frames: int, read: Callable[[], object]) -> object:
        return read() if not frames else deep(frames - 1, read)

    for frames in (0, 300):
        assert deep(frames, lambda: codec.decode_request(nested(NESTING_MAX)))
        with pytest.raises(FrameError, match="512 levels"):
            deep(frames, lambda: codec.decode_request(nested(NESTING_MAX + 1)))
    for read in (codec.decode_handshake, codec.decode_envelope):
        with pytest.raises(FrameError, match="512 levels"):
            read(nested(NESTING_MAX + 1))


def test_an_envelope_at_the_limit_of_levels_can_be_pushed() -> None:
    push = codec.decode_push(codec.encode_deliver("k", nested(NESTING_MAX)))
    assert isinstance(push, Deliver)
    assert codec.decode_body(push.envelope.body)
    with pytest.raises(FrameError):
        codec.decode_push(codec.encode_deliver("k", nested(NESTING_MAX + 1)))


def test_brackets_in_strings_and_side_by_side_are_no_levels() -> None:
    for body in (b'"' + b"[{" * 5000 + b'\\"["', b"[" + b"[],{}," * 5000 + b"[]]"):
        assert codec.decode_request(b'{"id":"1","to":"bob","body":' + body + b"}")


def test_half_a_surrogate_pair_is_the_replacement_character_in_fields_and_stays_as_written_in_the_body() -> None:
    raw = rb'{"id":"a\ud83d","to":"\udc00\ud83d\ude00","body":["\\ud83d", "\ud83d"], "from":"\\\\"}'
    envelope = codec.decode_envelope(raw)
    assert (envelope.id, envelope.to, envelope.sender) == ("a\ufffd", "\ufffd\U0001f600", "\\\\")
    assert envelope.body == rb'["\\ud83d", "\ud83d"]'
    assert envelope.raw == raw


@given(st.binary(max_size=200))
def test_no_bytes_make_anything_but_a_frame_or_an_error(data: bytes) -> None:
    for read in (codec.decode_handshake, codec.decode_request, codec.decode_push):
        with contextlib.suppress(FrameError):
            read(data)


@given(
    st.dictionaries(st.text(max_size=3), st.recursive(st.text() | st.integers(), st.lists, max_leaves=4), max_size=4),
    st.text(max_size=5),
)
def test_keys_that_nobody_knows_change_nothing(extra: dict[str, Any], ident: str) -> None:
    frame = {f"x-{key}": value for key, value in extra.items()} | {"id": ident, "body": extra}
    written = json.dumps(frame, ensure_ascii=True).encode()
    envelope = codec.decode_request(written)
    assert isinstance(envelope, Envelope)
    assert json.loads(envelope.body) == extra
    assert envelope.id == json.loads(written)["id"].encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.slow
def test_the_time_to_read_grows_with_the_length_alone() -> None:
    def seconds(frame: bytes) -> float:
        started = time.thread_time()
        codec.decode_request(frame)
        return time.thread_time() - started

    for unit in (b"[0],", b'"\\n",', b'"\\ud800",'):
        frames = [b'{"x":1,"body":[' + unit * count + b"0]}" for count in (5_000, 80_000)]
        small, large = (min(seconds(frame) for _ in range(3)) for frame in frames)
        assert large < 160 * small + 0.1, unit


@pytest.mark.parametrize("unit", [b"[", b'{"a":', b'"\\ud800",', b"1", b"\\", b'"', b" ", b'"TYPE":1,', b"\xff"])
def test_the_time_to_read_a_strangers_first_frame_grows_with_its_length_alone(unit: bytes) -> None:
    def seconds(size: int) -> float:
        payload = b'{"type":"register",' + unit * (size // len(unit)) + b'"name":"x"}'
        started = time.thread_time()
        with contextlib.suppress(codec.FrameError):
            codec.decode_handshake(payload)
        return time.thread_time() - started

    small, large = (min(seconds(size) for _ in range(3)) for size in (4_000, 64_000))
    assert large < 40 * small + 0.01


# A push


def test_a_deliver_frame_carries_the_envelope_as_it_is() -> None:
    envelope = made()
    frame = codec.encode_deliver("m-1|bob", envelope.raw)
    assert codec.decode_push(frame) == Deliver("m-1|bob", envelope)
    assert envelope.raw in frame


def test_a_key_may_be_any_text() -> None:
    for key in ('"\\', "\u2028", "\n", "é\U0001f600", "x" * 5000):
        push = codec.decode_push(codec.encode_deliver(key, made().raw))
        assert isinstance(push, Deliver)
        assert push.key == key


def test_a_push_without_its_parts_is_told_apart() -> None:
    push = codec.decode_push(b'{"type":"deliver","envelope":{}}')
    assert isinstance(push, Deliver)
    assert push.key == ""
    for frame in (b'{"type":"deliver","delivery_key":"k"}', b'{"type":"deliver","envelope":[]}'):
        with pytest.raises(FrameError):
            codec.decode_push(frame)
    assert codec.decode_push(b'{"type":"peers","names":["a","b"]}') == Peers(("a", "b"))
    assert codec.decode_push(b'{"TYPE":"peers","NAMES":["a"],"x":1}') == Peers(("a",))
    assert codec.decode_push(b'{"type":"peers"}') == codec.decode_push(b'{"type":"peers","names":null}') == Peers(())
    assert codec.decode_push(b'{"type":"else"}') is codec.decode_push(b'{"TYPE":"else","x":1}') is None
    with pytest.raises(FrameError):
        codec.decode_push(b'{"type":"peers","names":5}')


def test_an_envelope_that_was_made_here_verifies_and_has_the_nine_fields() -> None:
    envelope = made(sender='x<y&é"\\/\n\t\u2028')
    assert envelope.verify(SECRET)
    assert list(json.loads(envelope.raw)) == [
        *("protocol_version", "id", "from", "to", "ts", "source", "kind"),
        *("body", "hmac"),
    ]


def test_what_is_stored_is_signed_only_if_it_is_an_envelope_with_that_signature() -> None:
    assert codec.is_signed(made().raw, SECRET)
    assert not codec.is_signed(made().raw, b"another secret, long enough for it")
    for garbage in (b"", b"[]", b"\xff", b'{"id":', nested(NESTING_MAX + 1), nested(2)):
        assert not codec.is_signed(garbage, SECRET)


def test_one_flipped_bit_in_any_field_the_body_or_the_hmac_never_verifies() -> None:
    original = made(b'{"text":"hello <b>","n":[1,2.50]}')
    for place in range(len(original.raw)):
        for bit in range(8):
            spoiled = bytearray(original.raw)
            spoiled[place] ^= 1 << bit
            try:
                found = codec.decode_envelope(bytes(spoiled))
            except FrameError:
                continue
            # A letter of a key, or of a hex digit, in its other case says the same.
            same = (found.fields, found.body) == (original.fields, original.body)
            assert not found.verify(SECRET) or same, bytes(spoiled)


# Into the hub


@pytest.mark.parametrize(
    ("body", "text", "data"),
    [
        (b'"hello"', "hello", None),
        (b'{"text":"hello"}', "hello", None),
        (b'{"message":"hello","n":1}', "hello", {"n": 1}),
        (b'{"content":"hello","message":5}', "hello", {"message": 5}),
        (b'{"text":"","message":"hello"}', "hello", {"text": ""}),
        (b'{"a": 1}', '{"a": 1}', {"a": 1}),
        (b"{}", "{}", None),
        (b'""', '""', None),
        (b"null", "null", None),
        (b"[1, 2]", "[1, 2]", None),
        (b"5", "5", None),
        (rb'{"text":"a\ud83d"}', "a\ufffd", None),
    ],
)
def test_a_body_is_text_with_data_beside_it(body: bytes, text: str, data: dict[str, Any] | None) -> None:
    said = content(body)
    assert (said.body, said.data, said.notes) == (text, data, ())
    assert check_content(said, DEFAULT_LIMITS) is None


def test_an_absent_body_is_null() -> None:
    said = codec.content_of(codec.decode_envelope(b'{"id":"1","to":"bob"}'))
    assert isinstance(said, m.Content)
    assert said.body == "null"


@pytest.mark.parametrize("body", [b'{"a":' * 300 + b"1" + b"}" * 300, b'{"n":1e999}', b'{"n":' + b"9" * 5000 + b"}"])
def test_what_cannot_be_shown_as_data_is_text_with_a_note(body: bytes) -> None:
    said = content(body)
    assert (said.body, said.data) == (body.decode(), None)
    assert len(said.notes) == 1
    assert check_content(said, DEFAULT_LIMITS) is None


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", None),
        (b'{"text":"x"}', {"text": "x"}),
        (b"1e400", math.inf),
        (b"[-1e400, 1.5e3, 7]", [-math.inf, 1500.0, 7]),
        (b"9" * 5000, math.inf),
        (b"-" + b"9" * 5000, -math.inf),
        (rb'"a\ud83d"', "a\ufffd"),
        (rb'{"\udc00":["\ud83d\ude00", 1e999]}', {"\ufffd": ["\U0001f600", math.inf]}),
    ],
)
def test_every_body_says_something_to_its_host(body: bytes, value: object) -> None:
    assert codec.decode_body(made(body or b"null").body) == value
    assert codec.decode_body(body) == value


def test_the_senders_bytes_are_kept() -> None:
    envelope = made()
    said = codec.content_of(envelope)
    assert isinstance(said, m.Content)
    assert said.original == envelope.raw


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": ""}, Code.INVALID_MESSAGE),
        ({"to": ""}, Code.INVALID_MESSAGE),
        ({"to": "*"}, Code.INVALID_TARGET),
        ({"kind": "broadcast"}, Code.INVALID_TARGET),
        ({"to": "a b"}, Code.INVALID_NAME),
        ({"to": "x" * 200}, Code.INVALID_TARGET),
    ],
)
def test_what_cannot_be_routed_is_refused(fields: dict[str, str], code: Code) -> None:
    refusal = codec.content_of(made(b"{}", **fields))
    assert isinstance(refusal, Refusal)
    assert refusal.code is code


# Out of the hub


@pytest.mark.parametrize(
    ("target", "protocol", "wire_id", "expected"),
    [
        ("@bob", "peerbus", "m-1", "m-1"),
        ("*", "peerbus", "m-1|*", "m-1|bob"),
        ("@bob", "peerbus", "m-1|bob", "m-1|bob"),
        ("@bob", "tieline", "w", "0190-abc"),
        ("#dev", "tieline", None, "0190-abc"),
        ("*", "tieline", None, "0190-abc|bob"),
    ],
)
def test_the_delivery_key(target: str, protocol: str, wire_id: str | None, expected: str) -> None:
    checked = parse_target(target)
    assert isinstance(checked, Target)
    one = message(m.Content(target=checked, body="x"), protocol, wire_id=wire_id)
    assert codec.key_of(one, "bob") == expected


def test_a_translated_message_is_signed_and_says_so() -> None:
    said = m.Content(target=EVERYBODY, body="hello", data={"n": 1}, title="t", level=m.Level.ERROR)
    envelope = codec.decode_envelope(codec.translate(message(said), "bob", SECRET))
    assert envelope.verify(SECRET)
    assert (envelope.source, envelope.sender, envelope.to, envelope.kind) == ("tieline", "carol", "*", "broadcast")
    assert (envelope.id, envelope.ts) == ("0190-abc", "2026-05-18T12:00:00.123Z")
    assert json.loads(envelope.body) == {"text": "hello", "data": {"n": 1}, "title": "t", "level": "error"}


def test_a_message_to_a_channel_is_delivered_as_a_direct_one_that_names_it() -> None:
    dev = parse_target("#dev")
    assert isinstance(dev, Target)
    said = m.Content(target=dev, body="hello", thread="th", refs=("r",), priority=m.Priority.URGENT)
    envelope = codec.decode_envelope(codec.translate(message(said, verified=False), "bob", SECRET))
    assert (envelope.to, envelope.kind) == ("bob", "msg")
    assert json.loads(envelope.body) == {
        "text": "hello",
        "channel": "#dev",
        "thread": "th",
        "refs": ["r"],
        "priority": "urgent",
        "verified": False,
    }


def test_the_bytes_of_another_protocol_are_not_taken_for_an_envelope() -> None:
    said = m.Content(target=EVERYBODY, body="x", original=b"{}")
    assert codec.original_of(message(said, "agent-relay")) is None
    assert codec.original_of(message(said, "peerbus")) == b"{}"


def test_a_delivery_with_a_strange_field_is_read_without_it() -> None:
    envelope = b'{"id":"1","from":"alice","to":"bob","body":1}'
    pushed = codec.decode_push(b'{"type":"deliver","delivery_key":"k","names":5,"id":[],"envelope":%b}' % envelope)
    assert isinstance(pushed, Deliver)
    assert (pushed.key, pushed.envelope.sender) == ("k", "alice")


@pytest.mark.parametrize("value", [object(), "\ud800", {"a": {1, object()}}])
def test_a_body_that_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        codec.encode_body(value)


def test_a_body_nests_as_deep_as_an_envelope_has_room_for() -> None:
    value: object = None
    for _ in range(NESTING_MAX - 1):
        value = [value]
    assert codec.encode_body(value).count(b"[") == NESTING_MAX - 1
    for levels in (1, 5000):
        deeper = value
        for _ in range(levels):
            deeper = [deeper]
        with pytest.raises(ValueError, match=r"nested deeper than 511|no JSON"):
            codec.encode_body(deeper)


def test_a_body_of_very_many_values_is_passed_on_to_peers_but_not_decoded() -> None:
    body = b'{"text":"a","b":[' + b",".join([b"[]"] * VALUES_MAX) + b"]}"
    said = codec.content_of(made(body))
    assert isinstance(said, m.Content)
    assert (said.body, said.data) == (body.decode(), None)
    assert "too many" in said.notes[0]
    assert said.original is not None
    assert body in said.original
