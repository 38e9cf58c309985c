"""Helpers to run programs under a terminal that a test reads and types into."""

import asyncio
import contextlib
import os
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tieline.agents.terminal import run_in_terminal
from tieline.wire.extractor import Instruction

DEADLINE_SECONDS = 20
RAW_OFF = termios.ICANON | termios.ECHO | termios.ISIG
LOCAL_FLAGS = 3

# Runs a program as `tieline run` does, on the event loop that the hub uses, for tests that signal the wrapper itself.
WRAPPER = """
import sys, uvloop
from tieline.agents.terminal import run_in_terminal
sys.exit(uvloop.run(run_in_terminal(sys.argv[1:], on_instruction=lambda said: print(said.body, file=sys.stderr))))
"""


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` returns true.

    Something outside this process, such as a program or a file, makes it true.
    """
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - files, processes and terminals set no event
            await asyncio.sleep(0.005)


class Screen:
    """Test double for a person's terminal. Programs use `fd`; the test reads `seen` and types keys."""

    def __init__(self) -> None:
        self._keyboard, self.fd = os.openpty()
        self.seen = bytearray()
        termios.tcsetwinsize(self.fd, (30, 100))
        os.set_blocking(self._keyboard, False)
        asyncio.get_running_loop().add_reader(self._keyboard, self._look)
        self.attributes = termios.tcgetattr(self.fd)

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            self.seen += os.read(self._keyboard, 65536)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._keyboard)
        os.close(self._keyboard)
        os.close(self.fd)

    def type(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._keyboard, (rows, columns))

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.fd)[LOCAL_FLAGS] & RAW_OFF

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.fd) == self.attributes

    async def shows(self, text: bytes) -> None:
        await until(lambda: text in self.seen)


class Outcome:
    """Result of a program that ran without a terminal: exit code, output and sent instructions."""

    def __init__(self, code: int, output: bytes, sent: list[Instruction]) -> None:
        self.code = code
        self.output = output
        self.sent = sent


async def run_piped(command: Sequence[str], given: bytes = b"", **options: Any) -> Outcome:
    """Run a command without a terminal: its stdin is a pipe with the bytes `given`, its output is another pipe."""
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    sent: list[Instruction] = []
    os.write(write_in, given)
    os.close(write_in)
    output = asyncio.create_task(asyncio.to_thread(read_to_end, read_out))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            code = await run_in_terminal(
                command, on_instruction=sent.append, stdin=read_in, stdout=write_out, **options
            )
    finally:
        os.close(write_out)
        os.close(read_in)
    return Outcome(code, await output, sent)


def read_to_end(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def bash(script: str) -> list[str]:
    return ["bash", "--norc", "-c", script]


def printing(path: Path, data: bytes) -> list[str]:
    """Write `data` to the file `path`. Return a command that prints exactly these bytes."""
    path.write_bytes(data)
    return bash(f"cat {path}")


def send_nothing(instruction: Instruction) -> None:
    raise AssertionError(instruction)


def start(
    screen: Screen,
    command: Sequence[str],
    on_instruction: Callable[[Instruction], None] = send_nothing,
    **options: Any,
) -> "asyncio.Task[int]":
    """Run a command on a test's terminal. Return the task, whose result is the exit code."""
    running = run_in_terminal(command, on_instruction=on_instruction, stdin=screen.fd, stdout=screen.fd, **options)
    return asyncio.create_task(running)


HELLO = Instruction(to="bob", body="hello")
