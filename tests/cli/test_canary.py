"""Tests of the rule that recognizes test messages."""

import pytest

from tieline.cli.canary import CONNECT_ANSWER, CONNECT_TEXT, DOCTOR_TEXT, is_canary
from tieline.client import Message

BIRD = "connect-canary-4711-0123abcd"


def message(sender: str, target: str, body: str, title: str | None = None) -> Message:
    return Message("1", 1, sender, target, body, 0, "tieline", title=title)


@pytest.mark.parametrize(
    ("sender", "target", "body"),
    [
        (BIRD, "@claude", CONNECT_TEXT),
        ("claude", f"@{BIRD}", CONNECT_ANSWER),
        ("doctor-0123abcd", "@claude", DOCTOR_TEXT),
    ],
)
def test_a_test_message_and_its_answer_are_recognized(sender: str, target: str, body: str) -> None:
    assert is_canary(message(sender, target, body))
    assert not is_canary(message(sender, target, f"{body} Or is there?")), "a name alone hides nothing"
    assert not is_canary(message(sender, target, body, title="Or is there?"))
    assert not is_canary(message("alice", "@claude", body)), "a text alone hides nothing"
