"""Tests of message ids in backchannel: the hub's ids are written in another form, and files keep their own ids."""

import uuid

import pytest

from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.message import Content, Message
from tieline.contract.target import to_member
from tieline.protocols.backchannel import message_ids
from tieline.protocols.backchannel.message_ids import FILES, MessageIds, is_made_here
from tieline.wire.prefix_ids import to_prefix_id

MINE = MessageId("01a1e1c4-54c4-7001-920a-00c0ffee1234")
FILE = "5c2f8f0e-8d1b-4c59-9d0d-6f2b5e0a1b2c"


def message(message_id: MessageId = MINE, wire_id: str | None = None) -> Message:
    return Message(
        id=message_id,
        offset=1,
        sender="lea",
        protocol="tieline" if wire_id is None else FILES,
        sent_at_ms=1_800_000_000_000,
        content=Content(target=to_member(MemberName("bob")), body="hello"),
        wire_id=wire_id,
    )


def test_a_message_of_the_hub_has_its_prefix_id_and_is_found_by_either_spelling() -> None:
    ids = MessageIds()
    shown = ids.of(message())
    assert shown == ids.spell(MINE) == to_prefix_id(MINE)
    assert ids.find(shown, "bob") == ids.find(MINE, "bob") == MINE
    assert ids.find("no id", "bob") == ids.spell("no id") == "no id"


def test_a_message_that_came_as_a_file_has_the_id_of_its_file() -> None:
    ids = MessageIds()
    assert ids.of(message(wire_id=FILE)) == FILE
    assert ids.find(FILE, "bob") == MINE
    assert ids.spell(MINE) == FILE


def test_each_recipient_of_copies_of_one_file_finds_its_own_message() -> None:
    ids = MessageIds()
    later = MessageId("01a1e1c4-54c4-7002-920a-00c0ffee1234")
    ids.note(MINE, FILE)
    assert ids.of(message(later, f"{FILE}|ben")) == FILE
    assert (ids.find(FILE, "bob"), ids.find(FILE, "ben")) == (MINE, later)


def test_a_file_cannot_have_the_id_of_a_message_of_the_hub() -> None:
    ids = MessageIds()
    other = MessageId("01a1e1c4-54c4-7002-920a-00c0ffee1234")
    for forged in (to_prefix_id(MINE), MINE):
        assert is_made_here(forged)
        assert ids.of(message(other, forged)) == to_prefix_id(other)
        assert ids.find(forged, "bob") == MINE


def test_only_the_newest_files_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ids, "_FILES_MAX", 2)
    ids = MessageIds()
    files = [str(uuid.uuid4()) for _ in range(3)]
    for number, file in enumerate(files):
        ids.note(f"01a1e1c4-54c4-7000-920a-{number:012x}", file)
    assert ids.find(files[0], "bob") == files[0]
    assert [ids.find(file, "bob")[-1] for file in files[1:]] == ["1", "2"]
