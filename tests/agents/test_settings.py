"""Tests that settings in JSON are changed in place: all text that the user wrote stays unchanged."""

import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.agents.settings import BadSettings, add_child, child, parse, remove_child

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(string.ascii_letters, max_size=4), inner),
    max_leaves=12,
)


@given(value=plain, indent=st.sampled_from([None, 2, 4, "\t"]))
def test_what_json_takes_is_taken(value: Any, indent: int | str | None) -> None:
    assert parse(json.dumps(value, indent=indent)).value == value


def test_comments_trailing_commas_and_a_byte_order_mark_are_taken() -> None:
    text = '\ufeff// mine\n{"a": [1, 2,], /* why */ "b": {"c": "//no", },\n}\n// end\n'
    assert parse(text).value == {"a": [1, 2], "b": {"c": "//no"}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"',
        '{"a":',
        '{"a": 1',
        '{"a": 1 "b": 2}',
        "{} {}",
        "[1 2]",
        "{'a': 1}",
        "nope",
        "01",
        "/* open",
        "[" * 99,
    ],
)
def test_what_is_no_settings_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(BadSettings, match=r"^line 1: "):
        parse(text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "x": {\n    "y": []\n  }\n}\n'),
        ('{\n    "a": 1, // note\n}\n', '{\n    "a": 1, // note\n    "x": {\n        "y": []\n    }\n}\n'),
        ('{\n\t"a": 1 // note\n}', '{\n\t"a": 1, // note\n\t"x": {\n\t\t"y": []\n\t}\n}'),
        ('{"a": 1}', '{"a": 1, "x": {"y": []}}'),
        ('{"a": 1,}', '{"a": 1, "x": {"y": []}}'),
        ("{}", '{\n  "x": {\n    "y": []\n  }\n}'),
        ("{\n  // nothing yet\n}\n", '{\n  // nothing yet\n  "x": {\n    "y": []\n  }\n}\n'),
        ('{\r\n  "a": 1\r\n}\r\n', '{\r\n  "a": 1,\r\n  "x": {\r\n    "y": []\r\n  }\r\n}\r\n'),
    ],
)
def test_a_child_comes_last_and_the_rest_stays(before: str, after: str) -> None:
    assert add_child(before, parse(before), {"y": []}, "x") == after


@given(
    value=st.dictionaries(st.text(string.ascii_letters, min_size=1, max_size=4), plain, max_size=3),
    indent=st.sampled_from([None, 2, 4]),
)
def test_what_is_added_can_be_read_and_removed_again(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    added = add_child(text, parse(text), ["x"], "new key")
    assert parse(added).value == {**value, "new key": ["x"]}
    node = parse(added)
    assert parse(remove_child(added, node, len(node.children) - 1)).value == value


@given(value=st.lists(plain, min_size=1, max_size=4), indent=st.sampled_from([None, 2]), data=st.data())
def test_any_child_can_be_removed(value: list[Any], indent: int | None, data: st.DataObject) -> None:
    text = json.dumps(value, indent=indent)
    index = data.draw(st.integers(0, len(value) - 1))
    assert parse(remove_child(text, parse(text), index)).value == value[:index] + value[index + 1 :]


def test_the_last_of_two_equal_keys_counts() -> None:
    node = parse('{"a": 1, "a": 2}')
    found = child(node, "a")
    assert found is not None
    assert (found.value, child(node, "b")) == (2, None)
