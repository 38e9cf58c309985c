"""Tests of scopes: all spellings of a repository become one form, and a reader's context contains a scope or not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract.scope import matches, normalize


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("https://github.com/Acme/App", "github.com/acme/app"),
        ("http://github.com/acme/app/", "github.com/acme/app"),
        ("HTTPS://github.com/acme/app.git", "github.com/acme/app"),
        ("git@github.com:acme/app.git", "github.com/acme/app"),
        ("https://git@github.com/acme/app", "github.com/acme/app"),
        ("acme/app///", "acme/app"),
        ("acme/app.git/", "acme/app.git"),  # the suffix is dropped before the slashes
        ("host:8080/app", "host/8080/app"),
        ("ssh://host/app", "ssh///host/app"),
        ("", ""),
        ("/", ""),
    ],
)
def test_the_spellings_of_a_place_come_to_one_form(text: str, form: str) -> None:
    assert normalize(text) == form


def by_the_rule(text: str) -> str:
    """Return the normalized form of a scope, computed step by step as in the specification."""
    text = text.lower()
    text = re.sub(r"\Ahttps?://", "", text)
    text = re.sub(r"\Agit@", "", text)
    text = re.sub(r"\.git\Z", "", text)
    text = re.sub(r"/+\Z", "", text)
    return text.replace(":", "/")


pieces = st.lists(
    st.sampled_from(["https://", "http://", "HTTP://", "git@", ".git", "/", ":", "acme", "App", "."]), max_size=6
)


@given(pieces.map("".join))
def test_every_text_is_normalized_by_the_rule(text: str) -> None:
    assert normalize(text) == by_the_rule(text)


@pytest.mark.parametrize(
    ("scope", "context", "expected"),
    [
        (None, None, True),
        (None, "github.com/acme/app", True),
        ("", "github.com/acme/app", True),
        ("acme/app", None, False),
        ("acme/app", "", False),
        ("acme/app", "https://github.com/Acme/App.git", True),
        ("git@github.com:acme/app.git", "https://github.com/acme/app", True),
        ("https://github.com/acme/app", "acme/app", False),  # the context contains the scope, not the other way round
        ("acme/app", "github.com/acme/other", False),
    ],
)
def test_a_message_is_for_a_reader_whose_context_contains_its_scope(
    scope: str | None, context: str | None, expected: bool
) -> None:
    assert matches(scope, context) is expected
