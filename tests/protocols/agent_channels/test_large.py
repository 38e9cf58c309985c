"""Tests that large payloads, which are checked in several steps, follow the same rules as small ones."""

import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.protocols.agent_channels.codec import DecodeError, Message, decode, encode
from tieline.protocols.agent_channels.large import (
    LARGE_BYTES,
    NAMES_MAX,
    PIECE_BYTES,
    VALUES_MAX,
    LargeCheck,
    LargeMessage,
    is_large,
)
from tieline.wire.frames import HEADER_BYTES

leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.text('a,:"\\[]{}é\n', max_size=4)
names = st.text('ab,"[{:', max_size=2)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=15
)
scraps = st.sampled_from([b",", b"]", b"}", b"[", b"{", b'"', b"a", b"\\", b"\xff", b'"a":1,', rb'"\ud83d",', b" "])


def check(payload: bytes, piece_bytes: int) -> LargeMessage:
    """Check a payload to its end, `piece_bytes` in each step. Return the message."""
    steps = LargeCheck(payload, piece_bytes=piece_bytes)
    while True:
        message = steps.step()
        if message is not None:
            return message


def outcome(payload: bytes, piece_bytes: int | None) -> Message | str:
    """Return the message in a payload, or the beginning of the error text.

    Without `piece_bytes`, decode it in one step.
    """
    try:
        return decode(payload) if piece_bytes is None else check(payload, piece_bytes).message()
    except DecodeError as error:
        return str(error)[:20]


@given(values, values, st.integers(1, 12), st.sampled_from([None, 1]), st.data())
def test_a_payload_in_pieces_is_accepted_or_refused_as_a_whole_one(
    value: Any, other: Any, piece_bytes: int, indent: int | None, data: st.DataObject
) -> None:
    payload = json.dumps({"msg": "m", "data": {"x": value}, "e": other}, indent=indent).encode()
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(payload)))
        end = data.draw(st.integers(place, min(len(payload), place + 12)))
        payload = payload[:place] + data.draw(st.sampled_from([b"", 2 * payload[place:end]]) | scraps) + payload[end:]
    assert outcome(payload, piece_bytes) == outcome(payload, None)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"msg":"m","data":{"a":1,"b":2,"a":3}}',
        b'{"msg":"m","data":{"a":[1,2,3],"b":2,"a":3}}',
        b'{"msg":"m","data":{"o":{"a":1,"x":{"y":[1,2]},"a":3}}}',
        b'{"msg":"m","e":[1,2,3],"msg":"n"}',
        b'{"msg":"m","data":{"o":[1,2,3],"a":1,"a":2,"b":3}}',
        b'{"msg":"m","e":[1,2,]}',
        b'{"msg":"m","e":[,1]}',
        b'{"msg":"m","e":[1,,2]}',
        b'{"msg":"m","e":[1,2]],"f":[1]}',
        b'{"msg":"m","e":[1,2}',
        b'{"msg":"m"},{"msg":"n"}',
        b'"m",{"msg":"n"}',
        b'{"msg":"m","e":1e999,"f":2}',
        b'{"msg":"m","data":null,"f":2}',
        b'{"msg":"","data":{},"f":2}',
        b'["msg","m"]',
        b'{"msg":"m","e":' + b"[" * 257 + b"]" * 257 + b',"f":1}',
        b"",
    ],
)
def test_bad_payloads_are_refused_wherever_they_are_cut(payload: bytes) -> None:
    for piece_bytes in range(1, 20):
        assert outcome(payload, piece_bytes) == outcome(payload, None)
        assert isinstance(outcome(payload, piece_bytes), str)


def test_half_a_surrogate_pair_is_mended_in_what_is_forwarded() -> None:
    payload = rb'{"msg":"m","data":{"a":"\ud83d","b":"\ud83d\ude00"},"e":1}'
    large = check(payload, 4)
    assert large.payload == payload.replace(rb'"\ud83d",', rb'"\ufffd",')
    assert (large.msg, large.data, large.extra) == ("m", large.payload[18:-7], ("e",))


def test_only_many_values_make_a_payload_large() -> None:
    many = encode({"msg": "m", "data": {"n": [0] * (VALUES_MAX + 2)}})[HEADER_BYTES:]
    assert not is_large(many)
    assert is_large(many + b" " * LARGE_BYTES)
    assert not is_large(b'{"msg":"' + b"x" * 2 * LARGE_BYTES + b'"}')


@pytest.mark.slow
@pytest.mark.parametrize("piece", [b'{"a":1,"b":"x"}', b"[[[[1]]]]", b'"a, b"', b"1"])
def test_many_values_are_checked_in_many_steps(piece: bytes) -> None:
    payload = b'{"msg":"m","data":{"o":[' + b",".join([piece] * (1_000_000 // len(piece))) + b"]}}"
    assert is_large(payload)
    check, steps, message = LargeCheck(payload), 0, None
    while message is None:
        message, steps = check.step(), steps + 1
    # No step checks much more than a piece.
    assert steps > len(payload) // (2 * PIECE_BYTES)
    assert message.payload == payload


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "tail"), [(b'{"msg":"m",', b"}"), (b'{"msg":"m","data":{', b"}}")], ids=["top", "data"]
)
def test_an_object_has_a_largest_number_of_names(head: bytes, tail: bytes) -> None:
    """The check remembers the names of an open object: a million of them would hold up every client at its end."""
    members = [b'"k%d":1' % number for number in range(NAMES_MAX + PIECE_BYTES)]
    most = check(head + b",".join(members[: NAMES_MAX - 2]) + tail, PIECE_BYTES)
    assert most.msg == "m"
    with pytest.raises(DecodeError, match=f"more than {NAMES_MAX} names"):
        check(head + b",".join(members) + tail, PIECE_BYTES)


def test_a_long_string_is_checked_in_several_steps() -> None:
    payload = b'{"msg":"' + rb"\u00e9" * 100_000 + b'","e":[' + b"1," * VALUES_MAX + b"1]}"
    check, steps = LargeCheck(payload), 0
    while check.step() is None:
        steps += 1
    # A piece that is a string is looked at twice as far in each step.
    assert steps > (len(payload) // PIECE_BYTES).bit_length()


def test_a_check_that_is_dropped_is_freed_without_the_garbage_collector() -> None:
    check = LargeCheck(b'{"msg":"m","e":[' + b"1," * VALUES_MAX + b"1]}")
    steps = weakref.ref(check._steps)
    assert check.step() is None
    gc.disable()
    try:
        del check
        assert steps() is None
    finally:
        gc.enable()
