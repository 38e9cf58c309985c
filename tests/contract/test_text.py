"""Tests that text of other members is harmless on a terminal: control characters are shown and have no effect."""

import unicodedata

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
        (
            "pay\u200bpal pay\u200dpal pay\u200cpal\u2060\ufeff",
            "pay\\u200bpal pay\\u200dpal pay\\u200cpal\\u2060\\ufeff",
        ),
        (
            "a\ufe0f 1\ufe0f \u2764\ufe0f\ufe0f \U0001f468\u200d\u200d\U0001f469",
            "a\\ufe0f 1\\ufe0f \u2764\ufe0f\\ufe0f \U0001f468\\u200d\\u200d\U0001f469",
        ),
    ],
)
def test_unsafe_characters_are_shown_and_harmless_ones_kept(text: str, shown: str) -> None:
    assert neutral(text) == shown


def test_every_format_character_between_letters_is_shown() -> None:
    formats = [chr(number) for number in range(0x110000) if unicodedata.category(chr(number)) in ("Cf", "Zl", "Zp")]
    assert len(formats) > 150
    for one in formats:
        assert neutral(f"a{one}b") == f"a{ascii(one)[1:-1]}b"


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f469\u200d\U0001f469\u200d\U0001f466",  # a family
        "\U0001f3f3\ufe0f\u200d\U0001f308",  # a flag of two emoji
        "\U0001f9d1\U0001f3fd\u200d\u2695\ufe0f",  # with a colour of skin
        "1\ufe0f\u20e3 \u00a9\ufe0f \u2764\ufe0f",  # a key, a sign, a heart
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
        "\u0915\u094d\u200d\u0937",  # Devanagari
    ],
)
def test_joined_emoji_and_scripts_that_are_spelt_with_joiners_stay_legible(text: str) -> None:
    assert neutral(text) == text


_crumbs = st.sampled_from("ab1 \n\u200b\u200c\u200d\ufe0e\ufe0f\u20e3\u2764\u0645\u0915\u202e\xa9#\U0001f469")


@given(st.lists(_crumbs).map("".join))
def test_however_characters_are_mixed_the_result_is_safe_and_final(text: str) -> None:
    shown = neutral(text)
    assert not UNSAFE.search(shown)
    assert neutral(shown) == shown
