"""Tests of labels in free-form data, and of message fields that a protocol cannot carry."""

from typing import Any

import pytest

from tieline.contract.identifiers import MessageId
from tieline.contract.message import Attachment, Content, Kind, Level, Message, Priority
from tieline.contract.target import Target, TargetKind, parse_target
from tieline.wire.fidelity import Field, beyond, labels, own_note


def message(target: str = "@bob", *, verified: bool = True, **fields: Any) -> Message:
    checked = parse_target(target)
    assert isinstance(checked, Target)
    content = Content(target=checked, body="hello", **fields)
    return Message(
        id=MessageId("m"), offset=0, sender="ada", protocol="x", sent_at_ms=1, content=content, verified=verified
    )


def test_a_plain_message_has_nothing_beyond() -> None:
    assert beyond(message(), ()) == {}


def test_what_a_wire_does_not_carry_is_named_as_the_hub_names_it() -> None:
    said = message(
        title="t",
        level=Level.ERROR,
        priority=Priority.URGENT,
        kind=Kind.STATUS,
        topic="x",
        scope="s",
        thread="th",
        reply_to=MessageId("r"),
        refs=("a",),
        attachments=(Attachment("/f"),),
        ttl_ms=5,
        data={"n": 1},
        notes=("lost something",),
        verified=False,
    )
    assert beyond(said, (Field.DATA, Field.TITLE)) == {
        "verified": False,
        "level": "error",
        "priority": "urgent",
        "kind": "status",
        "topic": "x",
        "scope": "s",
        "thread": "th",
        "reply_to": "r",
        "refs": ("a",),
        "attachments": [{"path": "/f"}],
        "ttl_ms": 5,
        "notes": ("lost something",),
    }


def test_what_is_said_in_an_objectives_thread_tells_by_its_data_what_it_is() -> None:
    said = message("obj:o-1", kind=Kind.EVENT)
    assert said.content.target.kind is TargetKind.OBJECTIVE
    assert beyond(said, ()) == {}


def test_labels_are_read_from_data() -> None:
    data = {"title": "t", "level": "error", "priority": "urgent", "scope": "s", "thread": "x", "reply_to": "r"}
    assert labels({**data, "refs": ["a", "b"], "n": 1}) == {**data, "refs": ("a", "b")}
    assert labels(None) == labels({}) == labels({"n": 1}) == {}


@pytest.mark.parametrize(
    "data",
    [
        {"title": 1},
        {"title": ""},
        {"title": "x" * 1025},
        {"level": "loud"},
        {"level": ["error"]},
        {"priority": "high"},
        {"priority": 5},
        {"refs": "a.py"},
        {"refs": [1]},
        {"refs": ["x"] * 257},
        {"thread": {"id": 1}},
    ],
)
def test_a_value_of_another_form_is_only_data(data: dict[str, Any]) -> None:
    assert labels(data) == {}


def test_a_protocol_reads_the_labels_that_it_has_no_words_for_and_its_own_name_for_a_thread() -> None:
    data = {"title": "t", "conversation": "c", "thread": "chan:1"}
    assert labels(data, (Field.THREAD,), thread="conversation") == {"thread": "c"}


def test_a_note_names_what_only_one_protocol_knows_and_is_bounded() -> None:
    assert own_note("x") == ()
    assert own_note("x", "a", "b") == ("for x alone: a, b",)
    assert len(own_note("x", *("key" for _ in range(1000)))[0]) < 600
