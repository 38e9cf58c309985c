"""Tests of history queries of a store: they return the messages that a member may see, newest first."""

from typing import Any

import pytest

from tests.conformance.store.rows import member, objective
from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.core.doubles import content
from tieline.core.store import (
    DeliveryRoute,
    HistoryQuery,
    Span,
)


@pytest.fixture
def told(writer: Writer) -> Writer:
    """Fixture: a store with messages to members, to channels and to everybody."""
    for sender, target in (
        ("ada", "@bob"),
        ("bob", "@ada"),
        ("cy", "@bob"),
        ("ada", "#dev"),
        ("cy", "*"),
        ("bob", "#general"),
        ("ada", "@ada"),
    ):
        writer.accept(content(target), sender=sender, route=DeliveryRoute([], [], []))
    return writer


def read(writer: Writer, expected: list[int], **query: Any) -> None:
    """Check that a history query returns the messages with the offsets `expected`, page by page and from any offset."""
    for before, limit in ((None, 10), (None, 2), (5, 10), (3, 1), (0, 10)):
        history_query = HistoryQuery(since=0, before=before, limit=limit, bytes_max=PAGE_BYTES, **query)
        wanted = [offset for offset in expected if before is None or offset < before][:limit]
        assert [message.offset for message in writer.store.history(history_query)] == wanted


@pytest.mark.parametrize(
    ("reader", "spans", "expected"),
    [
        (None, (), [6, 5, 4, 3, 2, 1, 0]),
        ("ada", ("*", "@ada", "#general"), [6, 5, 4, 3, 1, 0]),
        ("cy", ("*", "@cy"), [4, 2]),
        ("cy", ("*", "@cy", "#dev", "#general"), [5, 4, 3, 2]),
    ],
)
def test_history_is_what_the_reader_said_and_what_it_may_see_newest_first(
    told: Writer, reader: str | None, spans: tuple[str, ...], expected: list[int]
) -> None:
    read(told, expected, reader=reader, spans=[Span(target) for target in spans])


@pytest.mark.parametrize(
    ("reader", "peer", "expected"),
    [
        (None, "bob", [2, 0]),
        ("ada", "bob", [1, 0]),
        ("bob", "ada", [1, 0]),
        ("bob", "cy", [2]),
        ("ada", "ada", [6]),
        ("ada", "nobody", []),
    ],
)
def test_history_with_a_peer_is_what_the_two_said_to_each_other(
    told: Writer, reader: str | None, peer: str, expected: list[int]
) -> None:
    read(told, expected, reader=reader, peer=peer)


def test_history_of_places_is_what_was_said_there_in_their_spans(writer: Writer) -> None:
    for target in ("#dev", "#dev", "#ops", "#dev", "#ops", "#dev", "@bob"):
        writer.accept(content(target), sender="cy", route=DeliveryRoute([], [], []))
    for reader in (None, "ada"):
        read(writer, [5, 3, 1, 0], reader=reader, places=[Span("#dev")])
        read(writer, [], reader=reader, places=[])
        read(writer, [4, 3, 1], reader=reader, places=[Span("#dev", 1, 4), Span("#ops", 4)])


def test_what_was_said_under_a_name_while_it_was_anothers_is_not_seen(writer: Writer) -> None:
    for sender in ("cy", "cy", "ada", "cy", "cy"):
        writer.accept(content("#dev"), sender=sender, route=DeliveryRoute([], [], []))
    read(writer, [3, 2], reader="ada", spans=[Span("#dev", 3, 4)])
    read(writer, [4, 2, 0], reader="ada", spans=[Span("#dev", 0, 1), Span("#dev", 4)])


def test_threads_are_seen_by_those_who_have_a_part_in_the_objective(writer: Writer) -> None:
    for number, name in enumerate(("ada", "bob", "cy"), start=1):
        writer.store.save_member(member(number, name))
    writer.change(objective(1, 2, 1))
    writer.change(objective(2, 2, 1, 3))
    for serial in (1, 2):
        writer.accept(content(f"obj:obj-{serial}"), sender="bob", route=DeliveryRoute([], [], []))
    assert writer.ledger.end == 4
    read(writer, [3, 2], reader="ada", threads=1)
    read(writer, [3], reader="cy", threads=3)
    read(writer, [3, 2], reader="cy", threads=3, all_threads=True)
    writer.change(objective(2, 2, 1))
    read(writer, [], reader="cy", threads=3)


def test_history_is_read_up_to_an_amount_of_content_but_at_least_one(writer: Writer) -> None:
    for _ in range(4):
        writer.accept(content("@bob", "x" * 1000))
    for bytes_max, offsets in ((0, [3]), (2500, [3, 2]), (PAGE_BYTES, [3, 2, 1, 0])):
        history_query = HistoryQuery(reader="ada", since=0, before=None, limit=10, bytes_max=bytes_max)
        assert [message.offset for message in writer.store.history(history_query)] == offsets
