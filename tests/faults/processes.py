"""Test helpers that run hubs as separate processes, so that a test can kill them at any moment."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tieline.wire.home import Running, read_running

ROOT = Path(__file__).resolve().parents[2]
SOAK = bool(os.environ.get("TIELINE_SOAK"))
START_SECONDS = 120 if SOAK else 30

_SERVE = "from tieline.cli.main import main; main()"


class HubProcess:
    """Test helper: a process of `tieline serve`, on a free port unless `http` names an address.

    `arguments` are more options of the command.
    """

    def __init__(self, home: Path, http: str = "127.0.0.1:0", arguments: Sequence[str] = ()) -> None:
        self.home = home
        self._arguments = tuple(arguments)
        # Address for the next start of the hub.
        self.http = http
        self.log = home.with_name(f"{home.name}.log")
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> Running:
        """Start the hub and wait until all its listeners are ready. Return its `run.json`."""
        self._process = self._spawn()
        deadline = time.monotonic() + START_SECONDS
        while (running := read_running(self.home)) is None or running.pid != self._process.pid:
            assert self._process.poll() is None, self.log.read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline, f"the hub did not start: {self.log.read_text(errors='replace')[-4000:]}"
            await asyncio.sleep(0.01)
        return running

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _SERVE, "serve", "--home", str(self.home), "--http", self.http]
        command += self._arguments
        with self.log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self.environment(), stdout=log, stderr=log)

    def environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return {name: value for name, value in os.environ.items() if not name.startswith("TIELINE_")}

    def is_running(self) -> bool:
        """True if the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the hub with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    async def stop(self) -> int:
        """Stop the hub. Return its exit code."""
        assert self._process is not None, "started before"
        self._process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self._process.wait, START_SECONDS)
        self._process = None
        return code


def seed_of_the_day() -> int:
    """Return the random seed of a test run, and print it. The environment can set it, to repeat a failed run."""
    named = os.environ.get("TIELINE_FAULT_SEED")
    seed = int(named) if named else int.from_bytes(os.urandom(4), "big")
    sys.stdout.write(f"seed {seed}: run again with TIELINE_FAULT_SEED={seed}\n")
    return seed


def children(pid: int) -> set[int]:
    """Return the process ids of the children of a process."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            # A thread may end in between.
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found


def worker_pids(pid: int) -> set[int]:
    """Return the process ids of the workers of a hub."""
    found = set()
    for child in children(pid):
        with contextlib.suppress(OSError):
            # A process may end in between.
            if b"tieline.server.workers.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.add(child)
    return found


def has_ended(pid: int) -> bool:
    """Return true if a process does not exist any more, or waits only to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
