"""Test helpers that run a real hub in a separate process, and the real command line against it.

For any test that needs `tieline` as its users have it: `with HubProcess() as hub: hub.cli("members")`.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Self

from tieline.client import Client, connect
from tieline.wire.home import RUN_FILE, Running, read_running

TIELINE = Path(sys.executable).with_name("tieline")
OWN_VARIABLES = ("TIELINE_", "BACKCHANNEL_", "PEERBUS_")
DEADLINE_SECONDS = 60.0
"""Maximum time to wait for anything in these tests. A test that hangs fails after it, with the output of the hub."""


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Call a function until it returns true. Fail after `DEADLINE_SECONDS`; `what` is for the error text."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS} s for: {what}"
        time.sleep(0.01)


def environment(home: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return environment variables for this home, without the variables of the developer's own hub."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    return {**mine, "TIELINE_HOME": str(home), "COLUMNS": "120", **(extra or {})}


def run_cli(
    home: Path, *args: str, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `tieline` in this home and wait for its end. Return the exit code and output."""
    return subprocess.run(
        [str(TIELINE), *args],
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(home, env),
        timeout=DEADLINE_SECONDS,
    )


class HubProcess:
    """A real hub for tests: `tieline serve` with its own home.

    The home has a short path because it contains sockets.
    """

    def __init__(self, *options: str, home: Path | None = None) -> None:
        # This folder is removed with the hub; a home given by the caller is not.
        self.folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
        self.home = home or self.folder / "home"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._output: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> Running:
        """Contents of the hub's file `run.json`: its process and addresses."""
        running = read_running(self.home)
        assert running is not None, f"no hub runs in {self.home}: {self.stderr}"
        return running

    @property
    def stdout(self) -> str:
        """Output of the hub since its last start."""
        return (self.folder / "stdout").read_text(encoding="utf-8")

    @property
    def stderr(self) -> str:
        """Log of the hub since its last start."""
        return (self.folder / "stderr").read_text(encoding="utf-8")

    def start(self) -> Running:
        """Start the hub and wait until every listener is ready."""
        assert self._process is None, "it runs already"
        self._output = [(self.folder / name).open("wb") for name in ("stdout", "stderr")]
        self._process = subprocess.Popen(
            [str(TIELINE), "serve", "--home", str(self.home), "--http", "127.0.0.1:0", *self._options],
            stdin=subprocess.DEVNULL,
            stdout=self._output[0],
            stderr=self._output[1],
            env=environment(self.home),
        )
        process = self._process

        def ready() -> bool:
            assert process.poll() is None, f"the hub ended with {process.returncode}: {self.stderr}"
            running = read_running(self.home)
            return running is not None and running.pid == process.pid

        wait_until(ready, f"{RUN_FILE} of the hub")
        return self.running

    def signal(self, number: signal.Signals) -> int:
        """Send a signal to the hub and wait until it has ended. Return the exit code."""
        assert self._process is not None, "it runs"
        self._process.send_signal(number)
        return self._wait()

    def stop(self) -> int:
        """Stop the hub with the signal that a service manager sends. Return the exit code."""
        return self.signal(signal.SIGTERM)

    def kill9(self) -> None:
        """Kill the hub with SIGKILL. Do nothing if it does not run."""
        if self._process is not None:
            self.signal(signal.SIGKILL)

    def _wait(self) -> int:
        assert self._process is not None, "it runs"
        try:
            return self._process.wait(DEADLINE_SECONDS)
        finally:
            self._process = None
            for file in self._output:
                file.close()

    # Talking to it.

    def cli(self, *args: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run `tieline` in this home and wait for its end. Return the exit code and output."""
        return run_cli(self.home, *args, stdin=stdin, env=env)

    @contextlib.contextmanager
    def cli_running(self, *args: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
        """Start `tieline` in the background, with its output in pipes. Kill it at the end if it still runs."""
        with subprocess.Popen(
            [str(TIELINE), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.home, env),
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    async def connect(self, member: str | None = None, *, receive: bool = False, window: int = 256) -> Client:
        """Open a session with the SDK, for steps of a test that need no command.

        Without `member`, the session is the operator's. With `receive`, the hub pushes deliveries, and at most `window`
        of them may be unacknowledged.
        """
        return await connect(home=self.home, member=member, receive=receive, window=window)

    def add_members(self, *names: str) -> list[str]:
        """Make members in one session, because a command for each is slow. Return their tokens."""

        async def add() -> list[str]:
            async with await self.connect() as operator:
                return [(await operator.add_member(name)).token for name in names]

        return asyncio.run(add())

    def send(self, sender: str, target: str, *bodies: str, scope: str | None = None) -> list[str]:
        """Send messages. Return their ids."""

        async def say() -> list[str]:
            async with await self.connect(sender) as client:
                return [(await client.send(target, body, scope=scope)).id for body in bodies]

        return asyncio.run(say())

    def number(self, member: str, message_id: str) -> str:
        """Return the number of one of the member's newest messages: the short id that commands print."""

        async def ask() -> str:
            async with await self.connect(member) as client:
                return next(str(one.offset) for one in await client.history() if one.id == message_id)

        return asyncio.run(ask())

    def states(self, sender: str, message_id: str) -> dict[str, str]:
        """Return the state of a message for each recipient, by name."""

        async def ask() -> dict[str, str]:
            async with await self.connect(sender) as client:
                return {receipt.member: receipt.state for receipt in await client.receipts(message_id)}

        return asyncio.run(ask())

    def member_names(self) -> set[str]:
        """Return the names of all members."""

        async def ask() -> set[str]:
            async with await self.connect() as operator:
                return {member.name for member in await operator.members()}

        return asyncio.run(ask())

    def is_busy(self, name: str) -> bool:
        """True if a member has reported that it is busy."""

        async def ask() -> bool:
            async with await self.connect() as operator:
                return any(member.busy for member in await operator.members() if member.name == name)

        return asyncio.run(ask())

    def session_count(self, name: str) -> int:
        """Return the number of open sessions of a member."""

        async def ask() -> int:
            async with await self.connect() as operator:
                return sum(len(member.sessions) for member in await operator.members() if member.name == name)

        return asyncio.run(ask())
