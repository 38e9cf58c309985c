"""Text of others: a terminal prints it and does not obey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract.text import UNSAFE, neutral


@given(st.text())
def test_no_text_makes_a_terminal_do_anything(text: str) -> None:
    assert not UNSAFE.search(neutral(text))


@given(st.text())
def test_what_is_harmless_stays_so(text: str) -> None:
    assert neutral(neutral(text)) == neutral(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\r\n\tc\rd é 🙂", "a\\x1b[31mb\n\tc\\rd é 🙂"),
        ("\u202e\U000e0041", "\\u202e\\U000e0041"),
        ("\x9b5A\x07\x7f\ud800", "\\x9b5A\\x07\\x7f\\ud800"),
    ],
)
def test_unsafe_characters_are_shown_and_harmless_ones_kept(text: str, shown: str) -> None:
    assert neutral(text) == shown
