"""Tests of the codec: it accepts exactly the specified format, in any chunks, and raises only its own exceptions."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.protocols.agent_channels.codec import (
    MESSAGE_BYTES_MAX,
    NESTING_MAX,
    DecodeError,
    FrameDecoder,
    InvalidMessage,
    Message,
    decode,
    encode,
    is_valid_message,
)
from tieline.wire.frames import encode_frame

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
messages = st.builds(
    Message,
    st.text(min_size=1),
    st.none() | objects,
    objects.map(lambda extra: {key: value for key, value in extra.items() if key not in ("msg", "data")}),
)
cuts = st.lists(st.integers(min_value=0), max_size=30)


def split(stream: bytes, places: list[int]) -> list[bytes]:
    """Return a stream cut at the given places."""
    ends = sorted({place % (len(stream) + 1) for place in places} | {len(stream)})
    return [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def outcome(chunks: list[bytes], max_size: int = MESSAGE_BYTES_MAX) -> tuple[list[Message], str | None]:
    """Decode chunks. Return the messages, and the error that ended the stream, if any."""
    decoder = FrameDecoder(max_size)
    received: list[Message] = []
    for chunk in chunks:
        try:
            received.extend(decoder.push(chunk))
        except DecodeError as error:
            return [*received, *error.messages], str(error)
    return received, None


def in_every_chunking(stream: bytes, max_size: int = MESSAGE_BYTES_MAX) -> tuple[list[Message], str | None]:
    """Decode a stream whole and byte by byte, check that both results are equal, and return the result."""
    whole = outcome([stream], max_size)
    assert whole == outcome([stream[place : place + 1] for place in range(len(stream))], max_size)
    return whole


def frame(text: str | bytes) -> bytes:
    """Return a frame with a text as its payload. The text need not be a valid message."""
    return encode_frame(text if isinstance(text, bytes) else text.encode())


GOOD = frame('{"msg":"good"}')

VALID: dict[str, tuple[str, Message]] = {
    "msg alone": ('{"msg":"hello"}', Message("hello")),
    "msg and data": ('{"msg":"hi","data":{"x":1}}', Message("hi", {"x": 1})),
    "empty data": ('{"msg":"hi","data":{}}', Message("hi", {})),
    "other keys": ('{"v":2,"msg":"hi","tags":["a"]}', Message("hi", None, {"v": 2, "tags": ["a"]})),
    "white space": (' { "msg" :\n"hi" } ', Message("hi")),
    "colons and quotes in strings": (r'{"msg":"a:b\":\\","data":{"k:\"":":"}}', Message('a:b":\\', {'k:"': ":"})),
    "the same name on two levels": (
        '{"msg":"m","data":{"msg":1,"data":{"msg":2}}}',
        Message("m", {"msg": 1, "data": {"msg": 2}}),
    ),
    "text beyond ASCII": ('{"msg":"日本 😀 \\ud83d\\ude00"}', Message("日本 😀 😀")),
    "a number beyond 64 bits": (
        '{"msg":"m","data":{"n":123456789012345678901234567890}}',
        Message("m", {"n": 123456789012345678901234567890}),
    ),
}

NOT_JSON: dict[str, bytes] = {
    "plain text": b"hello",
    "half an object": b'{"msg":"hello"',
    "text after the object": b'{"msg":"hello"}x',
    "two objects": b'{"msg":"a"}{"msg":"b"}',
    "NaN": b'{"msg":"m","data":{"n":NaN}}',
    "Infinity": b'{"msg":"m","data":{"n":-Infinity}}',
    "a number no float can hold": b'{"msg":"m","data":{"n":1e400}}',
    "bytes that are not UTF-8": b'{"msg":"\xff\xfe"}',
    "a byte order mark": b'\xef\xbb\xbf{"msg":"m"}',
    "a control character in a string": b'{"msg":"a\x01b"}',
    "a name given twice": b'{"msg":"a","msg":"b"}',
    "a name given twice inside data": b'{"msg":"a","data":{"list":[{"x":1,"x":1}]}}',
    "a name given twice beside a colon in a string": b'{"msg":"a:","msg":"b"}',
    "nested too deep": b'{"msg":"m","data":{"x":' + b"[" * NESTING_MAX + b"]" * NESTING_MAX + b"}}",
    "nested deeper than any stack": b"[" * 200_000,
    "objects nested deeper than any stack": b'{"a":' * 200_000,
    "white space only": b"  ",
}

NOT_A_MESSAGE: dict[str, str] = {
    "an array": "[1,2]",
    "a string": '"hello"',
    "null": "null",
    "an object without msg": '{"data":{}}',
    "an empty msg": '{"msg":""}',
    "a msg that is a number": '{"msg":1}',
    "a msg that is null": '{"msg":null}',
    "data that is an array": '{"msg":"hi","data":[1]}',
    "data that is an empty array": '{"msg":"hi","data":[]}',
    "data that is null": '{"msg":"hi","data":null}',
    "data that is a string": '{"msg":"hi","data":"x"}',
}


# Messages


def test_msg_must_be_a_non_empty_string_and_data_if_present_an_object() -> None:
    assert is_valid_message({"msg": "hello"})
    assert is_valid_message({"msg": "hi", "data": {"x": 1}})
    assert is_valid_message({"msg": "hi", "other": [1]})
    assert is_valid_message(Message("hi"))
    assert not is_valid_message({"msg": ""})
    assert not is_valid_message({"msg": "hi", "data": [1]})
    assert not is_valid_message({"msg": "hi", "data": None})
    for value in (None, "hi", ["msg"], 1, {}, {"msg": b"hi"}):
        assert not is_valid_message(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Message(""),
        lambda: Message(1),  # type: ignore[arg-type]
        lambda: Message("m", []),  # type: ignore[arg-type]
        lambda: Message("m", None, {"msg": "other"}),
        lambda: Message("m", None, {"data": {}}),
    ],
)
def test_a_message_that_breaks_the_rules_cannot_be_made(make: Callable[[], Message]) -> None:
    with pytest.raises(InvalidMessage, match="Invalid message format: "):
        make()


def test_the_error_of_a_message_that_is_not_even_json_says_what_it_is() -> None:
    with pytest.raises(InvalidMessage, match="Invalid message format: a dict that is not JSON"):
        Message("", {"when": object()})


# Encoding


def test_a_frame_is_a_big_endian_length_and_utf8_json() -> None:
    encoded = encode({"msg": "héllo"})
    assert encoded == len('{"msg":"héllo"}'.encode()).to_bytes(4, "big") + '{"msg":"héllo"}'.encode()


def test_a_mapping_and_a_message_encode_alike() -> None:
    assert encode({"msg": "a", "data": {"b": 1}, "c": 2}) == encode(Message("a", {"b": 1}, {"c": 2}))


@pytest.mark.parametrize(
    "value",
    [
        {"msg": ""},
        {"msg": "m", "data": []},
        {"msg": "m", "data": None},
        {"msg": "m", "data": {"x": object()}},
        {"msg": "half a pair \ud83d"},
        {"msg": "m", "data": {"x": 1j}},
    ],
)
def test_what_no_receiver_would_accept_is_not_encoded(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        encode(value)


def test_a_value_nested_in_itself_is_not_encoded() -> None:
    data: dict[str, Any] = {}
    data["itself"] = data
    with pytest.raises(InvalidMessage):
        encode({"msg": "m", "data": data})


def test_a_message_larger_than_the_given_size_is_not_encoded() -> None:
    assert encode({"msg": "x" * 90}, max_size=100)
    with pytest.raises(InvalidMessage, match=r"^Message size 101 exceeds maximum 100$"):
        encode({"msg": "x" * 91}, max_size=100)


# Decoding


@pytest.mark.parametrize("case", VALID)
def test_a_valid_message_is_decoded_whole_byte_by_byte_and_with_more_behind_it(case: str) -> None:
    text, message = VALID[case]
    assert in_every_chunking(frame(text)) == ([message], None)
    assert in_every_chunking(frame(text) + GOOD) == ([message, Message("good")], None)
    assert in_every_chunking(frame(text) + GOOD[:5]) == ([message], None)


@pytest.mark.parametrize("case", NOT_JSON)
def test_a_payload_that_is_not_json_is_an_error_with_its_first_100_characters(case: str) -> None:
    payload = NOT_JSON[case]
    text = f"Invalid JSON in message frame: {payload.decode(errors='replace')[:100]}"
    # The longest are checked whole only, for time.
    check = in_every_chunking if len(payload) < 1000 else lambda stream: outcome([stream])
    assert check(frame(payload)) == ([], text)
    assert check(frame(payload) + GOOD) == ([], text)
    assert check(GOOD + frame(payload)) == ([Message("good")], text)


@pytest.mark.parametrize("case", NOT_A_MESSAGE)
def test_json_that_is_not_a_message_is_an_error_with_the_first_200_characters_of_it(case: str) -> None:
    text = f"Invalid message format: {NOT_A_MESSAGE[case]}"
    assert in_every_chunking(frame(NOT_A_MESSAGE[case])) == ([], text)
    assert in_every_chunking(GOOD + frame(NOT_A_MESSAGE[case]) + GOOD) == ([Message("good")], text)


def test_error_texts_are_cut() -> None:
    assert outcome([frame("é" * 300)])[1] == f"Invalid JSON in message frame: {'é' * 100}"
    value = json.dumps(["é" * 300], ensure_ascii=False)
    assert outcome([frame(value)])[1] == f"Invalid message format: {value[:200]}"


def test_length_0_is_an_error() -> None:
    assert in_every_chunking(bytes(4)) == ([], "Invalid JSON in message frame: ")
    assert in_every_chunking(GOOD + bytes(4) + GOOD) == ([Message("good")], "Invalid JSON in message frame: ")


def test_a_message_of_exactly_the_maximum_is_accepted_and_one_byte_more_is_not() -> None:
    payload = b'{"msg":"%s"}' % (b"x" * 90)
    assert in_every_chunking(frame(payload), 100) == ([Message("x" * 90)], None)
    assert in_every_chunking(frame(payload), 99) == ([], "Message size 100 exceeds maximum 99")


def test_the_default_maximum_is_16_mebibytes() -> None:
    size = 16 * 1024 * 1024
    assert outcome([frame(b'{"msg":"%s"}' % (b"x" * (size - 10)))]) == ([Message("x" * (size - 10))], None)
    assert outcome([(size + 1).to_bytes(4, "big")]) == ([], "Message size 16777217 exceeds maximum 16777216")


def test_an_oversized_message_is_refused_before_its_payload_comes() -> None:
    with pytest.raises(DecodeError, match="Message size 101 exceeds maximum 100"):
        FrameDecoder(100).push(b"\x00\x00\x00\x65")


def test_messages_before_a_bad_frame_in_the_same_chunk_are_delivered_with_the_error() -> None:
    with pytest.raises(DecodeError) as caught:
        FrameDecoder().push(frame('{"msg":"one"}') + frame('{"msg":"two"}') + frame("[]") + frame('{"msg":"lost"}'))
    assert caught.value.messages == (Message("one"), Message("two"))


def test_after_an_error_every_push_raises_until_reset() -> None:
    decoder = FrameDecoder()
    for _ in range(2):
        with pytest.raises(DecodeError, match=re.escape("Invalid message format: []")) as caught:
            decoder.push(frame("[]") + GOOD)
        assert caught.value.messages == ()
    decoder.reset()
    assert decoder.push(GOOD) == [Message("good")]


def test_reset_forgets_half_a_frame() -> None:
    decoder = FrameDecoder()
    assert decoder.push(GOOD[:-1]) == []
    decoder.reset()
    assert decoder.push(GOOD) == [Message("good")]


@pytest.mark.parametrize(
    ("text", "msg"),
    [
        (r'{"msg":"cut \ud83d"}', "cut \ufffd"),
        (r'{"msg":"\udE00 cut"}', "\ufffd cut"),
        (r'{"msg":"\ud83d\ud83d\ude00\ud83d"}', "\ufffd😀\ufffd"),
        (r'{"msg":"\\ud83d \ud83d"}', "\\ud83d \ufffd"),
        (r'{"msg":"\ud83d\u0041\n"}', "\ufffdA\n"),
    ],
)
def test_half_a_surrogate_pair_becomes_the_replacement_character(text: str, msg: str) -> None:
    assert in_every_chunking(frame(text)) == ([Message(msg)], None)
    assert outcome([encode(Message(msg))]) == ([Message(msg)], None)


def test_nesting_up_to_the_maximum_can_be_decoded_and_encoded_again() -> None:
    depth = NESTING_MAX - 2
    payload = b'{"msg":"m","data":{"x":' + b"[" * depth + b"]" * depth + b"}}"
    assert encode(decode(payload)) == encode_frame(payload)


# Properties


@given(st.lists(messages, max_size=6), cuts)
def test_any_chunking_of_any_frames_gives_the_same_messages(sent: list[Message], places: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    assert outcome(split(stream, places)) == (sent, None)


@given(messages)
def test_a_message_reads_the_same_to_another_json_parser(message: Message) -> None:
    assert json.loads(encode(message)[4:]) == message.to_dict()


@given(objects)
def test_what_another_json_writer_writes_is_read_whether_spaced_or_escaped(data: dict[str, Any]) -> None:
    value = {"msg": "m", "data": data}
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert outcome([frame(text)]) == ([Message("m", data)], None)


@given(st.binary(max_size=64) | st.text(alphabet='{}[]":,\\u0dD8eE1-.msgdat \n', max_size=64).map(str.encode))
def test_a_garbage_payload_raises_nothing_but_a_decode_error(garbage: bytes) -> None:
    try:
        message = decode(garbage)
    except DecodeError:
        return
    assert is_valid_message(message)


@given(st.binary(max_size=200), cuts)
def test_a_garbage_stream_ends_alike_in_any_chunking(garbage: bytes, places: list[int]) -> None:
    assert outcome([garbage]) == outcome(split(garbage, places))
