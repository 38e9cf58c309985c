"""Tests with kill -9 of a hub on PostgreSQL and of its database, in turn, under load: each promise is kept.

The senders and recipients are those of `test_kill`. After each kill of the hub, it starts again. After each kill of the
database, the hub goes on by itself: it finds out if its last commit arrived, and its sessions stay. The server syncs
its files, as it does in use.
"""

import asyncio
import contextlib
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_kill import RECIPIENTS, SENDERS, Place, Recipient, Sender, introduce
from tests.server.hubs import until
from tests.stores.postgres_server import Server
from tieline.core.audit import AuditReport, verify
from tieline.server.storage import DatabaseStorage

ROUNDS = 50 if SOAK else 2
_DRAIN_SECONDS = 900
"""Longest wait for what was not received between the kills. Each message costs a sync or two of a busy disk."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if SOAK else 120)]


class HubOnPostgres(HubProcess):
    """Test helper: a process of `tieline serve` whose store is a server that a test can kill."""

    def __init__(self, home: Path, url: str) -> None:
        super().__init__(home)
        self.url = url

    def environment(self) -> dict[str, str]:
        """Return the environment of the process, which names the store."""
        return {**super().environment(), "TIELINE_STORE": self.url}


def audit(hub: HubOnPostgres) -> AuditReport:
    """Verify the audit chain of a hub from outside. Return the report."""
    with contextlib.closing(DatabaseStorage(hub.url, hub.home).open_inspection()) as inspection:
        return verify(inspection)


@pytest.fixture
def database() -> Iterator[Server]:
    made = Server(("shared_buffers=32MB",))
    yield made
    made.remove()


@pytest.fixture
def hub(folder: Path, database: Server) -> Iterator[HubOnPostgres]:
    process = HubOnPostgres(folder / "home", database.url)
    yield process
    process.kill()


class RefusedSender(Sender):
    """Test sender whose messages may be refused while messages that it sent after them are accepted."""

    def _settle(self, number: int, target: str) -> None:
        self._open.remove((number, target))


class PatientRecipient(Recipient):
    """Test recipient of messages that may come late, because they were refused first."""

    def _check_order(self, sender: str, number: int) -> None:
        self._last[sender] = number


async def talk(sender: Sender, place: Place) -> None:
    """Send messages until the task is cancelled. While the database is away, the hub refuses them; then send again."""
    while True:
        await sender.talk(place)
        await asyncio.sleep(0.02)


async def listen(recipient: Recipient, place: Place) -> None:
    """Receive messages until the task is cancelled, also after the hub ended the session."""
    while True:
        await recipient.listen(place)
        await asyncio.sleep(0.02)


def accepted(senders: Sequence[Sender]) -> int:
    return sum(len(one.accepted) for one in senders)


async def hear_of_more(senders: Sequence[Sender]) -> None:
    """Wait until the hub accepts more messages."""
    before = accepted(senders)
    await until(lambda: accepted(senders) > before, seconds=60)


async def test_a_hub_and_its_database_that_are_killed_in_turn_under_load_keep_every_promise(
    hub: HubOnPostgres, database: Server
) -> None:
    chance = random.Random(seed_of_the_day())
    senders = [RefusedSender(name, random.Random(chance.random())) for name in SENDERS]
    recipients = [PatientRecipient(name, random.Random(chance.random())) for name in RECIPIENTS]
    place = await introduce(hub)
    rows = 0
    for number in range(ROUNDS):
        tasks = [asyncio.create_task(talk(one, place)) for one in senders]
        tasks += [asyncio.create_task(listen(one, place)) for one in recipients]
        await hear_of_more(senders)
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        if number % 2:
            # Its processes are killed too: the server that starts must recover from its write-ahead log.
            await asyncio.to_thread(database.kill)
            await asyncio.sleep(chance.uniform(0, 0.2))
            await asyncio.to_thread(database.start)
            await hear_of_more(senders)
            assert hub.is_running(), "the hub outlasts its database"
        else:
            hub.kill()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            assert task.cancelled(), task.exception()
        report = await asyncio.to_thread(audit, hub)
        assert report.intact, f"after kill {number}: {report.findings}"
        assert report.rows >= rows, "the log never gets shorter"
        rows = report.rows
        if not number % 2:
            place.running = await hub.start()
    for sender in senders:
        await sender.finish(place)
    for recipient in recipients:
        expected = {
            one.accepted[n]
            for one in senders
            for n, target in one.targets.items()
            if target in (f"@{recipient.name}", "#all-of-us")
        }
        waiting = len(expected - set(recipient.heard.values()))
        sys.stdout.write(f"{recipient.name}: {len(expected)} messages, {waiting} of them not heard before the end\n")
        await recipient.drain(place, expected, _DRAIN_SECONDS)
        assert expected == set(recipient.heard.values()), "what was said and nothing else"
    assert await hub.stop() == 0
    report = audit(hub)
    assert report.intact, report.findings
    total = accepted(senders)
    barriers = sum(recipient._barriers for recipient in recipients)
    assert total <= report.messages <= total + barriers, "each wire id is one message"
    again = sum(sender.duplicates for sender in senders)
    known = f"{again} that were sent again were known already"
    sys.stdout.write(f"{ROUNDS} kills: {total} messages accepted, none lost; {known}; {report.rows} rows intact\n")
