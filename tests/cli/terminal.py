"""Test double for a person at a terminal, who runs `tieline run` or another program."""

import contextlib
import os
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, environment, wait_until

# Makes its standard input the controlling terminal, as a terminal program does for a shell.
OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


RAW_OFF = termios.ICANON | termios.ECHO | termios.ISIG
LOCAL_FLAGS = 3


class Person:
    """Test double for a person at a terminal: types keys, and sees the output of a program."""

    def __init__(self, process: "subprocess.Popen[bytes]", keyboard: int, screen: int) -> None:
        self.process = process
        self._keyboard = keyboard
        self._screen = screen
        self.seen = b""
        self._reader = threading.Thread(target=self._look, daemon=True)
        self._reader.start()

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._keyboard, 65536):
                self.seen += data

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._keyboard, (rows, columns))

    def sees(self, text: str) -> None:
        wait_until(lambda: text.encode() in self.seen or self.process.poll() is not None, f"{text!r} on the screen")
        wait_until(lambda: text.encode() in self.seen, f"{text!r} on the screen: {self.seen!r}")

    def attributes(self) -> object:
        return termios.tcgetattr(self._screen)

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._screen)[LOCAL_FLAGS] & RAW_OFF

    def leaves(self) -> int:
        """Wait for the end of the program. Return the exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def everything(self) -> bytes:
        """Return all text that the program has shown on the screen. Call this after the program has ended."""
        # The byte written last arrives last, so all output before it has arrived.
        os.write(self._screen, b"\0")
        wait_until(lambda: self.seen.endswith(b"\0"), "the end of the screen")
        return self.seen[:-1]


@contextlib.contextmanager
def at_terminal(home: Path, *args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Iterator[Person]:
    """Run `tieline run` with these arguments on a new terminal. Yield the person at the terminal."""
    with at_terminal_of(str(TIELINE), "run", *args, env=environment(home, env), cwd=cwd) as person:
        yield person


@contextlib.contextmanager
def at_terminal_of(program: str, *args: str, env: dict[str, str], cwd: Path | None = None) -> Iterator[Person]:
    """Run a program on a new terminal. Yield the person at the terminal."""
    keyboard, screen = os.openpty()
    termios.tcsetwinsize(keyboard, (30, 100))
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, program, *args],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        env=env,
        cwd=cwd,
    )
    try:
        yield Person(process, keyboard, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(keyboard)
