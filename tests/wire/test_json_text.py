"""Tests of code that finds strings and half surrogate pairs in JSON text without decoding it."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tieline.wire.json_text import HALVES_MAX, VALUES_MAX, has_many_values, masked, mend_pairs, without_strings

# Characters of which every escape is made, and both halves of pairs.
_CHARACTERS = st.sampled_from('a"\\/\n:{}[],\U0001f600\ud83d\ude00')
_STRINGS = st.text(_CHARACTERS)
_VALUES = st.recursive(
    _STRINGS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(_STRINGS, inner)
)


def strings_of(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in value for text in strings_of(item)]
        case tuple():
            return [text for key, item in value for text in (key, *strings_of(item))]
        case _:
            return []


@given(_VALUES)
@example({"\ud83d\ude00": None, "\U0001f600": None})
def test_every_string_is_found_where_it_stands(value: Any) -> None:
    text = json.dumps(value).encode()
    marks = [place for place, byte in enumerate(masked(text)) if byte == ord('"')]
    found = [text[start : end + 1] for start, end in zip(marks[::2], marks[1::2], strict=True)]
    # An object as its pairs: two names may be one in JSON.
    assert [json.loads(string) for string in found] == strings_of(json.loads(text, object_pairs_hook=tuple))


@given(_VALUES)
def test_without_strings_only_the_structure_is_left(value: Any) -> None:
    structure = without_strings(json.dumps(value).encode())
    assert not set(structure) & set(b'"\\')
    assert structure.count(b":") == sum(map(len, objects_of(value)))


def objects_of(value: Any) -> list[dict[str, Any]]:
    match value:
        case list():
            return [found for item in value for found in objects_of(item)]
        case dict():
            return [value, *(found for item in value.values() for found in objects_of(item))]
        case _:
            return []


@given(_STRINGS)
def test_half_a_pair_becomes_the_replacement_character_and_a_whole_one_stays(said: str) -> None:
    text = json.dumps(said).encode()
    mended = mend_pairs(text)
    assert len(mended) == len(text)
    assert json.loads(mended) == said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@given(st.binary())
def test_garbage_stays_as_long_as_it_was(text: bytes) -> None:
    assert len(masked(text)) == len(mend_pairs(text)) == len(text)


@pytest.mark.parametrize(
    ("piece", "copies"), [(rb"\\", 8), (rb"\"", 8), (rb"\n", 8), (rb"\ud83d", 20), (rb"\ud83d\ude00", 8)]
)
def test_a_text_of_nothing_but_escapes_costs_a_few_copies_of_it(piece: bytes, copies: int) -> None:
    text = b'"' + piece * (300_000 // len(piece)) + b'"'
    tracemalloc.start()
    try:
        without_strings(text)
        mend_pairs(text)
        assert tracemalloc.get_traced_memory()[1] < copies * len(text)
    finally:
        tracemalloc.stop()


# Texts that need a piece of any length: a string, an escape or a run of backslashes stands at its end.
_LONG = st.lists(st.sampled_from(["a" * 65_530, *'ab"\\,[{', "\\" * 65_535, '"' * 300]), max_size=6).map("".join)


@given(st.lists(_LONG, max_size=3))
def test_strings_are_found_in_a_long_text_too(value: list[str]) -> None:
    text = json.dumps(value).encode()
    assert without_strings(text) == b"[" + b", " * (len(value) - 1) + b"]"


@pytest.mark.parametrize("value", ["[]", "{}", "1", '""', '"\\""', '{"a":1}'])
def test_a_text_of_very_many_values_is_found_out(value: str) -> None:
    signs = 1 + sum(map(value.count, "[{"))
    most = VALUES_MAX // signs
    for more, is_many in ((-1, False), (2, True)):
        text = f"[{','.join([value] * (most + more))}]"
        assert has_many_values(text.encode()) is is_many


@pytest.mark.parametrize("piece", ["[],{}", '\\"[],', '\\\\[",'])
def test_a_long_string_is_one_value(piece: str) -> None:
    assert not has_many_values(json.dumps({"a": [piece * VALUES_MAX]}).encode())


@pytest.mark.parametrize("filling", [b"1", b" "])
def test_a_very_long_number_or_gap_counts_as_many_values(filling: bytes) -> None:
    assert not has_many_values(b"[" + filling * (10 * VALUES_MAX) + b"1]")
    assert has_many_values(b"[" + filling * (65 * VALUES_MAX) + b"1]")


def test_a_text_with_very_many_halves_of_pairs_stays_as_it_was() -> None:
    text = b'"' + rb"\ud83d" * HALVES_MAX + b'"'
    assert mend_pairs(text) == text.replace(rb"\ud83d", rb"\ufffd")
    assert mend_pairs(text[:-1] + rb'\ude00"') == text[:-1].replace(rb"\ud83d", rb"\ufffd")[:-6] + rb'\ud83d\ude00"'
    text = text[:-1] + rb'\ud83d"'
    assert mend_pairs(text) == text
