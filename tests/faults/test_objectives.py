"""Tests with kill -9 during changes of objectives and uploads of activity: state, event log, messages and audit agree.

A boss assigns objectives to workers. The workers block, unblock, discuss and complete them, and upload activity, until
the hub is killed. Then the test inspects the store from outside, and starts the hub again.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_kill import audit
from tests.server.hubs import running_hub
from tieline.client import Block, Cancel, Client, Complete, HubError, Reassign, Unblock, Watch, connect
from tieline.contract import lifecycle
from tieline.contract import objective as o
from tieline.core.store import ObjectiveQuery, ObjectiveRow
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.store import MAIN_FILE

ROUNDS = 30 if SOAK else 6
WORKERS = ("w0", "w1", "w2")
PERMISSIONS = ("objectives.create", "objectives.cancel", "objectives.reassign", "objectives.watch")
ALL = 1_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 120)]


class Told:
    """Test helper: the changes and uploads that the hub has answered.

    Their results must be in the store after a kill.
    """

    def __init__(self) -> None:
        # Answered changes, by objective.
        self.changes: dict[str, list[str]] = {}
        # Answered uploads: how many events each had.
        self.uploads: dict[str, int] = {}
        self.numbers = count()


async def give(client: Client, told: Told, chance: random.Random) -> None:
    """Act as the boss until the hub ends: create objectives, cancel some and reassign some.

    Note each answer in `told`.
    """
    while True:
        assignee = chance.choice(WORKERS)
        watchers = tuple(chance.sample(WORKERS, chance.randint(0, 2)))
        made = await client.create_objective("work", "it is done", assignee, watchers=watchers)
        told.changes.setdefault(made.id, []).append("assigned")
        step = chance.random()
        if step < 0.2:
            await client.change_objective(made.id, Cancel("changed my mind"))
            told.changes[made.id].append("cancelled")
        elif step < 0.5:
            moved = chance.choice([name for name in WORKERS if name != assignee])
            with contextlib.suppress(HubError):
                await client.change_objective(made.id, Reassign(moved, "a note"))
        elif step < 0.7:
            with contextlib.suppress(HubError):
                await client.change_objective(made.id, Watch(remove=watchers))


async def work(client: Client, name: str, told: Told, chance: random.Random) -> None:
    """Act as worker `name` until the hub ends: change its open objectives and upload activity.

    Note answers in `told`.
    """
    while True:
        found = (
            await client.objectives(statuses=(o.Status.ACTIVE, o.Status.BLOCKED), assignee=name, limit=5)
        ).objectives
        for one in found:
            steps: list[Any] = [Block("stuck"), Unblock(), Complete("it works")][chance.randint(0, 2) :]
            for step in steps:
                # Somebody else may have it by now, or have ended it.
                with contextlib.suppress(HubError):
                    changed = await client.change_objective(one.id, step)
                    if changed.status == "done":
                        told.changes.setdefault(one.id, []).append("completed")
            await upload(client, name, told, chance)
        if not found:
            await upload(client, name, told, chance)


async def upload(client: Client, name: str, told: Told, chance: random.Random) -> None:
    number, size = f"{name}-{next(told.numbers)}", chance.randint(1, 20)
    events = [{"kind": "llm_exchange", "upload": number, "part": part, "text": "x" * 500} for part in range(size)]
    assert await client.record_activity(*events) == size
    told.uploads[number] = size


def replayed(events: list[o.ObjectiveEvent]) -> dict[str, Any]:
    """Return the state of an objective, computed from its event log alone."""
    state: dict[str, Any] = {"status": "active", "result": None, "block_reason": None}
    for event in events:
        match event.what:
            case o.Assigned(assignee=assignee, watchers=watchers):
                state |= {"assignee": assignee, "watchers": list(watchers)}
            case o.Blocked(reason):
                state |= {"status": "blocked", "block_reason": reason}
            case o.Unblocked():
                state |= {"status": "active", "block_reason": None}
            case o.Completed(result):
                state |= {"status": "done", "result": result, "block_reason": None}
            case o.Cancelled():
                state |= {"status": "cancelled"}
            case o.Reassigned(after=after):
                state |= {"assignee": after}
            case o.WatcherAdded(name):
                state["watchers"] = [*(one for one in state["watchers"] if one != name), name]
            case o.WatcherRemoved(name):
                state["watchers"] = [one for one in state["watchers"] if one != name]
    return state


def check_objectives(home: Path, told: Told) -> int:
    """Check each stored objective in `home` against its event log, and each entry of that log against its message.

    `told` has the changes that the hub confirmed to clients; each of them must be in the log. Return the number of
    entries.
    """
    store = SqliteStore(home)
    rows = store.objectives.select(ObjectiveQuery(None, None, (), None, ALL))
    kinds: dict[str, list[str]] = {}
    entries = 0
    for row in rows:
        events = list(store.objectives.events(row.serial, -1, ALL))
        _check_state(row, events)
        kinds[row.objective.id] = [o.kind_of(event.what) for event in events]
        for event in events:
            (message,) = store.messages([event.offset + 1], 1 << 30)[0].values()
            assert message.sender == event.actor
            assert message.content.target == lifecycle.thread_of(row.objective.id)
            assert message.content.data is not None
            assert message.content.data["event"]["kind"] == o.kind_of(event.what)
        entries += len(events)
    for objective_id, answered in told.changes.items():
        assert set(answered) <= set(kinds.get(objective_id, [])), f"{objective_id} has lost what was answered"
    store.close()
    assert len(rows) == len(kinds)
    return entries


def _check_state(row: ObjectiveRow, events: list[o.ObjectiveEvent]) -> None:
    stands = row.objective
    assert replayed(events) == {
        "status": stands.status.value,
        "result": stands.result,
        "block_reason": stands.block_reason,
        "assignee": stands.assignee,
        "watchers": list(stands.watchers),
    }


def check_activity(home: Path, told: Told) -> int:
    """Check that each upload is stored completely, or not at all if it was not confirmed.

    Return the number of events.
    """
    store = SqliteActivity(home)
    end = store.restore()
    found: dict[str, list[int]] = {}
    rows = store.read_log(0, ALL, 1 << 30)[0]
    for row in rows:
        event = msgspec.json.decode(row.event)
        found.setdefault(event["upload"], []).append(event["part"])
    store.close()
    assert [row.offset for row in rows] == list(range(end))
    for number, parts in found.items():
        assert parts == list(range(len(parts))), f"upload {number} is not whole"
    for number, size in told.uploads.items():
        assert len(found.get(number, [])) == size, f"upload {number} was accepted and is not there"
    return len(rows)


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def live(hub: HubProcess, tokens: dict[str, str], told: Told, chance: random.Random) -> None:
    """Let all members work until the hub is killed."""

    async def run(name: str) -> None:
        with contextlib.suppress(HubError, OSError):
            async with await connect(token=tokens[name], home=hub.home) as client:
                own = random.Random(chance.random())
                await (give(client, told, own) if name == "boss" else work(client, name, told, own))

    async with asyncio.timeout(30):
        await asyncio.gather(*(run(name) for name in tokens))


async def test_a_hub_killed_amid_transitions_and_uploads_agrees_with_itself(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    told, tokens = Told(), {}
    await hub.start()
    async with await connect(home=hub.home) as operator:
        tokens["boss"] = (await operator.add_member("boss", permissions=PERMISSIONS)).token
        for name in WORKERS:
            tokens[name] = (await operator.add_member(name)).token
        # Hears of everything, and is never there.
        await operator.add_member("ear", permissions=("members.manage",))
    entries = rows = 0
    for number in range(ROUNDS):
        living = asyncio.create_task(live(hub, tokens, told, chance))
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        hub.kill()
        await living
        report = audit(hub.home)
        assert report.intact, f"after kill {number}: {report.findings}"
        before, entries = entries, check_objectives(hub.home, told)
        assert entries >= before
        rows = check_activity(hub.home, told)
        await hub.start()
    async with await connect(home=hub.home, member="ear") as ear:
        heard, after, complete = [], 0, False
        while not complete:
            page = await ear.inbox(after=after, limit=1000)
            heard += [item.message for item in page.items]
            after, complete = page.through, page.complete
        assert len(heard) == entries, "one message for each entry, and each was delivered"
        assert [message.offset for message in heard] == sorted({message.offset for message in heard})
    assert await hub.stop() == 0
    assert audit(hub.home).intact
    assert check_objectives(hub.home, told) == entries
    assert (entries > 5 * ROUNDS, rows > 5 * ROUNDS) == (True, True), "there was no load to speak of"


# Tampering.


async def _live_a_little(home: Path) -> str:
    async with running_hub(home) as there:
        await there.add("ada", permissions=PERMISSIONS)
        await there.add("bob")
        ada, bob = await there.join("ada"), await there.join("bob")
        made = await ada.create_objective("ship it", "users have it", "bob")
        await bob.change_objective(made.id, Block("stuck"))
        await ada.send("@bob", "something else")
        return made.id


@pytest.mark.parametrize(
    "tampering",
    [
        "update objective set status = 'active'",
        "update objective set parties = '[2,2]'",
        "update objective set content = cast(replace(cast(content as text), 'stuck', 'stack') as blob)",
        "update objective_event set event = cast(replace(cast(event as text), 'stuck', 'stack') as blob)",
        "update objective_event set actor = 'ada'",
        "update objective_event set at_ms = at_ms + 1",
        "delete from objective_event where offset = (select max(offset) from objective_event)",
        "update objective set offset = (select min(offset) from objective_event)",
        "insert into objective_event select offset + 1, serial, at_ms, actor, event from objective_event limit 1",
    ],
)
async def test_whatever_is_changed_in_an_objective_behind_the_hubs_back_is_found(folder: Path, tampering: str) -> None:
    home = folder / "home"
    await _live_a_little(home)
    assert audit(home).intact
    database = apsw.Connection(str(home / MAIN_FILE))
    database.execute(tampering)
    database.close()
    report = audit(home)
    assert not report.intact
    assert "obj-" in report.findings[0].what
