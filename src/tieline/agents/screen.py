"""The screen: writes the output of a program, and prints messages between the lines of the output.

Used by: `terminal`, which decides when a message does not disturb the program. Uses: file descriptors. A write to a
screen can block, so one thread does all writes. A lock keeps the writes in order.
"""

import asyncio
import os
import re
import select
from concurrent.futures import ThreadPoolExecutor

from tieline.contract.text import neutral

_LINE_BYTES_MAX = 4096
"""Maximum number of bytes of an unfinished line that are kept. A prompt with colours and a title is shorter."""

# Text, and escape sequences that stay on their line: colours, titles, modes and line editing. Printed again at the left
# edge, these bytes draw the same line again and leave the cursor at the same place.
_REPEATABLE = re.compile(
    rb"(?:[\x08\t\r\x20-\x7e\x80-\xff]++|\x1b[=>]|\x1b\[[0-?]*+[@CDGKPXhlm]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\))*"
)
_LEAVE_ALTERNATE = b"\x1b[?1049l"


class Screen:
    """Writes the output of a program to the terminal, and prints messages between the lines of the output."""

    def __init__(self, stdout: int, messages: int, *, line_end: str) -> None:
        self._stdout = stdout
        self._messages = messages
        self._line_end = line_end.encode()
        self._thread = ThreadPoolExecutor(1, "tieline-screen")
        self._lock = asyncio.Lock()
        # The start of the program's unfinished line. Stays empty if messages are printed to another file descriptor.
        self._line = bytearray()

    @property
    def busy(self) -> bool:
        """True while a write is under way."""
        return self._lock.locked()

    def close(self) -> None:
        """Begin no further writes to the terminal. A write that already blocks is not interrupted."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def pass_on(self, data: bytes) -> None:
        """Write output of the program to the terminal."""
        async with self._lock:
            await self._write(self._stdout, data)
            if self._messages == self._stdout:
                _, line_end, rest = data.rpartition(b"\n")
                if line_end:
                    self._line.clear()
                self._line += rest[: _LINE_BYTES_MAX + 1 - len(self._line)]

    async def show(self, text: str) -> None:
        """Print a message for the person on lines of its own. Lines after the first are indented.

        The program's unfinished line, most often a prompt, is printed again after the message if that is possible.
        """
        async with self._lock:
            before = self._line_end if self._line else b""
            lines = (self._line_end + b"  ").join(neutral(text).encode().split(b"\n"))
            await self._write(self._messages, before + lines + self._line_end + self._line_again())

    def _line_again(self) -> bytes:
        # Output to the alternate screen vanished with that screen.
        line = bytes(self._line).rpartition(_LEAVE_ALTERNATE)[2]
        self._line[:] = line if len(self._line) <= _LINE_BYTES_MAX and _REPEATABLE.fullmatch(line) else b""
        return bytes(self._line)

    async def _write(self, fd: int, data: bytes) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, _write_all, fd, data)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            select.select([], [fd], [])  # another program made this terminal non-blocking
