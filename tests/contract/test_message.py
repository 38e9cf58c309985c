"""Tests of the limits of a message: a value at a limit is accepted. A larger value is refused with the right code."""

from typing import Any

import pytest

from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.message import Attachment, Content, check_content
from tieline.contract.refusal import Code
from tieline.contract.target import EVERYBODY

LIMITS = Limits(body_bytes_max=16, text_bytes_max=8, refs_max=2, ttl_ms_max=1000)


def code_for(**fields: Any) -> Code | None:
    refusal = check_content(Content(target=EVERYBODY, **{"body": "hi", **fields}), LIMITS)
    return refusal.code if refusal else None


def test_plain_content_is_accepted() -> None:
    assert check_content(Content(target=EVERYBODY, body="hi"), DEFAULT_LIMITS) is None


def test_an_empty_body_is_refused() -> None:
    assert code_for(body="") is Code.INVALID_MESSAGE


@pytest.mark.parametrize(("unit", "width"), [("x", 1), ("é", 2), ("€", 3), ("🙂", 4)])
def test_a_body_is_measured_in_bytes(unit: str, width: int) -> None:
    fitting = unit * (16 // width) + "x" * (16 % width)
    assert code_for(body=fitting) is None
    assert code_for(body=fitting + "x") is Code.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("field", ["title", "topic", "scope", "thread", "reply_to"])
def test_a_label_up_to_its_limit_is_accepted_and_a_longer_one_is_refused(field: str) -> None:
    assert code_for(**{field: "x" * 8}) is None
    assert code_for(**{field: "x" * 9}) is Code.INVALID_MESSAGE
    assert code_for(**{field: "é" * 4}) is None
    assert code_for(**{field: "é" * 4 + "x"}) is Code.INVALID_MESSAGE


def test_references_are_limited_in_number_and_in_length() -> None:
    assert code_for(refs=("x" * 8, "y")) is None
    assert code_for(refs=("a", "b", "c")) is Code.INVALID_MESSAGE
    assert code_for(refs=("x" * 9,)) is Code.INVALID_MESSAGE


def test_attachments_are_limited_in_number_and_in_length() -> None:
    assert code_for(attachments=(Attachment("x" * 8), Attachment("y"))) is None
    assert code_for(attachments=(Attachment("a"), Attachment("b"), Attachment("c"))) is Code.INVALID_MESSAGE
    assert code_for(attachments=(Attachment("x" * 9),)) is Code.INVALID_MESSAGE


@pytest.mark.parametrize(
    ("ttl_ms", "code"),
    [
        (None, None),
        (1, None),
        (1000, None),
        (0, Code.INVALID_MESSAGE),
        (-1, Code.INVALID_MESSAGE),
        (1001, Code.INVALID_MESSAGE),
    ],
)
def test_a_time_to_live_is_positive_and_bounded(ttl_ms: int | None, code: Code | None) -> None:
    assert code_for(ttl_ms=ttl_ms) is code


@pytest.mark.parametrize("field", ["body", "title", "thread"])
def test_text_that_is_no_unicode_is_refused_because_no_wire_could_carry_it(field: str) -> None:
    assert code_for(**{field: "a\ud800"}) is Code.INVALID_MESSAGE


@pytest.mark.parametrize(("depth", "code"), [(256, None), (257, Code.INVALID_MESSAGE)])
def test_data_that_is_nested_too_deep_for_its_readers_is_refused(depth: int, code: Code | None) -> None:
    data: Any = []
    for _ in range(depth - 2):
        data = [data]
    assert code_for(data={"x": data}) is code
