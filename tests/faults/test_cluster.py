"""Tests of several hubs of one team under load: whichever fails, each promise is kept and the team is back soon.

The senders and recipients are those of `test_kill`; each connects to any hub that lets it in. A round makes the leader
fail in one way. Afterwards the audit chain and the terms in the log are checked.
"""

import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg
import pytest

from tests.faults.cut_database import DatabaseWay
from tests.faults.processes import SOAK, seed_of_the_day
from tests.faults.test_kill import RECIPIENTS, SENDERS, SINK, Place
from tests.faults.test_postgres import PatientRecipient, RefusedSender, listen, talk
from tests.server.cluster.team import Team, TeamHub
from tests.stores.postgres_server import Server
from tieline.client import Client, HubError, connect
from tieline.core.audit import verify
from tieline.server.storage import DatabaseStorage

KILL, STOP, CUT, RESTART, PROMOTE = "kill", "stop", "cut", "restart", "promote"
_SOAKED = {KILL: 100, STOP: 20, CUT: 20, RESTART: 10, PROMOTE: 10}
FAULTS = [fault for fault, count in _SOAKED.items() for _ in range(count if SOAK else 1)]
WORST_SECONDS, MEDIAN_SECONDS = 8.0, 3.0
_STOPPED_SECONDS = 30.0 if SOAK else 4.0
_DRAIN_SECONDS = 900

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if SOAK else 240)]


class TeamPlace(Place):
    """Test helper: the team's hubs, of which each client tries one after the other."""

    def __init__(self, hubs: Sequence[TeamHub]) -> None:
        super().__init__(hubs[0].home, {})
        self._hubs = hubs

    async def join(self, name: str, *, receive: bool = False) -> Client:
        """Open a session of a member: at the hub with the number of the member, or else at another one."""
        first = int(name[-1]) % len(self._hubs)
        for number in range(len(self._hubs)):
            hub = self._hubs[(first + number) % len(self._hubs)]
            # A stopped hub does not answer. Its port is open.
            with contextlib.suppress(HubError, OSError):
                async with asyncio.timeout(2):
                    return await connect(token=self.tokens[name], url=hub.url, receive=receive, window=64)
        raise ConnectionError("no hub lets a client in")


class ClusterUnderLoad:
    """Test helper: three hubs that reach their database by ways that can be blocked."""

    def __init__(self, folder: Path, database: Server) -> None:
        self.database = database
        self.team = Team(folder, database.url)
        self.ways: dict[TeamHub, DatabaseWay] = {}

    async def start(self) -> None:
        """Start the hubs."""
        for _ in range(3):
            way = DatabaseWay(self.database.url)
            self.team.store = way.url
            hub = await self.team.add_hub("--log-level", "info")
            self.ways[hub] = way

    async def all_serving(self) -> TeamHub:
        """Wait until all hubs serve clients. Return the one that leads."""
        deadline = time.monotonic() + 60
        while True:
            said = [await asyncio.to_thread(hub.health) for hub in self.team.hubs]
            leaders = [hub for hub, one in zip(self.team.hubs, said, strict=True) if one.get("role") == "leader"]
            if len(leaders) == 1 and {one.get("status") for one in said} == {"ok"}:
                return leaders[0]
            assert time.monotonic() < deadline, said
            await asyncio.sleep(0.05)

    async def fail(self, leader: TeamHub, fault: str) -> None:
        """Make the leader fail in one way."""
        if fault == KILL:
            leader.kill()
        elif fault == STOP:
            os.kill(leader.pid, signal.SIGSTOP)
        elif fault == CUT:
            self.ways[leader].block()
        elif fault == RESTART:
            await asyncio.to_thread(self.database.stop)
            await asyncio.to_thread(self.database.start)
        else:
            other = next(one for one in self.team.hubs if one is not leader)
            with psycopg.connect(self.database.url) as connection:
                connection.execute("UPDATE tieline.lease SET preferred = %s", (other.address,))

    async def mend(self, leader: TeamHub, fault: str) -> None:
        """Let the hub that led before go on."""
        if fault == KILL:
            await leader.start()
        elif fault == STOP:
            # So long was the leader stopped at least.
            await asyncio.sleep(_STOPPED_SECONDS)
            os.kill(leader.pid, signal.SIGCONT)
        elif fault == CUT:
            self.ways[leader].unblock()
        for hub in self.team.hubs:
            assert hub.is_running(), hub.log.read_text(errors="replace")[-4000:]

    def terms(self) -> list[int]:
        """Return the terms in the log, in its order."""
        with psycopg.connect(self.database.url) as connection:
            return [row[0] for row in connection.execute("SELECT term FROM tieline.log ORDER BY log_offset")]

    def close(self) -> None:
        """End everything."""
        for hub in self.team.hubs:
            hub.kill()
        for way in self.ways.values():
            way.close()


@pytest.fixture
async def cluster(folder: Path) -> AsyncIterator[ClusterUnderLoad]:
    """Fixture: three hubs of one team, with a database of their own."""
    database = await asyncio.to_thread(Server, ("shared_buffers=32MB",))
    made = ClusterUnderLoad(folder, database)
    try:
        await made.start()
        yield made
    finally:
        await asyncio.to_thread(made.close)
        await asyncio.to_thread(database.remove)


async def test_a_team_whose_leader_fails_again_and_again_keeps_every_promise(cluster: ClusterUnderLoad) -> None:
    chance = random.Random(seed_of_the_day())
    senders = [RefusedSender(name, random.Random(chance.random())) for name in SENDERS]
    recipients = [PatientRecipient(name, random.Random(chance.random())) for name in RECIPIENTS]
    place = TeamPlace(cluster.team.hubs)
    await cluster.team.add_members(*SENDERS, *RECIPIENTS, SINK)
    place.tokens = cluster.team.tokens
    for name in RECIPIENTS:
        async with await place.join(name) as client:
            await client.subscribe("all-of-us")
    gaps: dict[str, list[float]] = {}
    for fault in FAULTS:
        leader = await cluster.all_serving()
        # Each client begins at its own hub again. One whose hub is stopped waits there as long as TCP does.
        tasks = [asyncio.create_task(talk(one, place)) for one in senders]
        tasks += [asyncio.create_task(listen(one, place)) for one in recipients]
        await hear_of_more(senders)
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        failing = asyncio.create_task(cluster.fail(leader, fault))
        gaps.setdefault(fault, []).append(await hear_of_more(senders, quiet=True))
        await failing
        await cluster.mend(leader, fault)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for fault, seconds in gaps.items():
        sys.stdout.write(f"{fault}: {statistics.median(seconds):.1f} s in the median, {max(seconds):.1f} s at most\n")
    await cluster.all_serving()
    for sender in senders:
        await finish(sender, place)
    for recipient in recipients:
        expected = {
            one.accepted[n]
            for one in senders
            for n, target in one.targets.items()
            if target in (f"@{recipient.name}", "#all-of-us")
        }
        await recipient.drain(place, expected, _DRAIN_SECONDS)
        assert expected == set(recipient.heard.values()), "what was said and nothing else"
    storage = DatabaseStorage(cluster.database.url, cluster.team.hubs[0].home)
    with contextlib.closing(storage.open_inspection()) as inspection:
        report = await asyncio.to_thread(verify, inspection)
    assert report.intact, report.findings
    total = sum(len(one.accepted) for one in senders)
    barriers = sum(recipient._barriers for recipient in recipients)
    assert total <= report.messages <= total + barriers, "each wire id is one message"
    written = cluster.terms()
    assert written == sorted(written), "no hub wrote in a term that was over"
    again = sum(sender.duplicates for sender in senders)
    sys.stdout.write(f"{len(FAULTS)} faults: {total} accepted, none lost, {again} known already, term {written[-1]}\n")
    for seconds in gaps.values():
        assert max(seconds) <= WORST_SECONDS
    assert statistics.median([one for seconds in gaps.values() for one in seconds]) <= MEDIAN_SECONDS


def accepted(senders: Sequence[RefusedSender]) -> int:
    return sum(len(one.accepted) for one in senders)


async def hear_of_more(senders: Sequence[RefusedSender], *, quiet: bool = False) -> float:
    """Wait until a hub accepts more messages. Return the seconds that this took.

    With `quiet`, the longest time between two of them within the next seconds: a fault has its effect a little later.
    """
    longest, last, before = 0.0, time.monotonic(), accepted(senders)
    until = last + (3.0 if quiet else 0.0)
    while True:
        now, count = time.monotonic(), accepted(senders)
        if count > before:
            longest, last, before = max(longest, now - last), now, count
            if now > until:
                return longest
        assert now - last < 60, "nobody accepts anything"
        await asyncio.sleep(0.01)


async def finish(sender: RefusedSender, place: TeamPlace) -> None:
    """Send all unanswered messages again, at any hub that lets the sender in."""
    deadline = time.monotonic() + 60
    while True:
        try:
            await sender.finish(place)
        except (HubError, OSError):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        else:
            return
