"""JSON as text: strings and half surrogate pairs, found without decoding."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tieline.wire.json_text import masked, mend_pairs, without_strings

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


@pytest.mark.parametrize("piece", [rb"\\", rb"\"", rb"\n", rb"\ud83d", rb"\ud83d\ude00"])
def test_a_text_of_nothing_but_escapes_costs_a_few_copies_of_it(piece: bytes) -> None:
    text = b'"' + piece * (300_000 // len(piece)) + b'"'
    tracemalloc.start()
    try:
        without_strings(text)
        mend_pairs(text)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(text)
    finally:
        tracemalloc.stop()
