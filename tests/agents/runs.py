"""Helpers to start `tieline run` with a stand-in (a script in place of a real agent program), and to check its end."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment, wait_until
from tieline.client import ActivityView

STANDINS = Path(__file__).parent / "standins"

PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
"""Search path that begins with the folder of this Python, so that stand-ins run in this Python."""


class StandIn:
    """A `tieline run` process for tests. Its agent program is a stand-in: a script that logs what happens to it."""

    def __init__(self, hub: HubProcess, process: "subprocess.Popen[str]", log: Path) -> None:
        self.hub = hub
        self.process = process
        self._log = log

    def notes(self, what: str) -> list[dict[str, Any]]:
        """Return the lines of the stand-in's log whose field `what` has this value."""
        if not self._log.exists():
            return []
        lines = self._log.read_text(encoding="utf-8").splitlines(keepends=True)
        notes = [json.loads(line) for line in lines if line.endswith("\n")]
        return [note for note in notes if note["what"] == what]

    def wait_for(self, what: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until the stand-in's log has `count` lines with this `what`. Return all of them."""
        wait_until(lambda: len(self.notes(what)) >= count or self.process.poll() is not None, f"{count} × {what}")
        assert len(self.notes(what)) >= count, self.process.stderr and self.process.stderr.read()
        return self.notes(what)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the requests and notifications with this `method` that the stand-in received."""
        return [note["message"] for note in self.notes("received") if note["message"].get("method") == method]

    def wait_for_told(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until the stand-in received `count` requests or notifications with this `method`. Return all of them."""
        wait_until(lambda: len(self.told(method)) >= count or self.process.poll() is not None, f"{count} × {method}")
        return self.told(method)

    def answered(self, number: int) -> list[dict[str, Any]]:
        """Return the answers that the stand-in received to its own request with the id `number`."""
        messages = [note["message"] for note in self.notes("received")]
        return [message for message in messages if message.get("id") == number and "method" not in message]

    def crash(self) -> None:
        """Kill the stand-in with SIGSEGV, so that it looks like a crash."""
        (started,) = self.notes("started")
        os.kill(started["pid"], signal.SIGSEGV)

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the `tieline run` process and wait for its end. Return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def pids(self) -> list[int]:
        """Return the ids of the processes that are in the stand-in's log: the stand-in and its MCP servers."""
        return [note["pid"] for what in ("started", "mcp_server") for note in self.notes(what)]

    def leaves_nothing(self) -> None:
        """Wait until no process of the run is alive, and all its folders are removed."""
        pids = self.pids()
        assert pids
        wait_until(lambda: not any(map(is_alive, pids)), f"the end of {pids}")
        runs = self.hub.home / "run"
        wait_until(lambda: not self._mine(runs), f"an empty folder {runs}")

    def _mine(self, runs: Path) -> list[Path]:
        """Return the folders in `runs` that belong to this run. Other tests have their folders there too."""
        named = json.dumps(self.notes("started"))
        return [path for path in runs.iterdir() if path.name in named]


def activity(hub: HubProcess, member: str) -> list[ActivityView]:
    """Return the activity log of a member, newest event first."""

    async def ask() -> list[ActivityView]:
        async with await hub.connect(member) as client:
            return list(await client.activity(member))

    return asyncio.run(ask())


def is_alive(pid: int) -> bool:
    """True if a process runs; a zombie does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@contextlib.contextmanager
def stand_in(
    hub: HubProcess, member: str, name: str, folder: Path, *options: str, args: tuple[str, ...] = (), **variables: str
) -> Iterator[StandIn]:
    """Start `tieline run` with a stand-in for the program `name` (`claude-code` or `codex`), as a member.

    `args` are arguments for the stand-in, `variables` are environment variables. All processes are killed at the end.
    """
    log = folder / f"log-{member}"
    program = {"claude-code": "claude", "codex": "codex"}[name]
    own_home = folder / f"user-{member}"
    own_home.mkdir()
    (own_home / "settings.json").write_text("{}", encoding="utf-8")
    # A project may have modules of any name, and none of them is ours.
    (own_home / "mcp.py").write_text("raise SystemExit('a module of the project was run')", encoding="utf-8")
    files = sorted(own_home.iterdir())
    given = {
        "STANDIN_LOG": str(log),
        f"{program.upper()}_PATH": str(STANDINS / program),
        "HOME": str(own_home),
        "PATH": PATH,
        **variables,
    }
    process = subprocess.Popen(
        [str(TIELINE), "run", "--as", member, *options, name, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(hub.home, given),
        cwd=own_home,
    )
    with process:
        run = StandIn(hub, process, log)
        try:
            yield run
            assert sorted(own_home.iterdir()) == files, "no file of the user was made or removed"
        finally:
            process.kill()
            for pid in run.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
