"""Tests of targets: they are parsed from text as people write it, and written back as the same text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import EVERYBODY, Target, TargetKind, parse_target


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("@ada", TargetKind.MEMBER, "ada"),
        ("#dev", TargetKind.CHANNEL, "dev"),
        ("#general", TargetKind.CHANNEL, "general"),
        ("*", TargetKind.EVERYBODY, ""),
        ("obj:o-1", TargetKind.OBJECTIVE, "o-1"),
    ],
)
def test_a_target_is_read_as_it_is_written_and_written_as_it_was_read(text: str, kind: TargetKind, name: str) -> None:
    target = parse_target(text)
    assert target == Target(kind, name)
    assert str(target) == text


@pytest.mark.parametrize(
    "text", ["", "ada", "**", "* ", "obj:", "obj:_x", "obj:a b", "obj:x\n", "OBJ:x", "&x", "obj:" + "x" * 129]
)
def test_what_is_no_target_is_refused_as_such(text: str) -> None:
    refusal = parse_target(text)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_TARGET


@pytest.mark.parametrize("text", ["@", "@a b", "@*", "#", "#a/b", "##dev", "@@ada", "#inbox-ada"])
def test_a_target_with_a_bad_name_is_refused_for_its_name(text: str) -> None:
    refusal = parse_target(text)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.INVALID_NAME


def test_a_reserved_name_is_no_target() -> None:
    refusal = parse_target("@all")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.RESERVED_NAME


def test_everybody_is_one_value() -> None:
    assert parse_target("*") == EVERYBODY


@given(st.text(max_size=200))
def test_any_text_gives_a_target_that_writes_itself_back_or_a_refusal(text: str) -> None:
    target = parse_target(text)
    assert isinstance(target, Refusal) or str(target) == text
