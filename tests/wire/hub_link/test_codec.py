"""Tests of the Hub port as bytes: every value and every item is equal after encoding and decoding."""

import functools
import subprocess
import sys
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct
from msgspec.structs import fields

from tests.core.doubles import content
from tieline.contract import command as c
from tieline.contract.identifiers import SessionId
from tieline.contract.reply import Done
from tieline.wire.hub_link import codec

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


@pytest.mark.parametrize("kind", codec.KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_every_value_of_the_port_comes_back_as_it_went(kind: type[Struct], data: st.DataObject) -> None:
    value = data.draw(values(kind))
    _, (submit,) = codec.decode_to_hub(codec.encode(0, [codec.Submit(1, [codec.pack(value)])]))
    assert isinstance(submit, codec.Submit)
    back = codec.unpack(submit.commands[0], frozenset((kind,)))
    assert type(back) is kind
    assert back == value


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**64), 10**100])
def test_data_may_hold_integers_that_messagepack_does_not_know(number: int) -> None:
    command = c.Send(SessionId("s"), content=content("@bob", data={"number": number}))
    assert codec.unpack(codec.pack(command), codec.COMMANDS_OR_REFUSAL) == command


def test_items_keep_their_order() -> None:
    up: list[codec.ToHub] = [codec.Submit(1, [codec.pack(c.Tick())]), codec.Forget(SessionId("s")), codec.Stop(7)]
    assert codec.decode_to_hub(codec.encode(7, up)) == (7, up)
    down: list[codec.ToWorker] = [
        codec.Replies(1, [codec.pack(Done())], more=True),
        codec.Released(SessionId("s"), [1]),
    ]
    assert codec.decode_to_worker(codec.encode(7, down)) == (7, down)


@pytest.mark.parametrize(
    "items", [b"", b"\x80", b"\x91\x01", b"\x91\x92\x63\x01", b"\x91\x91\x01", b"\x91\x92\x03\x01", b"\xc1"]
)
def test_bytes_that_are_no_items_are_refused(items: bytes) -> None:
    for decode in (codec.decode_to_hub, codec.decode_to_worker):
        with pytest.raises(codec.BadFrame):
            decode(b"\x92\x00" + items)
        with pytest.raises(codec.BadFrame):
            decode(items)


def test_items_that_are_cut_off_are_refused() -> None:
    items: list[codec.ToHub] = [codec.Submit(1, [codec.pack(c.Tick())]), codec.Forget(SessionId("s"))]
    whole = codec.encode(7, items)
    for end in range(len(whole)):
        with pytest.raises(codec.BadFrame):
            codec.decode_to_hub(whole[:end])


@pytest.mark.parametrize("number", [len(codec.KINDS), ~len(codec.KINDS), 10**6])
def test_a_value_of_an_unknown_type_is_refused(number: int) -> None:
    _, fields = codec.pack(Done())
    with pytest.raises(codec.BadFrame):
        codec.unpack((number, fields), codec.REPLIES)


def test_a_value_that_has_no_place_there_is_refused() -> None:
    with pytest.raises(codec.BadFrame, match="a Done has no place here"):
        codec.unpack(codec.pack(Done()), codec.COMMANDS_OR_REFUSAL)
    number, _ = codec.pack(Done())
    with pytest.raises(codec.BadFrame):
        codec.unpack((number, Raw(b"\x01")), codec.REPLIES)


def test_another_program_computes_the_same_version_of_the_contract() -> None:
    code = "from tieline.wire.hub_link.codec import contract_version; print(contract_version())"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == codec.contract_version()
