"""Test helpers that attack a real hub process and measure the cost for the hub and for an innocent session.

One such attack is called a campaign. It measures three values. *Peak memory* is the kernel's high-water mark of the
hub, minus its memory before the attack. The *longest hold* is the longest processor time of the event loop in one
callback, and of the broker's thread in one command; the name of that work is printed too (see `hub`). The *wait* is the
p99 of the innocent session, before and during the attack. The first two have limits. The third is only printed, because
the machine has other work.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from tests.faults.attacks.hub import COMMAND, LOOP
from tests.faults.attacks.innocent import READY, RECIPIENT, SENDER
from tests.faults.processes import ROOT, SOAK, HubProcess
from tieline.client import connect
from tieline.contract.member import MemberKind
from tieline.stores.sqlite.inspection import open_inspection
from tieline.wire.home import Running

PEAK_BYTES_MAX = 150 * 1024 * 1024
HOLD_SECONDS_MAX = 0.050
ALONE_SECONDS = 5.0 if SOAK else 0.3
"""Time for which the innocent session is measured before the attack."""
_PATIENCE_SECONDS = 120
"""Time limit for an answer of the hub. After it the hub counts as stuck."""


class Figures(Struct, frozen=True):
    """Record: the measured cost of one attack."""

    name: str
    seconds: float
    peak_bytes: int
    holds: dict[str, tuple[float, str]]
    wait: dict[str, float]
    alone: dict[str, float]

    def __str__(self) -> str:
        held = ", ".join(
            f"{kind} {1000 * seconds:.1f} ms ({by[:60]})" for kind, (seconds, by) in sorted(self.holds.items())
        )
        return (
            f"{self.name}: {self.seconds:.1f} s; peak +{self.peak_bytes / 2**20:.0f} MiB; holds: {held}; innocent p99 "
            f"{1000 * self.wait['p99']:.1f} ms of {self.wait['count']:.0f}, {1000 * self.alone['p99']:.1f} ms without"
        )

    @property
    def longest_hold(self) -> float:
        """Return the longest processor time of one callback or one command, in seconds."""
        return max(self.holds[kind][0] for kind in (LOOP, COMMAND))

    def check(self) -> None:
        """Print the values, and check that memory and the longest hold are within their limits."""
        sys.stdout.write(f"{self}\n")
        assert self.peak_bytes <= PEAK_BYTES_MAX, str(self)
        assert self.longest_hold <= HOLD_SECONDS_MAX, str(self)


class WatchedHub(HubProcess):
    """Test helper: the attacked hub as a process, with its measurements."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.report = home.with_name(f"{home.name}.holds")
        self.tokens: dict[str, str] = {}

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.faults.attacks.hub", str(self.home), str(self.report)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIELINE_")}
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    @property
    def running(self) -> Running:
        """Return the hub's `run.json`."""
        running = self._running
        assert running is not None, "started before"
        return running

    _running: Running | None = None

    async def begin(self, *names: str) -> None:
        """Start the hub. Make the members of the innocent session, and members with these names."""
        self._running = await self.start()
        async with await connect(home=self.home) as operator:
            for name in (SENDER, RECIPIENT, *names):
                kind = MemberKind.SCRIPT if name in (SENDER, RECIPIENT) else MemberKind.AGENT
                self.tokens[name] = (await operator.add_member(name, kind=kind)).token

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port of the hub's HTTP port."""
        parts = urlsplit(self.running.http)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    async def take_holds(self) -> dict[str, tuple[float, str]]:
        """Return the longest processor times since the last call, by kind of work, each with the name of the work."""
        self.report.unlink(missing_ok=True)
        os.kill(self.running.pid, signal.SIGUSR1)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not self.report.exists():  # noqa: ASYNC110 - a file of another process sets no event
                await asyncio.sleep(0.01)
        found: dict[str, tuple[float, str]] = json.loads(self.report.read_bytes())
        return found

    def forget_peak(self) -> int:
        """Reset the kernel's value of the highest memory use to the current use. Return this use in bytes."""
        Path(f"/proc/{self.running.pid}/clear_refs").write_text("5")
        return self.peak()

    def peak(self) -> int:
        """Return the highest memory use since `forget_peak`, in bytes."""
        lines = Path(f"/proc/{self.running.pid}/status").read_text().splitlines()
        (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kilobytes) * 1024

    def complaints(self) -> str:
        """Return the first traceback in the hub's log, or an empty text if there is none."""
        log = self.log.read_text(errors="replace")
        return log[log.find("Traceback") :][:4000] if "Traceback" in log else ""

    def rows(self, event: str) -> int:
        """Return the number of rows of the log with this kind of event."""
        with contextlib.closing(open_inspection(self.home)) as inspection:
            return sum(json.loads(row.event)["event"] == event for row in inspection.rows())


class Innocent:
    """Test helper: an innocent session (a member that sends normal messages) in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ready(self) -> None:
        """Wait until the innocent session has sent its first message."""
        assert await self._line() == f"{READY}\n".encode()

    async def waits(self) -> dict[str, float]:
        """Return the summary of the waiting times since the last call: count, p50 and p99 in seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        found: dict[str, float] = json.loads(await self._line())
        return found

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        async with asyncio.timeout(_PATIENCE_SECONDS):
            line = await self._process.stdout.readline()
        assert line, "the innocent session was ended"
        return line


@contextlib.asynccontextmanager
async def innocent(hub: WatchedHub) -> AsyncIterator[Innocent]:
    """Start the process of an innocent session and yield the session. Kill the process at the end."""
    command = (sys.executable, "-m", "tests.faults.attacks.innocent", str(hub.home))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        session = Innocent(process)
        await session.ready()
        yield session
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(name: str, hub: WatchedHub, attack: Callable[[WatchedHub], Awaitable[None]]) -> Figures:
    """Run an attack on a hub beside an innocent session. Return the measured cost."""
    async with innocent(hub) as session:
        # Measure first how long the innocent session waits without the attack.
        await asyncio.sleep(ALONE_SECONDS)
        alone = await session.waits()
        await hub.take_holds()
        before = hub.forget_peak()
        started = time.monotonic()
        await attack(hub)
        seconds = time.monotonic() - started
        wait = await session.waits()
        return Figures(name, seconds, hub.peak() - before, await hub.take_holds(), wait, alone)
