"""Tests of the Hub port as bytes: every command, reply and event is equal after encoding and decoding."""

import functools
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from tieline.contract import command as c
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done
from tieline.wire.hub_codec import KINDS, BadPayload, Value, decode, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN = {str: TEXT, int: st.integers(-(2**63), 2**63 - 1), bool: st.booleans(), bytes: st.binary(max_size=5)}
ANY = st.none() | st.booleans() | TEXT | st.integers() | st.lists(st.integers(), max_size=2)


@functools.cache
def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a hypothesis strategy that generates values of a type of the contract."""
    parts, origin = get_args(kind), get_origin(kind)
    if origin in (Union, UnionType):
        return st.one_of([values(part) for part in parts])
    if origin is Annotated:
        return values(parts[0])
    if origin is tuple and Ellipsis in parts:
        return st.lists(values(parts[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, parts))
    if origin is dict:
        return st.dictionaries(TEXT, values(parts[1]), max_size=2)
    if kind is Any:
        return ANY
    if kind is NoneType:
        return st.none()
    if isinstance(kind, NewType):
        return values(kind.__supertype__)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    if issubclass(kind, Struct):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, **{info.name: values(hints[info.name]) for info in fields(kind)})
    return PLAIN[kind]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_every_value_of_the_port_comes_back_as_it_went(kind: type[Struct], data: st.DataObject) -> None:
    value = data.draw(values(kind))
    (back,) = decode(encode([value]))
    assert type(back) is kind
    assert back == value


def test_values_keep_their_order_and_may_be_of_any_kind() -> None:
    told: list[Value] = [c.Tick(), Done(), Refusal(Code.FORBIDDEN, "no", ("bob",)), c.Tick()]
    assert decode(encode(told)) == told


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b"[1]", b'[["Dance",{}]]', b'[["Claim",{}]]', b'[["Claim",{"session":1,"message_id":"m"}]]', b"\xff"],
)
def test_what_is_no_value_of_the_port_is_called_so(payload: bytes) -> None:
    with pytest.raises(BadPayload):
        decode(payload)
