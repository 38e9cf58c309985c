"""The screen: what a program prints, and messages between its lines.

Above: `terminal`, which knows when a message disturbs nothing. Below: file descriptors. Writing to a screen can block,
and only one may write at a time: a thread of one, and a lock for order.
"""

import asyncio
import os
import re
import select
from concurrent.futures import ThreadPoolExecutor

from tieline.contract.text import neutral

_LINE_BYTES_MAX = 4096
"""Of an unfinished line: a prompt with colours and a title is shorter."""

# Text, and sequences that stay on their line: colours, titles, modes, and the editing of a line. Printed again at the
# left edge they give the same line again, with the cursor at the same place.
_REPEATABLE = re.compile(
    rb"(?:[\x08\t\r\x20-\x7e\x80-\xff]++|\x1b[=>]|\x1b\[[0-?]*+[@CDGKPXhlm]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\))*"
)
_LEAVE_ALTERNATE = b"\x1b[?1049l"


class Screen:
    """Where the program's output goes, and where messages are printed."""

    def __init__(self, stdout: int, messages: int, *, line_end: str) -> None:
        self._stdout = stdout
        self._messages = messages
        self._line_end = line_end.encode()
        self._thread = ThreadPoolExecutor(1, "tieline-screen")
        self._lock = asyncio.Lock()
        # What the program printed where messages go since its last line end, as far as it matters.
        self._line = bytearray()

    @property
    def busy(self) -> bool:
        """Whether something is being written."""
        return self._lock.locked()

    def close(self) -> None:
        """Write no more. A write that blocks is left alone."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def pass_on(self, data: bytes) -> None:
        """Write what the program printed."""
        async with self._lock:
            await self._write(self._stdout, data)
            if self._messages == self._stdout:
                _, line_end, rest = data.rpartition(b"\n")
                if line_end:
                    self._line.clear()
                self._line += rest[: _LINE_BYTES_MAX + 1 - len(self._line)]

    async def show(self, text: str) -> None:
        """Print text on lines of its own, of which only the first begins at the left edge.

        The line that the program has not ended, a prompt most often, is given back behind it where that can be done.
        """
        async with self._lock:
            before = self._line_end if self._line else b""
            lines = (self._line_end + b"  ").join(neutral(text).encode().split(b"\n"))
            await self._write(self._messages, before + lines + self._line_end + self._line_again())

    def _line_again(self) -> bytes:
        # What a program did on the alternate screen went with it.
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
            select.select([], [fd], [])  # another program of this terminal made it non-blocking
