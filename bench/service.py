"""The pipeline as the hub's child (`serve --pipeline 5m`) at 8 events a second: share of a core, and memory.

The measurement begins after the first run, which has the start of the hub to read. It ends after `--duration` minutes,
when no run is going on. Processor time is that of all processes below the hub: guard, service, run, Java and Python
workers. Then a run without new rows is measured alone; its share is its processor time over the interval.
"""

import asyncio
import contextlib
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no types of its own

from bench.context import Context
from bench.processes import BenchError, Server, environment, hub_command, started, temporary_home
from bench.report import Goal, Report, Table
from tieline.client import connect
from tieline.wire.home import read_running

EVERY, EVERY_QUICK = "5m", "1m"
EVERY_SECONDS = {EVERY: 300, EVERY_QUICK: 60}
EVENTS_PER_SECOND = 8
IDLE_RUNS = 3
_SHARE_MAX, _IDLE_SHARE_MAX = 0.1, 0.02
_WAIT_SECONDS_MAX = 300.0
_SAMPLE_SECONDS = 0.2
_MEMORY_SAMPLES = 10  # memory is read at every tenth sample, because reading it stops the process for a moment
_RUN_SECONDS_MIN = 2.0  # shorter is only the question for Java's version
_MIB = 2**20


class _Usage:
    """Processor time and memory of all processes below one process, until `stop`."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._seconds: dict[tuple[int, float], float] = {}
        # The time that the processes used before: the first run ends while the measurement begins.
        self._before: dict[tuple[int, float], float] = {}
        for one in self._root.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                self._before[self._key(one)] = _used(one)
        self._memory: list[int] = []
        self.runs: list[float] = []
        """Processor seconds of each run that started Java."""
        self.java = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        return sum(used - self._before.get(key, 0.0) for key, used in list(self._seconds.items()))

    @property
    def memory(self) -> list[int]:
        return self._memory or [0]

    def _look(self) -> None:
        count, before = 0, 0.0
        while not self._ended.wait(_SAMPLE_SECONDS):
            held, java = 0, False
            try:
                below = self._root.children(recursive=True)
            except psutil.Error:
                return
            for process in below:
                with contextlib.suppress(psutil.Error):
                    self._seconds[self._key(process)] = _used(process)
                    java |= process.name() == "java"
                    if count % _MEMORY_SAMPLES == 0:
                        held += process.memory_full_info().pss
            if java and not self.java:
                before = self.seconds
            elif self.java and not java and self.seconds - before > _RUN_SECONDS_MIN:
                self.runs.append(self.seconds - before)
            self.java = java
            if count % _MEMORY_SAMPLES == 0:
                self._memory.append(held)
            count += 1

    @staticmethod
    def _key(process: psutil.Process) -> tuple[int, float]:
        return process.pid, process.create_time()

    def stop(self) -> None:
        """Stop measuring."""
        self._ended.set()
        self._thread.join()


def _used(process: psutil.Process) -> float:
    """Processor seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def _talk(home: Path, begun: float, until: float) -> tuple[int, float]:
    """Send and acknowledge messages so that the log grows evenly. Return the number of rows, and the rate."""
    async with (
        await connect(home=home) as operator,
        await connect(home=home, member="alice") as alice,
        await connect(home=home, member="bob", receive=True) as bob,
    ):

        async def end() -> int:
            return sum(one.end for one in (await operator.readers()).logs)

        first, sent = await end(), 0
        while time.monotonic() < until:
            rows = await end() - first
            if rows < EVENTS_PER_SECOND * (time.monotonic() - begun):
                sent += 1
                await alice.send("@bob", f"message {sent}")
                bob.ack(await bob.next_delivery())
            else:
                await asyncio.sleep(1 / EVENTS_PER_SECOND)
        rows = await end() - first
    return rows, rows / (time.monotonic() - begun)


async def _add_members(home: Path) -> None:
    async with await connect(home=home) as operator:
        for name in ("alice", "bob"):
            await operator.add_member(name)


def _wait_for_report(server: Server) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS_MAX
    while "tieline_pipeline_report_time_seconds" not in server.figures():
        if time.monotonic() > deadline:
            raise BenchError("the pipeline stored no report")
        time.sleep(1)


def _wait_for_end_of_run(pid: int) -> None:
    """Wait until no process below the hub is Java, so that no part of the first run is measured."""
    hub, java = psutil.Process(pid), True
    while java:
        time.sleep(_SAMPLE_SECONDS)
        java = False
        for one in hub.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                java |= one.name() == "java"


def _idle_seconds(home: Path) -> float:
    """Processor seconds of a run without new rows."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(_run_command(home), env=environment(), capture_output=True, text=True, check=True)
    if "Nothing new" not in done.stdout:
        raise BenchError(f"the run was not idle: {done.stdout}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(context: Context) -> Report:
    """Run a hub with the pipeline as its child, and send messages to it."""
    report = Report("service")
    every = EVERY_QUICK if context.quick else EVERY
    with temporary_home(context.folder) as home:
        command = [*hub_command(home, "sqlite"), "--pipeline", every]
        with started(command, home / "bench.log", lambda: read_running(home) is not None):
            running = read_running(home)
            assert running is not None, "the hub said so a moment ago"
            server = Server(running.pid, home, running.http)
            asyncio.run(_add_members(home))
            _wait_for_report(server)
            _wait_for_end_of_run(running.pid)
            usage = _Usage(running.pid)
            begun = time.monotonic()
            rows, rate = asyncio.run(_talk(home, begun, begun + 60 * context.duration_minutes))
            while usage.java:
                time.sleep(_SAMPLE_SECONDS)
            usage.stop()
            seconds = time.monotonic() - begun
        # Without the hub's child, nothing else reads the last rows.
        subprocess.run(_run_command(home), env=environment(), capture_output=True, check=True)
        idle = [_idle_seconds(home) for _ in range(IDLE_RUNS)]
    share = usage.seconds / seconds
    idle_share = sorted(idle)[IDLE_RUNS // 2] / EVERY_SECONDS[every]
    report.add("share of a core", share)
    report.add("share of a core, nothing new", idle_share)
    memory = sorted(usage.memory)
    report.tables.append(
        Table(
            f"serve --pipeline {every}, {rate:.1f} events/s for {seconds / 60:.1f} minutes ({rows:,} rows)",
            ["runs", "cpu s a run", "cpu s in all", "share of a core", "nothing new", "MiB at rest", "MiB at most"],
            [
                [
                    str(len(usage.runs)),
                    ", ".join(f"{one:.1f}" for one in usage.runs),
                    f"{usage.seconds:.1f}",
                    f"{share:.3f}",
                    f"{idle_share:.4f}",
                    f"{memory[len(memory) // 2] / _MIB:,.0f}",
                    f"{memory[-1] / _MIB:,.0f}",
                ]
            ],
        )
    )
    report.goals += [
        Goal(f"service: share of a core at {EVENTS_PER_SECOND} events/s, every {EVERY}", f"≤ {_SHARE_MAX:g}",
             f"{share:.3f}", None if context.quick else share <= _SHARE_MAX),
        Goal(f"service: share of a core without new rows, every {EVERY}", f"≤ {_IDLE_SHARE_MAX:g}",
             f"{idle_share:.4f}", None if context.quick else idle_share <= _IDLE_SHARE_MAX),
    ]  # fmt: skip
    return report


def _run_command(home: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "tieline.cli.main", "pipeline", "run", "--home", str(home)]
