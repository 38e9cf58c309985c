"""Tests of wire ids (ids that senders give to messages): a store accepts each id once per sender and protocol."""

import pytest

from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.core.doubles import content
from tieline.core.store import (
    StoreError,
)


def test_a_wire_id_belongs_to_a_sender_and_a_protocol(writer: Writer) -> None:
    ids = {
        writer.accept(wire_id="1", sender="ada", protocol="hub").id,
        writer.accept(wire_id="1", sender="bob", protocol="hub").id,
        writer.accept(wire_id="1", sender="ada", protocol="peerbus").id,
    }
    writer.store.commit()
    found = [
        writer.store.find_wire_id(*key) for key in (("ada", "hub", "1"), ("bob", "hub", "1"), ("ada", "peerbus", "1"))
    ]
    assert {known.message_id for known in found if known} == ids
    assert writer.store.find_wire_id("bob", "peerbus", "1") is None


@pytest.mark.parametrize("read_before_the_commit", [False, True])
@pytest.mark.parametrize("committed_between", [False, True])
def test_a_wire_id_that_is_not_new_is_refused_by_the_commit_at_the_latest(
    writer: Writer, committed_between: bool, read_before_the_commit: bool
) -> None:
    first = writer.accept(wire_id="1")
    if committed_between:
        writer.store.commit()

    def again() -> None:
        writer.accept(wire_id="1")
        if read_before_the_commit:
            writer.store.messages([0, 1], PAGE_BYTES)[0]
        writer.store.commit()

    with pytest.raises(StoreError):
        again()
    writer.restore()
    known = writer.store.find_wire_id("ada", "hub", "1")
    assert (known.message_id if known else None) == (first.id if committed_between else None)


def test_a_wire_id_whose_message_was_abandoned_is_new_again(writer: Writer) -> None:
    writer.accept(wire_id="1")
    writer.restore()
    assert writer.store.find_wire_id("ada", "hub", "1") is None
    kept = writer.accept(content("@bob", "kept"), wire_id="1", message_id="kept")
    writer.store.commit()
    known = writer.store.find_wire_id("ada", "hub", "1")
    assert known is not None
    assert known.message_id == kept.id
