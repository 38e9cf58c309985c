"""A disk that is full, or fails now and then: nothing accepted is lost, and nothing refused is stored."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.faults.processes import SOAK, seed_of_the_day
from tests.faults.test_kill import audit
from tests.server.hubs import CARRIERS, House, house
from tieline.client import Client, HubError, HubRefused
from tieline.contract.refusal import Code
from tieline.core.store import DiskError, Store
from tieline.stores.sqlite import SqliteStore

MESSAGES = 1000 if SOAK else 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if SOAK else 60)]


class FlakyStore(SqliteStore):
    """A real store of which some commits fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, synchronous="OFF")
        self.chance = random.Random(0)
        # How likely the next commit fails.
        self.odds = 0.0
        self.failed = 0

    def commit(self) -> None:
        """Commit, or fail as a full disk does."""
        if self.odds and self.chance.random() < self.odds:
            self.failed += 1
            raise DiskError("no space left on device")
        super().commit()


Opened = Callable[[], SqliteStore]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """The store of the hub that the test starts."""
    stores: list[SqliteStore] = []

    def open_store(_url: str, home: Path) -> Store:
        stores.append(FlakyStore(home))
        return stores[-1]

    monkeypatch.setattr("tieline.server.hub.open_store", open_store)
    return lambda: stores[-1]


async def stored(there: House) -> list[str]:
    """Every message that the hub has for bob, in order."""
    bob = await there.join("bob", carrier="unix")
    items = (await bob.inbox(limit=10_000)).items
    return [item.message.body for item in items]


class Talker:
    """Sends until it is accepted or, by chance, takes no for an answer."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.codes: set[Code] = set()

    async def talk(self, there: House, carrier: str) -> None:
        client: Client | None = None
        for number in range(MESSAGES):
            body = f"{self.name} {number}"
            while True:
                try:
                    client = client or await there.join(self.name, carrier=carrier)
                    await client.send("@bob", body, wire_id=body)
                except HubRefused as refusal:
                    client = None
                    self.codes.add(refusal.code)
                    if self._chance.random() < 0.5:
                        self.refused.append(body)
                        break
                except HubError:
                    client = None
                else:
                    self.accepted.append(body)
                    break


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_with_commits_that_fail_now_and_then_accepted_means_stored_and_refused_means_not(
    folder: Path, opened: Opened, carrier: str
) -> None:
    chance = random.Random(seed_of_the_day())
    talkers = [Talker(name, random.Random(chance.random())) for name in ("t0", "t1", "t2")]
    async with house(folder) as there:
        await there.add("bob", *(talker.name for talker in talkers))
        store = opened()
        assert isinstance(store, FlakyStore)
        store.chance, store.odds = random.Random(chance.random()), 0.05
        with capture_logs():
            await asyncio.gather(*(talker.talk(there, carrier) for talker in talkers))
        store.odds = 0.0
        bodies = await stored(there)
        assert store.failed > 3, "there was no fault to speak of"
    assert len(bodies) == len(set(bodies)), "nothing is stored twice"
    for talker in talkers:
        mine = [body for body in bodies if body.startswith(f"{talker.name} ")]
        assert mine == talker.accepted, "all that was accepted, in order, and nothing that was refused"
        assert talker.refused, "something was refused"
        assert talker.codes <= {Code.STORE_FAILED, Code.UNKNOWN_SESSION}
    assert audit(folder).intact


async def test_a_database_that_cannot_grow_refuses_and_goes_on_when_there_is_room_again(
    folder: Path, opened: Opened
) -> None:
    async with house(folder) as there:
        await there.add("alice", "bob")
        main = opened()._main
        pages = main.pragma("page_count")
        assert isinstance(pages, int)
        accepted: list[str] = []
        refused: dict[str, Code] = {}

        async def send(body: str) -> None:
            alice = await there.join("alice")
            try:
                await alice.send("@bob", body)
            except HubRefused as refusal:
                refused[body] = refusal.code
            else:
                accepted.append(body)

        main.pragma("max_page_count", pages + 20)
        with capture_logs():
            for number in range(40):
                await send(f"{number} " + "x" * 10_000)
        assert accepted
        assert len(refused) > 3
        assert set(refused.values()) == {Code.STORE_FAILED}
        main.pragma("max_page_count", 1_000_000)
        async with asyncio.timeout(10):
            while accepted[-1] != "there is room again":
                await send("there is room again")
        assert accepted[-1] == "there is room again"
        assert await stored(there) == accepted
    async with house(folder) as there:
        async with await there.operator() as operator:
            there.tokens["bob"] = (await operator.rotate_token("bob")).token
        assert await stored(there) == accepted
    report = audit(folder)
    assert report.intact, report.findings
