"""Tests of the list of an agent's open objectives: a burst of events causes one fetch from the hub."""

import asyncio

from tests.protocols.mcp.said import happened, said
from tests.server.hubs import until
from tieline.client import Disconnected, ObjectiveView
from tieline.protocols.mcp.open_objectives import Open, OpenObjectives

DEBOUNCE_SECONDS = 0.02


def objective(number: int, status: str = "active") -> ObjectiveView:
    """Return an objective that is assigned to bob."""
    return ObjectiveView(
        id=f"obj-{number}",
        title="Fix it",
        outcome="It works",
        body="",
        status=status,
        assignee="bob",
        originator="alice",
        watchers=(),
        created_at_ms=1,
        updated_at_ms=1,
        completed_at_ms=None,
        result=None,
        block_reason=None,
        attachments=(),
    )


async def quiet() -> None:
    """Wait longer than the delay after which a fetch would start."""
    # That nothing is asked can only be seen when its time is over.
    await asyncio.sleep(3 * DEBOUNCE_SECONDS)


class Hub:
    """Test double: a hub that returns open objectives. It records the fetches and the reported changes."""

    def __init__(self) -> None:
        self.open: Open = ()
        self.asked = 0
        self.broken = False
        self.changes: list[tuple[Open, Open]] = []
        self.open_objectives = OpenObjectives(
            self.fetch, lambda *change: self.changes.append(change), debounce_seconds=DEBOUNCE_SECONDS
        )

    async def fetch(self) -> Open:
        self.asked += 1
        await asyncio.sleep(0)
        if self.broken:
            raise Disconnected("gone")
        return self.open


async def test_an_objective_event_asks_for_the_open_set_and_tells_what_changed() -> None:
    hub = Hub()
    hub.open = (objective(1),)
    hub.open_objectives.hear(happened())
    await until(lambda: len(hub.changes) == 1)
    assert hub.changes == [((), (objective(1),))]
    assert hub.open_objectives.current == (objective(1),)
    await hub.open_objectives.close()


async def test_a_burst_of_events_is_one_question() -> None:
    hub = Hub()
    hub.open = (objective(1),)
    for _ in range(100):
        hub.open_objectives.hear(happened())
    await until(lambda: len(hub.changes) == 1)
    await quiet()
    assert hub.asked == 1
    await hub.open_objectives.close()


async def test_an_event_during_the_question_asks_again() -> None:
    hub = Hub()
    hub.open_objectives.hear(happened())
    await until(lambda: hub.asked == 1)
    hub.open = (objective(1, "blocked"),)
    hub.open_objectives.hear(happened())
    await until(lambda: hub.open_objectives.current == hub.open)
    await hub.open_objectives.close()


async def test_chat_asks_nothing_and_no_change_tells_nothing() -> None:
    hub = Hub()
    hub.open_objectives.hear(said(target="obj:obj-1"))
    await quiet()
    assert hub.asked == 0
    await hub.open_objectives.refresh()
    await hub.open_objectives.refresh()
    assert hub.asked == 2
    assert not hub.changes
    await hub.open_objectives.close()


async def test_a_hub_that_is_away_is_asked_by_the_next_session() -> None:
    hub = Hub()
    hub.broken = True
    hub.open_objectives.hear(happened())
    await until(lambda: hub.asked == 1)
    hub.broken, hub.open = False, (objective(1),)
    await hub.open_objectives.refresh()
    assert hub.open_objectives.current == hub.open
    await hub.open_objectives.close()


async def test_nothing_is_asked_after_close() -> None:
    hub = Hub()
    hub.open_objectives.hear(happened())
    await hub.open_objectives.close()
    await quiet()
    assert hub.asked == 0
