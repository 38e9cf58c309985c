"""Tests that a store stores the last version of each objective, and the event logs of objectives."""

from typing import Any

import pytest

from tests.conformance.store.rows import member, objective
from tests.conformance.store.writer import Writer
from tieline.contract import objective as o
from tieline.core.store import (
    ObjectiveQuery,
)


@pytest.fixture
def shop(writer: Writer) -> Writer:
    """Fixture: a store with four objectives of three members, one objective for each status."""
    for number, name in enumerate(("ada", "bob", "cy"), start=1):
        writer.store.save_member(member(number, name))
    parties = ((2, 1), (2, 1, 3), (3, 1), (1, 1))
    for serial, (status, numbers) in enumerate(zip(o.Status, parties, strict=True), start=1):
        writer.change(objective(serial, *numbers))
        writer.change(objective(serial, *numbers, status=status))
    writer.store.commit()
    return writer


def serials(writer: Writer, **query: Any) -> list[int]:
    given = {"party": None, "assignee": None, "statuses": (), "before": None, "limit": 10, **query}
    return [row.serial for row in writer.store.objectives.select(ObjectiveQuery(**given))]


def test_an_objective_is_kept_as_it_stood_last(shop: Writer) -> None:
    shop.crash()
    found = shop.store.objectives.find(o.ObjectiveId("obj-2"))
    assert found == objective(2, 2, 1, 3, status=o.Status.BLOCKED)
    assert shop.store.objectives.find(o.ObjectiveId("obj-9")) is None


def test_a_foundation_has_the_objectives_that_can_still_change(shop: Writer) -> None:
    stored_state = shop.crash()
    assert [row.serial for row in stored_state.objectives] == [1, 2]
    assert stored_state.next_serial == 5


def test_objectives_are_selected_by_party_assignee_and_status_newest_first(shop: Writer) -> None:
    assert serials(shop) == [4, 3, 2, 1]
    assert serials(shop, party=3) == [3, 2]
    assert serials(shop, party=1, assignee=2) == [2, 1]
    assert serials(shop, assignee=3) == [3]
    assert serials(shop, statuses=(o.Status.ACTIVE, o.Status.CANCELLED)) == [4, 1]
    assert serials(shop, before=3, limit=1) == [2]
    assert serials(shop, party=9) == []


def test_a_party_that_is_none_any_more_is_not_found_by_it(shop: Writer) -> None:
    shop.change(objective(2, 1, 1))
    assert serials(shop, party=3) == [3]
    assert serials(shop, party=2) == [1]
    shop.restore()
    assert serials(shop, party=3) == [3, 2]


def test_an_event_log_keeps_every_happening_in_order(writer: Writer) -> None:
    for number, name in enumerate(("ada", "bob"), start=1):
        writer.store.save_member(member(number, name))
    happenings: list[o.AnyHappening] = [
        o.Assigned("t", "o", "bob", ("cy",)),
        o.Blocked("r"),
        o.Unblocked(),
        o.Reassigned("a", "b", "n"),
        o.WatcherAdded("w"),
        o.WatcherRemoved("w"),
        o.Completed("r"),
        o.Cancelled(),
    ]
    kept = [writer.change(objective(1), what) for what in happenings]
    writer.change(objective(2))
    assert list(writer.store.objectives.events(1, -1, 100)) == kept
    writer.store.commit()
    writer.crash()
    assert list(writer.store.objectives.events(1, -1, 100)) == kept
    assert list(writer.store.objectives.events(1, kept[2].offset, 2)) == kept[3:5]
    assert list(writer.store.objectives.events(9, -1, 100)) == []
