"""Tests of envelopes: their fields pass through the hub unchanged, and invalid ones get the documented refusal."""

import contextlib
import gc
import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.protocols.agent_relay.wire import frame, framed, said
from tieline.contract import message as m
from tieline.contract.identifiers import MessageId
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind, parse_target
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import Envelope, EnvelopeError
from tieline.protocols.agent_relay.error_code import ERROR_CODES, ErrorCode
from tieline.wire.frames import FrameBuffer, FrameError
from tieline.wire.json_text import VALUES_MAX

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
objects = st.dictionaries(st.text(max_size=8), values, max_size=4)


def encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def message_with(content: m.Content, protocol: str = codec.PROTOCOL) -> m.Message:
    return m.Message(
        id=MessageId("0190-abc"),
        offset=1,
        sender="alice",
        verified=True,
        protocol=protocol,
        sent_at_ms=1734440000000,
        content=content,
    )


def read(envelope: dict[str, Any]) -> Envelope:
    return codec.decode(json.dumps(envelope).encode())


def content(envelope: dict[str, Any]) -> m.Content:
    found = codec.content_of(read(envelope), "alice")
    assert isinstance(found, m.Content), found
    return found


# Envelopes


@given(st.text(min_size=1), st.text(), st.none() | st.text(), objects, st.none() | objects)
def test_an_envelope_survives_its_frame(
    kind: str, identifier: str, name: str | None, payload: dict[str, Any], meta: dict[str, Any] | None
) -> None:
    envelope = Envelope(kind, id=identifier, ts=7, sender=name, to=name, topic=name, payload=payload, payload_meta=meta)
    if not encodable([kind, identifier, name, payload, meta]):
        return
    assert codec.decode(codec.encode(envelope)[4:]) == envelope


def test_a_written_envelope_always_has_what_the_protocol_demands() -> None:
    written = codec.encode(Envelope("PONG"))
    assert json.loads(written[4:]) == {"v": 1, "type": "PONG", "id": "", "ts": 0, "payload": {}}
    assert codec.payload_bytes(written) == len(written) - 4


def test_unknown_keys_of_an_envelope_are_ignored() -> None:
    assert read(frame("LOG", later="version")).type == "LOG"


@given(st.binary(max_size=64) | objects.map(lambda value: json.dumps(value).encode()))
def test_garbage_raises_nothing_but_an_envelope_error(payload: bytes) -> None:
    with contextlib.suppress(EnvelopeError):
        assert codec.decode(payload).v == 1


@given(st.lists(st.binary(max_size=32), max_size=8))
def test_a_stream_of_garbage_raises_nothing_but_an_error_of_its_frame_or_envelope(chunks: list[bytes]) -> None:
    buffer = FrameBuffer(64)
    with contextlib.suppress(EnvelopeError, FrameError):
        for chunk in chunks:
            buffer.receive_data(chunk)
            for payload in buffer.next_frames():
                codec.decode(payload)


envelopes = st.builds(
    lambda kind, fields: {"type": kind} | fields,
    st.sampled_from(["SEND", "ACK", "HELLO", "NEVER_HEARD_OF"]),
    st.fixed_dictionaries(
        {},
        optional={
            "v": st.integers(0, 2) | values,
            "id": st.text() | values,
            "ts": st.integers() | st.floats() | values,
            "from": st.text() | values,
            "to": st.text() | values,
            "topic": st.text() | values,
            "payload": objects | values,
            "payload_meta": objects | values,
            "delivery": objects | values,
            "other": values,
        },
    ),
)


def piece(value: dict[str, Any]) -> bytes:
    return framed(json.dumps(value).encode())


@given(
    st.lists(
        envelopes.map(piece) | st.binary(max_size=40) | st.binary(min_size=1, max_size=40).map(framed), max_size=6
    ),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_any_stream_in_any_chunking_gives_the_same_envelopes_or_the_same_error(
    pieces: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(pieces)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(bounds)]

    def read_all(parts: list[bytes]) -> tuple[list[Envelope], str]:
        buffer, found = FrameBuffer(4096), list[Envelope]()
        for part in parts:
            buffer.receive_data(part)
            try:
                for payload in buffer.next_frames():
                    found.append(codec.decode(payload))
            except (EnvelopeError, FrameError) as error:
                return found, str(error)
        return found, ""

    assert read_all(chunks) == read_all([stream])
    assert read_all([bytes([byte]) for byte in stream]) == read_all([stream])


@given(envelopes)
def test_whatever_an_envelope_says_it_becomes_content_or_a_refusal(value: dict[str, Any]) -> None:
    try:
        envelope = codec.decode(json.dumps(value).encode())
    except EnvelopeError:
        return
    for kind in ("SEND", codec.CHANNEL_MESSAGE):
        found = codec.content_of(msgspec.structs.replace(envelope, type=kind), "alice")
        assert isinstance(found, m.Content) or ERROR_CODES[found.code]


# Time that grows with the input and no faster. Ratios of two sizes in one run: the machine's speed cancels out.


def seconds(work: Callable[[int], None], size: int) -> float:
    """Return the processor time of this thread for `work` with this size: the least of several runs."""

    def once() -> float:
        started = time.thread_time()
        work(size)
        return time.thread_time() - started

    # The cost of garbage collection depends on all objects of this process, not on the codec.
    gc.disable()
    try:
        return min(once() for _ in range(5))
    finally:
        gc.enable()


def many_chunks_of_one_frame(size: int) -> None:
    buffer = FrameBuffer(2**31)
    data = framed(b'{"v":1,"type":"X","payload":{"x":"' + b"x" * size + b'"}}')
    found = None
    for start in range(0, len(data), 64):
        buffer.receive_data(data[start : start + 64])
        found = buffer.next_frame()
    assert found is not None
    codec.decode(found)


def many_frames_in_one_chunk(size: int) -> None:
    buffer = FrameBuffer(codec.FRAME_BYTES_MAX)
    buffer.receive_data(framed(b'{"v":1,"type":"X"}') * (size // 16))
    for payload in buffer.next_frames():
        codec.decode(payload)


def deep_nesting(size: int) -> None:
    with contextlib.suppress(EnvelopeError):
        codec.decode(b'{"v":1,"type":"X","payload":' + b'{"x":' * (size // 5))


def deep_lists_beside_each_other(size: int) -> None:
    # Few enough that the envelope is decoded.
    lists = b",".join([b"[" * 50 + b"]" * 50 + b',"' + b"x" * 400 + b'"'] * (size // 500))
    codec.decode(b'{"v":1,"type":"X","payload":{"x":[' + lists + b"]}}")


def many_keys(size: int) -> None:
    codec.decode(b'{"v":1,"type":"X","payload":{' + b",".join(b'"%d":1' % key for key in range(size // 8)) + b"}}")


def many_escapes(size: int) -> None:
    codec.decode(b'{"v":1,"type":"X","payload":{"x":"' + b"\\u00e9" * (size // 6) + b'"}}')


def many_digits(size: int) -> None:
    with contextlib.suppress(EnvelopeError):
        codec.decode(b'{"v":1,"type":"X","payload":{"x":' + b"9" * size + b"}}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        many_chunks_of_one_frame,
        many_frames_in_one_chunk,
        deep_nesting,
        deep_lists_beside_each_other,
        many_keys,
        many_escapes,
        many_digits,
    ],
)
def test_decoding_takes_time_in_proportion_to_its_input(work: Callable[[int], None]) -> None:
    # Eight times as much would take sixty-four times as long if it were quadratic. Values are counted in the longer
    # text alone, which takes a few milliseconds.
    assert seconds(work, 512 * 1024) <= 24 * seconds(work, 64 * 1024) + 0.02


@pytest.mark.parametrize("opening", [b"[", b'{"payload":', b'{"v":1,"type":"X","payload":{"x":' + b"[" * 50])
def test_deep_nesting_is_an_envelope_error(opening: bytes) -> None:
    with pytest.raises(EnvelopeError):
        codec.decode(opening * 20_000)


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_an_envelope_error(version: int) -> None:
    with pytest.raises(EnvelopeError, match="version 1"):
        read(frame("HELLO", v=version))


def test_bytes_one_by_one_are_the_same_envelope() -> None:
    buffer = FrameBuffer(codec.FRAME_BYTES_MAX)
    data = framed(json.dumps(said("hi", "bob", id="x")).encode())
    found: list[Envelope] = []
    for byte in data:
        buffer.receive_data(bytes([byte]))
        found += map(codec.decode, buffer.next_frames())
    assert [one.id for one in found] == ["x"]


# Codes


@pytest.mark.parametrize("code", list(Code))
def test_every_refusal_of_the_hub_has_a_code_on_the_wire(code: Code) -> None:
    assert isinstance(ERROR_CODES[code], ErrorCode)


# Ids of deliveries


@given(st.integers(0, 10**18 - 1), st.text(min_size=1))
def test_the_id_of_a_delivery_names_its_key_and_its_message(key: int, message_id: str) -> None:
    identifier = codec.delivery_id(message_id, key)
    assert codec.key_of(identifier) == key
    assert codec.message_of(identifier) == message_id


@given(st.none() | st.integers() | st.text() | st.text("d-0123456789²٣x") | st.text().map("d-".__add__) | values)
def test_a_made_up_id_names_a_key_of_64_bits_or_nothing(made_up: object) -> None:
    key = codec.key_of(made_up)
    assert key is None or 0 <= key < 2**63
    if isinstance(made_up, str):
        assert codec.message_of(made_up) is None or key is not None


# Targets and content


@pytest.mark.parametrize(
    ("to", "topic", "kind", "name"),
    [
        ("bob", None, TargetKind.MEMBER, "bob"),
        ("@bob", "chat", TargetKind.MEMBER, "bob"),
        ("*", None, TargetKind.EVERYBODY, ""),
        ("*", "chat", TargetKind.CHANNEL, "chat"),
        ("#dev", None, TargetKind.CHANNEL, "dev"),
        ("@users", None, TargetKind.CHANNEL, "users"),
    ],
)
def test_where_a_send_goes(to: str, topic: str | None, kind: TargetKind, name: str) -> None:
    target = codec.target_of(to, topic)
    assert not isinstance(target, Refusal)
    assert target.kind is kind
    if name:
        assert target.name == name


@pytest.mark.parametrize(("to", "topic"), [(None, None), ("", "chat"), ("a b", None), ("*", "a b"), ("*", "*")])
def test_a_target_that_is_none_is_refused(to: str | None, topic: str | None) -> None:
    refused = codec.target_of(to, topic)
    assert isinstance(refused, Refusal)
    assert ERROR_CODES[refused.code] is ErrorCode.BAD_REQUEST


@given(st.text(), objects, objects)
def test_whatever_a_send_says_is_delivered_or_refused(body: str, extra: dict[str, Any], meta: dict[str, Any]) -> None:
    if not encodable([body, extra, meta]):
        return
    envelope = Envelope("SEND", id="m", to="bob", topic="chat", payload=extra | {"body": body}, payload_meta=meta)
    found = codec.content_of(envelope, "alice")
    if isinstance(found, Refusal):
        assert ERROR_CODES[found.code] is ErrorCode.BAD_REQUEST
        return
    delivery = codec.deliver(message_with(found), 7, 3, recipient="bob", session_id="s")
    assert delivery.payload == {"kind": "message"} | envelope.payload
    assert (delivery.payload_meta or {}) == meta
    assert delivery.delivery == {"seq": 3, "session_id": "s"}
    assert codec.decode(codec.encode(delivery)[4:]).payload == delivery.payload


@given(values)
@example("")
def test_any_json_body_is_delivered_as_it_came_and_is_text_elsewhere(body: Any) -> None:
    if not encodable(body):
        return
    is_text = isinstance(body, str) and body != ""
    for kind in ("SEND", codec.CHANNEL_MESSAGE):
        found = codec.content_of(
            Envelope(kind, id="m", to="bob", payload={"body": body, "channel": "dm:alice:bob"}), "alice"
        )
        assert isinstance(found, m.Content)
        sent = codec.channel_message(message_with(found), 7) or codec.deliver(
            message_with(found), 7, 3, recipient="bob", session_id="s"
        )
        assert sent.payload["body"] == body
        if not is_text:
            assert json.loads(found.body) == body
        assert (codec.JSON_BODY in found.notes) is not is_text


@pytest.mark.parametrize(("kind", "expected"), [("message", m.Kind.CHAT), ("state", m.Kind.STATUS)])
def test_kinds_survive_and_states_are_statuses_to_the_hub(kind: str, expected: m.Kind) -> None:
    found = content(frame("SEND", {"kind": kind, "body": "x"}, to="bob"))
    assert found.kind is expected
    assert codec.deliver(message_with(found), 1, 1, recipient="bob", session_id="s").payload["kind"] == kind


def test_further_keys_of_a_payload_survive() -> None:
    payload = {"kind": "message", "body": "x", "data": {}, "channel": "#dev", "mentions": ["bob"]}
    found = content(frame("SEND", payload, to="bob"))
    assert codec.deliver(message_with(found), 1, 1, recipient="bob", session_id="s").payload == payload


def test_a_reply_names_the_message_it_answers_by_the_id_of_its_delivery() -> None:
    delivered = codec.delivery_id("0190-abc", 4)
    assert content(said("yes", "bob", payload_meta={"replyTo": delivered})).reply_to == "0190-abc"
    assert content(said("yes", "bob", payload_meta={"replyTo": "something else"})).reply_to is None


def test_what_another_protocol_kept_beside_a_message_is_not_read() -> None:
    foreign = content(said("x", "bob", payload_meta={"importance": 1}))
    delivery = codec.deliver(message_with(foreign, "native"), 1, 1, recipient="bob", session_id="s")
    assert delivery.payload_meta is None


@pytest.mark.parametrize("name", ["_router", "_consensus", "@_router", "__cli__"])
def test_a_name_of_the_relays_own_is_no_target(name: str) -> None:
    refused = codec.target_of(name, None)
    assert isinstance(refused, Refusal)
    assert ERROR_CODES[refused.code] is ErrorCode.FORBIDDEN


@given(st.lists(objects, max_size=6), st.integers(codec.ANSWER_BYTES, codec.ANSWER_BYTES + 2000))
def test_an_answer_has_as_many_entries_as_fit_from_the_first_on(entries: list[dict[str, Any]], room: int) -> None:
    entries = [entry for entry in entries if encodable(entry)]
    fit = codec.fitting(entries, room)
    assert len(codec.encode(Envelope("X", payload={"entries": fit}))) <= room
    # Only what no frame has room for is passed over.
    small = [entry for entry in entries if len(msgspec.json.encode(entry)) < room - codec.ANSWER_BYTES]
    assert fit == small[: len(fit)]


def test_an_id_is_no_longer_than_an_answer_has_room_for() -> None:
    assert read(frame("SEND", id="x" * 1024)).id == "x" * 1024
    with pytest.raises(EnvelopeError, match="1024"):
        read(frame("SEND", id="x" * 1025))


def test_a_channel_message_goes_on_as_one_and_a_send_does_not() -> None:
    found = content(frame("CHANNEL_MESSAGE", {"channel": "dev", "body": "x", "mentions": ["bob"]}))
    envelope = codec.channel_message(message_with(found), 5)
    assert envelope is not None
    assert (envelope.type, envelope.sender) == ("CHANNEL_MESSAGE", "alice")
    assert envelope.payload == {"channel": "#dev", "body": "x", "mentions": ["bob"]}
    assert codec.channel_message(message_with(content(said("x", "#dev"))), 5) is None


@pytest.mark.parametrize(
    ("target", "original_to"),
    [("@bob", None), ("*", "*"), ("#dev", "#dev"), ("#users", "@users"), ("obj:x-1", "obj:x-1")],
)
def test_a_delivery_says_where_its_message_went_unless_it_was_to_the_recipient_alone(
    target: str, original_to: str | None
) -> None:
    parsed = parse_target(target)
    assert isinstance(parsed, Target)
    envelope = codec.deliver(
        message_with(m.Content(target=parsed, body="x")), 5, 1, recipient="bob", session_id="session"
    )
    assert envelope.delivery is not None
    assert envelope.delivery.get("originalTo") == original_to


def test_a_time_to_live_of_another_wire_is_in_the_meta_of_a_delivery() -> None:
    target = parse_target("@bob")
    assert isinstance(target, Target)
    said = message_with(m.Content(target=target, body="x", ttl_ms=5000), "backchannel")
    envelope = codec.deliver(said, 5, 1, recipient="bob", session_id="session")
    assert envelope.payload_meta == {"ttl_ms": 5000}


def test_half_a_pair_is_replaced_and_the_rest_is_read() -> None:
    envelope = codec.decode(rb'{"v":1,"type":"SEND","id":"1","ts":1,"payload":{"body":"a\ud83d b\ud83d\ude00"}}')
    assert envelope.payload["body"] == "a\ufffd b\U0001f600"


def test_an_envelope_nests_as_deep_as_it_may_and_no_deeper() -> None:
    def nested(levels: int) -> bytes:
        inner = b"[" * (levels - 2) + b"]" * (levels - 2)
        return b'{"v":1,"type":"SEND","id":"1","ts":1,"payload":{"x":%b}}' % inner

    assert codec.decode(nested(codec.NESTING_MAX)).payload["x"]
    with pytest.raises(EnvelopeError, match=f"nests at most {codec.NESTING_MAX} levels"):
        codec.decode(nested(codec.NESTING_MAX + 2))


def test_an_envelope_of_very_many_values_is_refused_before_it_is_decoded() -> None:
    many = b"[" + b",".join([b"[]"] * VALUES_MAX) + b"]"
    with pytest.raises(EnvelopeError, match="values") as caught:
        codec.decode(b'{"type":"SEND","payload":{"data":' + many + b"}}")
    assert caught.value.code is ErrorCode.TOO_LARGE
