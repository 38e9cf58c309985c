"""Tests of commits of a store: all buffered writes become durable together or not at all. Reads see buffered writes."""

import pytest

from tests.conformance.store.rows import channel, image, member, objective, same, subscription, token
from tests.conformance.store.writer import PAGE_BYTES, Writer
from tieline.contract import objective as o
from tieline.contract.chain import digest
from tieline.contract.channel import ChannelId
from tieline.contract.delivery import State, Step
from tieline.contract.event import (
    Acknowledged,
    Delivered,
)
from tieline.contract.identifiers import MessageId
from tieline.core.ledger import encode_content
from tieline.core.readers import Cutoff
from tieline.core.store import (
    HistoryQuery,
    StoredState,
    TokenRow,
)

# Writes are buffered and become durable together, all or none


def write_everything(writer: Writer) -> None:
    """Write one row of each kind, without a commit."""
    store = writer.store
    store.save_member(member(1, "ada"))
    store.save_member(member(2, "bob"))
    store.save_token(TokenRow(b"d" * 32, 1, 5))
    store.save_setting("team", b"one")
    store.channels.save(channel("c", "dev"))
    store.channels.join(subscription("c", 1))
    writer.accept(wire_id="w")
    writer.advance(Acknowledged, (1, 1))
    writer.change(objective(1))
    store.save_snapshot([image(1)], writer.ledger.end)


def test_an_empty_store_gives_an_empty_foundation(writer: Writer) -> None:
    assert same(writer.restore()) == same(StoredState())
    assert list(writer.store.replay(0)) == []
    assert list(writer.store.expiring()) == []
    assert list(writer.store.read_log(0, 10)[0]) == []


@pytest.mark.parametrize("how", ["restore", "crash"])
def test_what_was_not_committed_is_gone_as_a_whole(writer: Writer, how: str) -> None:
    write_everything(writer)
    stored_state = getattr(writer, how)()
    assert same(stored_state) == same(StoredState())
    store = writer.store
    assert store.find_wire_id("ada", "hub", "w") is None
    assert store.find_message(MessageId("m-0")) is None
    assert store.messages([0], PAGE_BYTES)[0] == {}
    assert list(store.steps(2, 1)) == []
    assert list(store.read_log(0, 10)[0]) == []


@pytest.mark.parametrize("how", ["restore", "crash"])
def test_what_was_committed_is_there_as_a_whole(writer: Writer, how: str) -> None:
    write_everything(writer)
    writer.store.commit()
    head = writer.ledger.head
    stored_state = getattr(writer, how)()
    assert same(stored_state) == same(
        StoredState(
            members=[member(1, "ada"), member(2, "bob")],
            tokens=[TokenRow(b"d" * 32, 1, 5)],
            settings={"team": b"one"},
            channels=[channel("c", "dev")],
            subscriptions=[subscription("c", 1)],
            objectives=[objective(1)],
            next_serial=2,
            images=[image(1)],
            snapshot_end=3,
            log_end=3,
            log_head=head,
            next_number=3,
        )
    )
    store = writer.store
    assert store.find_wire_id("ada", "hub", "w") is not None
    assert [step.state for step in store.steps(2, 1)] == [State.ACKED]
    assert len(store.read_log(0, 10)[0]) == 3


def test_dropping_what_is_buffered_leaves_what_was_committed_before_untouched(writer: Writer) -> None:
    write_everything(writer)
    writer.store.commit()
    before = same(writer.restore())
    store = writer.store
    store.drop_member(2, 9)
    store.save_token(token(7, 1))
    store.save_setting("team", b"two")
    store.drop_token(b"d" * 32)
    store.channels.leave(ChannelId("c"), 1)
    store.channels.drop(ChannelId("c"))
    store.channels.save(channel("d", "ops"))
    writer.change(objective(1, status=o.Status.DONE))
    writer.change(objective(2))
    store.save_member(member(3, "cy"))
    writer.accept(wire_id="w2")
    writer.advance(Delivered, (2, 2))
    store.save_snapshot([image(1, base=9)], writer.ledger.end)
    store.prune(0, Cutoff(10**9), frozenset(), 10)
    for _ in range(2):
        assert same(writer.restore()) == before
        assert store.find_message(MessageId("m-0")) is not None
        assert store.find_wire_id("ada", "hub", "w") is not None


def test_committing_nothing_is_no_error(writer: Writer) -> None:
    writer.store.commit()
    writer.store.commit()
    assert same(writer.restore()) == same(StoredState())


def test_closing_loses_what_was_not_committed_and_nothing_else(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.record()
    assert writer.crash().log_end == 1


# Reads see buffered writes


def test_reads_see_what_is_buffered(writer: Writer) -> None:
    store = writer.store
    store.save_member(member(1, "ada"))
    store.save_member(member(2, "bob"))
    message = writer.accept(wire_id="w")
    writer.advance(Delivered, (1, 1), session="s", protocol="hub")
    assert store.messages([message.offset], PAGE_BYTES)[0] == {message.offset: message}
    found = store.find_message(message.id)
    assert found is not None
    assert found[0] == message
    known = store.find_wire_id("ada", "hub", "w")
    assert known is not None
    assert (known.message_id, known.offset, known.recipients) == (message.id, message.offset, 1)
    assert known.digest == digest(encode_content(message.content))
    assert list(store.steps(2, 1)) == [Step(State.OFFERED, 2000, "s", "hub")]
    assert store.names([1, 2]) == {1: "ada", 2: "bob"}
    history_query = HistoryQuery(reader="ada", since=0, before=None, limit=10, bytes_max=PAGE_BYTES)
    assert list(store.history(history_query)) == [message]


def test_reads_see_what_is_buffered_between_other_writes_and_after_the_commit(writer: Writer) -> None:
    for turn in range(3):
        message = writer.accept(wire_id=f"w{turn}")
        assert set(writer.store.messages(range(turn + 1), PAGE_BYTES)[0]) == set(range(turn + 1))
        assert writer.store.find_wire_id("ada", "hub", f"w{turn}") is not None
        if turn == 1:
            writer.store.commit()
        assert writer.store.find_message(message.id) is not None


def test_closing_twice_is_no_error(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.store.close()
    writer.store.close()
    assert writer.reopen().log_end == 1
