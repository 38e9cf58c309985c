"""Tests of backups under load: the restored hub starts, and has all that was accepted before the backup.

Members send and acknowledge, and upload, replace and remove files, while backups are made, restored and started.
"""

import asyncio
import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.processes import ROOT, SOAK, HubProcess, seed_of_the_day
from tests.server.hubs import until
from tieline.client import Client, HubError, HubRefused, connect
from tieline.wire.home import Running

ROUNDS = 20 if SOAK else 1
MEMBERS = ("ann", "ben", "cleo", "files")
WAITS = "ben"
"""Member that acknowledges nothing, so that all messages to it wait."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if SOAK else 120)]


class Load:
    """Test helper: members of a hub that are busy until they are cancelled."""

    def __init__(self, home: Path, running: Running, token: str, chance: random.Random) -> None:
        self._home = home
        self._running = running
        self._token = token
        self._chance = chance
        # Bodies of messages to ben: those that were sent, and those that were accepted.
        self.sent: set[str] = set()
        self.accepted: set[str] = set()
        # The longest time until the hub accepted a message, in seconds.
        self.slowest = 0.0

    @contextlib.asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Keep the members busy during the `with` block. Raise what one of them raised."""
        members = [self._send(), self._acknowledge(), self._change_files()]
        tasks = [asyncio.create_task(member) for member in members]
        try:
            yield
            for task in tasks:
                assert not task.done(), task.exception()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        async with await connect(home=self._home, member="ann") as ann:
            for number in itertools.count(len(self.sent)):
                body = f"{number} {'word ' * self._chance.randrange(200)}"
                self.sent.add(body)
                begun = time.perf_counter()
                await ann.send(f"@{WAITS}", body)
                self.slowest = max(self.slowest, time.perf_counter() - begun)
                self.accepted.add(body)
                await ann.send("@cleo", f"to acknowledge {number}")

    async def _acknowledge(self) -> None:
        async with await connect(home=self._home, member="cleo", receive=True) as cleo:
            async for delivery in cleo:
                cleo.ack(delivery)

    async def _change_files(self) -> None:
        for number in itertools.count():
            path = f"/files/{self._chance.randrange(8)}.txt"
            content = f"{number} ".encode() * self._chance.randrange(1, 20_000)
            await asyncio.to_thread(self._ask, f"/fs/write?path={path}&collide=overwrite", content)
            if number % 3 == 0:
                await asyncio.to_thread(self._ask, f"/fs/rm?path={path}", None)

    def _ask(self, path: str, content: bytes | None) -> None:
        method = "DELETE" if content is None else "POST"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "text/plain"}
        request = urllib.request.Request(self._running.http + path, content, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            answer.read()


def run(*args: str) -> str:
    """Run `tieline` and return its output. Fail if it fails."""
    code = "from tieline.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def inbox(client: Client) -> list[str]:
    """Return the bodies of all waiting messages."""
    found: list[str] = []
    after = 0
    while True:
        page = await client.inbox(after=after, limit=1000)
        found += [item.message.body for item in page.items]
        if page.complete:
            return found
        after = page.through


async def epoch(home: Path) -> str:
    async with await connect(home=home) as operator:
        return (await operator.read_log(limit=1)).epoch


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Fixture: a folder with a short path, because homes have sockets."""
    path = Path("/tmp") / f"tlb-{tmp_path.parent.name[-6:]}-{tmp_path.name[-4:]}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_a_backup_under_load_has_all_that_was_accepted_before_it(folder: Path) -> None:
    chance = random.Random(seed_of_the_day())
    hub = HubProcess(folder / "home")
    running = await hub.start()
    try:
        async with await connect(home=hub.home) as operator:
            tokens = [(await operator.add_member(name)).token for name in MEMBERS]
        load = Load(hub.home, running, tokens[-1], chance)
        async with load.busy():
            for number in range(ROUNDS):
                await back_up_and_restore(folder, hub.home, load, number)
    finally:
        hub.kill()


async def back_up_and_restore(folder: Path, home: Path, load: Load, number: int) -> None:
    enough = len(load.accepted) + 20
    await until(lambda: len(load.accepted) >= enough)
    file, restored = folder / f"{number}.tar.gz", folder / f"r{number}"
    before, load.slowest = set(load.accepted), 0.0
    begun = time.perf_counter()
    await asyncio.to_thread(run, "backup", str(file), "--home", str(home))
    took, during = time.perf_counter() - begun, len(load.accepted) - len(before)
    said = f"round {number}: {len(before)} messages before, {during} during {took:.1f} s"
    sys.stdout.write(f"{said}; the slowest accepted after {load.slowest * 1000:.0f} ms\n")
    await asyncio.to_thread(run, "restore", str(file), "--home", str(restored))
    again = HubProcess(restored)
    await again.start()
    try:
        async with await connect(home=restored, member=WAITS) as ben:
            found = await inbox(ben)
        assert len(found) == len(set(found))
        assert before <= set(found) <= load.sent
        async with await connect(home=restored) as operator:
            assert {member.name for member in await operator.members()} >= set(MEMBERS)
            old = await epoch(home)
            assert old != await epoch(restored)
            with pytest.raises(HubRefused, match="epoch"):
                await operator.advance_reader("pipeline", 1, epoch=old)
        async with await connect(home=restored, member="ann") as ann:
            await ann.send(f"@{WAITS}", "after the restore")
    finally:
        with contextlib.suppress(HubError):
            await again.stop()
    assert "Intact" in await asyncio.to_thread(run, "audit", "verify", "--home", str(restored))
    shutil.rmtree(restored)
    file.unlink()
