"""Tests with a full or failing disk: no accepted message is lost, no refused message is stored, and no session ends."""

import asyncio
import itertools
import json
import random
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from structlog.testing import capture_logs

from tests.faults.disks import FaultyVfs, fill, small_disk
from tests.faults.processes import SOAK, seed_of_the_day
from tests.faults.test_kill import audit
from tests.protocols.agent_channels.sockets import Peer as Poster
from tests.protocols.peerbus.peers import bus
from tests.server.hubs import CARRIERS, WAIT_SECONDS, HubHarness, running_hub, silent, take, until
from tieline.client import Client, HubError, HubRefused
from tieline.contract.refusal import Code
from tieline.core.store import DiskError, Store
from tieline.stores.sqlite import SqliteStore

MESSAGES = 1000 if SOAK else 200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 if SOAK else 60)]


class FlakyStore(SqliteStore):
    """Test double: a real SQLite store whose commits fail with a given probability."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, synchronous="OFF")
        self.chance = random.Random(0)
        # Probability that the next commit fails.
        self.odds = 0.0
        self.failed = 0

    def commit(self) -> None:
        """Commit, or raise the error of a full disk."""
        if self.odds and self.chance.random() < self.odds:
            self.failed += 1
            raise DiskError("no space left on device")
        super().commit()


Opened = Callable[[], SqliteStore]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Fixture: make the hub use a `FlakyStore`. Return a function that returns the store of the last started hub."""
    stores: list[SqliteStore] = []

    def open_store(_url: str, home: Path, _address: str) -> Store:
        stores.append(FlakyStore(home))
        return stores[-1]

    monkeypatch.setattr("tieline.server.room.open_store", open_store)
    return lambda: stores[-1]


async def stored(there: HubHarness) -> list[str]:
    """Return the bodies of all stored messages for bob, in order."""
    bob = await there.join("bob", carrier="unix")
    bodies: list[str] = []
    after, complete = 0, False
    while not complete:
        page = await bob.inbox(after=after, limit=1000)
        bodies += [item.message.body for item in page.items]
        after, complete = page.through, page.complete
    return bodies


class Talker:
    """Test sender: sends each message until it is accepted, but gives up the first refused one and some later ones."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.codes: set[Code] = set()

    async def talk(self, there: HubHarness, carrier: str) -> None:
        client: Client | None = None
        for number in itertools.count():
            if number >= MESSAGES and self.refused:
                # Faults come by chance: without one, the test has shown nothing yet.
                return
            body = f"{self.name} {number}"
            while True:
                try:
                    client = client or await there.join(self.name, carrier=carrier)
                    await client.send("@bob", body, wire_id=body)
                except HubRefused as refusal:
                    client = None
                    self.codes.add(refusal.code)
                    if not self.refused or self._chance.random() < 0.5:
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
    async with running_hub(folder) as there:
        await there.add("bob", *(talker.name for talker in talkers))
        store = opened()
        assert isinstance(store, FlakyStore)
        store.chance, store.odds = random.Random(chance.random()), 0.05
        with capture_logs():
            await asyncio.gather(*(talker.talk(there, carrier) for talker in talkers))
        store.odds = 0.0
        bodies = await stored(there)
    assert len(bodies) == len(set(bodies)), "nothing is stored twice"
    for talker in talkers:
        mine = [body for body in bodies if body.startswith(f"{talker.name} ")]
        assert mine == talker.accepted, "all that was accepted, in order, and nothing that was refused"
        assert talker.codes <= {Code.STORE_FAILED, Code.UNKNOWN_SESSION}
    assert audit(folder).intact


async def test_a_database_that_cannot_grow_refuses_and_goes_on_when_there_is_room_again(
    folder: Path, opened: Opened
) -> None:
    async with running_hub(folder) as there:
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
    async with running_hub(folder) as there:
        async with await there.operator() as operator:
            there.tokens["bob"] = (await operator.rotate_token("bob")).token
        assert await stored(there) == accepted
    report = audit(folder)
    assert report.intact, report.findings


# Disks that really are full, and disks that fail under the database.


async def health(there: HubHarness) -> tuple[int, dict[str, Any]]:
    """Request the hub's health. Return the status code and the JSON document."""

    def get() -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"{there.running.http}/healthz", timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    status, text = await asyncio.to_thread(get)
    return status, json.loads(text)


async def metric(there: HubHarness, name: str) -> float:
    """Return the current value of the hub's metric with this name."""

    def get() -> str:
        with urllib.request.urlopen(f"{there.running.http}/metrics", timeout=10) as answer:
            return str(answer.read(), "utf-8")

    text = await asyncio.to_thread(get)
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


class Company:
    """Test helper: two senders and a listener, connected before the disk fails. None of these sessions may end."""

    def __init__(self, there: HubHarness) -> None:
        self.there = there
        self.accepted: list[str] = []
        self.refused: set[str] = set()
        self.codes: set[Code] = set()

    async def join(self) -> None:
        await self.there.add("alice", "bob", "carol")
        self.alice = await self.there.join("alice", carrier="unix")
        self.carol = await self.there.join("carol", carrier="websocket")
        self.bob = await self.there.join("bob", receive=True, carrier="websocket")

    async def send(self, body: str) -> bool:
        """Let alice and carol send the message. Return true if carol's message was accepted."""
        await self.say(self.alice, body)
        return await self.say(self.carol, body)

    async def say(self, client: Client, body: str) -> bool:
        """Let one session send the message, and note the result. Return true if it was accepted."""
        said = f"{len(self.accepted) + len(self.refused)} {body}"
        try:
            await client.send("@bob", said)
        except HubRefused as refusal:
            self.refused.add(said)
            self.codes.add(refusal.code)
        else:
            self.accepted.append(said)
        return said in self.accepted

    async def hear(self) -> None:
        """Check that bob's session got all accepted messages, and no others."""
        heard = [delivery.message.body for delivery in await take(self.bob, len(self.accepted))]
        assert heard == self.accepted
        assert self.codes <= {Code.STORE_FAILED}
        await silent(self.bob)

    async def until_accepted(self, body: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not await self.send(body):
                pass

    async def until_healthy(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while (await health(self.there))[0] != 200:
                pass


async def kept(home: Path) -> list[str]:
    """Start a hub with this home. Return the bodies of the stored messages for bob."""
    async with running_hub(home, http="127.0.0.1:0") as there:
        async with await there.operator() as operator:
            there.tokens["bob"] = (await operator.rotate_token("bob")).token
        return await stored(there)


async def test_a_full_disk_refuses_sends_ends_no_session_and_is_over_when_there_is_room(folder: Path) -> None:
    with small_disk(folder / "d", 12_000) as disk, capture_logs() as logs:
        async with running_hub(disk / "h") as there:
            company = Company(there)
            await company.join()
            assert await company.send("before")
            ballast = await asyncio.to_thread(fill, disk)
            async with asyncio.timeout(WAIT_SECONDS):
                while len(company.refused) < 40:
                    await company.send("x" * 20_000)
            with pytest.raises(HubRefused) as caught:
                await company.alice.record_activity({"kind": "x", "text": "y" * 200_000})
            assert caught.value.code is Code.STORE_FAILED
            status, document = await health(there)
            assert (status, document["status"]) == (503, "failing")
            assert "full" in document["reasons"][0]["reason"]
            assert await metric(there, "tieline_store_failing") == 1
            assert await metric(there, "tieline_commit_failures_total") >= 3
            assert len(await company.carol.members()) == 3, "reads go on"
            ballast.unlink()
            await company.until_accepted("there is room")
            await company.until_healthy()
            await company.alice.record_activity({"kind": "x"})
            assert await metric(there, "tieline_store_failing") == 0
            await company.hear()
        assert await kept(disk / "h") == company.accepted
        assert audit(disk / "h").intact
    lines = [(entry["event"], entry.get("what")) for entry in logs if entry.get("what") == "the message store"]
    assert lines == [
        ("writing fails; what cannot be kept is refused", "the message store"),
        ("writing works again", "the message store"),
    ]


async def test_a_full_disk_ends_no_session_and_loses_nothing_on_wires_that_have_no_refusal(folder: Path) -> None:
    said = [f"{number} " + "x" * 20_000 for number in range(30)]
    with small_disk(folder / "d", 12_000) as disk, capture_logs():
        async with bus(disk / "h", agent_channels=True) as there:
            await there.add("carol")
            alice, bob = await there.several("alice", "bob")
            carol = await there.join("carol", receive=True)
            assert there.running.places["channels_dir"] is not None
            writer = await Poster.unix(Path(there.running.places["channels_dir"], "inbox-carol.sock"))
            ballast = await asyncio.to_thread(fill, disk)

            async def say_all() -> None:
                for body in said:
                    await alice.say("bob", body)
                    await writer.send({"msg": body})

            # In the background, because what is not read may fill the sockets.
            saying = asyncio.create_task(say_all())
            async with asyncio.timeout(WAIT_SECONDS):
                while (await health(there))[0] != 503:
                    pass
            ballast.unlink()
            await saying
            assert await bob.texts(len(said)) == said
            assert [delivery.message.body for delivery in await take(carol, len(said))] == said
            assert "bob" in await alice.peers(), "its session is the same"
            await bob.silent()
            writer.close()


async def test_a_checkpoint_that_fails_after_the_commit_refuses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieline.stores.sqlite.write_ahead_log.CHECKPOINT_PAGES", 1000)
    # The search index would take up the room that the log needs.
    monkeypatch.setattr("tieline.server.searcher._IDLE_SECONDS", 1000)
    with small_disk(folder / "d", 16_000) as disk, capture_logs():
        async with running_hub(disk / "h") as there:
            company = Company(there)
            await company.join()
            local_hub = there.hub.local_hub
            assert local_hub is not None
            store = local_hub._broker.store
            assert isinstance(store, SqliteStore)
            while store._write_ahead_log._pages < 600:
                assert await company.send("x" * 20_000)
            # Room for what is missing in the log, and not for moving all of it.
            ballast = await asyncio.to_thread(fill, disk, leave=2_500_000)
            while not local_hub.health.checkpoint.failures:
                assert await company.say(company.alice, "x" * 20_000), "the log has room, though the database has not"
            _, document = await health(there)
            assert "write-ahead log" in str(document["reasons"])
            ballast.unlink()
            await until(lambda: not local_hub.health.problems)
            await company.hear()
        assert company.refused == set()
        assert await kept(disk / "h") == company.accepted


FAULTS = {
    "EIO on write": ("write", apsw.IOError, apsw.SQLITE_IOERR_WRITE),
    "EIO on sync": ("sync", apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    "a disk that became read-only": ("write", apsw.ReadOnlyError, apsw.SQLITE_READONLY),
    "no space": ("write", apsw.FullError, apsw.SQLITE_FULL),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_when_the_disk_fails_every_refused_send_is_absent_and_every_accepted_one_is_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    home, vfs = folder / "h", FaultyVfs("faulty")
    monkeypatch.setattr("tieline.server.room.open_store", lambda _url, home, _address: SqliteStore(home, vfs=vfs.name))
    try:
        with capture_logs():
            async with running_hub(home) as there:
                company = Company(there)
                await company.join()
                for _ in range(3):
                    assert await company.send("before")
                for round_number in range(2):
                    vfs.fail(*FAULTS[fault])
                    for _ in range(4):
                        assert not await company.send("while it fails")
                    assert (await health(there))[0] == 503
                    # The files that a crash at this moment would leave; unsynced data are included, as after kill -9.
                    crash = folder / f"c{round_number}"
                    await asyncio.to_thread(shutil.copytree, home, crash, ignore=shutil.ignore_patterns("*.sock"))
                    accepted = list(company.accepted)
                    vfs.failing = ""
                    (crash / "run.json").unlink()
                    assert await kept(crash) == accepted
                    await company.until_accepted("after")
                await company.until_healthy()
                await company.hear()
        assert await kept(home) == company.accepted
    finally:
        vfs.unregister()
    assert audit(home).intact
