"""Lines on stdin and stdout, for a server that another program starts and talks to through pipes.

Used by: the MCP server. Uses: two file descriptors. Reading and writing may block for long, and a file or a terminal
cannot be polled. So each direction has a thread, and the process does not wait for these threads at its end.

While the lines are open, file descriptor 0 is empty and file descriptor 1 leads to stderr. So no other code of this
process, and no child of it, can read or write between the lines.
"""

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Final

LINE_BYTES_MAX = 32 * 1024 * 1024
"""Maximum number of bytes of one line. The hub takes no larger message."""

TOO_LONG: Final = b""
"""Value that stands for a line longer than `LINE_BYTES_MAX`. No other line is empty."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_BUFFER_BYTES = 64 * 1024  # as much as a pipe holds


class Stdio:
    """Exchanges lines with the program that started this process, on stdin and stdout.

    Only one event loop may use it.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        self._unwritten: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        # The process does not wait for these threads at its end.
        for work, fd in ((self._read, reading), (self._write, writing)):
            threading.Thread(target=work, args=(fd,), daemon=True).start()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that the program writes, without their line ends, until the program closes its output."""
        while (line := await self._lines.get()) is not None:
            yield line

    async def write(self, line: bytes) -> None:
        """Write a line to the program, and return when the line is written. If the program has ended, drop the line."""
        written = self._loop.create_future()
        self._unwritten.put((line + b"\n", written))
        await written

    # The threads.

    def _read(self, fd: int) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            try:
                for line in _lines_of(fd):
                    # The next line is read when this one was taken.
                    asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop).result()
            finally:
                asyncio.run_coroutine_threadsafe(self._lines.put(None), self._loop)

    def _write(self, fd: int) -> None:
        is_open = True
        while True:
            line, written = self._unwritten.get()
            rest = memoryview(line)
            while is_open and rest:
                try:
                    rest = rest[os.write(fd, rest) :]
                except OSError:
                    is_open = False
            try:
                self._loop.call_soon_threadsafe(_set, written)
            except RuntimeError:  # the event loop has ended
                return


@contextlib.asynccontextmanager
async def open_stdio() -> AsyncIterator[Stdio]:
    """Yield an object that exchanges lines with the program that has started this process, on stdin and stdout.

    From then on, file descriptor 0 is empty, and file descriptor 1 leads to stderr.
    """
    reading, writing = os.dup(_STDIN), os.dup(_STDOUT)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, _STDIN)
    os.close(empty)
    os.dup2(_STDERR, _STDOUT)
    # The duplicates stay open, because the threads may use them until the process ends.
    yield Stdio(reading, writing)


def _lines_of(fd: int) -> Iterator[bytes]:
    """Yield the lines of a file descriptor, without line ends and without empty lines. A failed read counts as the end.

    A line that is too long is yielded as `TOO_LONG`.
    """
    with contextlib.suppress(OSError), open(fd, "rb", buffering=_BUFFER_BYTES, closefd=False) as file:
        while line := file.readline(LINE_BYTES_MAX + 1):
            if len(line) > LINE_BYTES_MAX:
                while line and not line.endswith(b"\n"):
                    line = file.readline(LINE_BYTES_MAX)
                yield TOO_LONG
            elif line := line.strip():
                yield line


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
