"""Tests of snapshots of members' inboxes in a store."""

from tests.conformance.store.rows import image, member
from tests.conformance.store.writer import Writer


def test_a_snapshot_replaces_the_images_of_the_members_it_names_and_of_no_others(writer: Writer) -> None:
    store = writer.store
    for number, name in ((1, "ada"), (2, "bob")):
        store.save_member(member(number, name))
    writer.record()
    store.save_snapshot([image(1), image(2)], 1)
    store.commit()
    writer.record()
    store.save_snapshot([image(2, base=40, streams={"ada\x1fbuild": 9, "\x1f": 1})], 2)
    store.commit()
    stored_state = writer.crash()
    assert stored_state.snapshot_end == 2
    assert sorted(stored_state.images, key=lambda row: row.number) == [
        image(1),
        image(2, base=40, streams={"ada\x1fbuild": 9, "\x1f": 1}),
    ]
