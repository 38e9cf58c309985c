"""The MCP server's end of a runner's socket: sends requests, and receives answers and notifications.

Used by: `agents.mcp_server`, in the process that an agent starts as its MCP server. Uses: a Unix socket and
`runner_frames`. The runner has the session with the hub. The client has no session, and ends when the runner ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

from tieline.agents.runner_frames import (
    CANCELLED_METHOD,
    BadLine,
    Error,
    LineBuffer,
    McpNotification,
    McpRequest,
    McpResponse,
    Shutdown,
    encode,
)

HELD_MAX = 1024
"""Maximum number of notifications that wait while the agent is not ready or reads slowly. The hub pushes no more at a
time."""

_CHUNK_BYTES = 64 * 1024  # as much as a socket usually holds

Notify = Callable[[str, dict[str, Any] | None], Awaitable[None]]


class RunnerGone(Exception):
    """Raised if the runner (the process of `tieline run`) cannot be reached or has ended."""


class RunnerRefused(Exception):
    """Raised if the runner (the process of `tieline run`) answers a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class RunnerClient:
    """An MCP server's connection to its runner: sends requests, and passes the runner's notifications on to the agent.

    Only one event loop may use it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, notify: Notify) -> None:
        self._reader = reader
        self._writer = writer
        self._notify = notify
        self._numbers = count(1)
        self._waiting: dict[int | str, asyncio.Future[McpResponse]] = {}
        # The reason why the connection ended; `None` before the end.
        self._gone: RunnerGone | None = None
        # Set once the agent is ready for notifications; and the notifications that wait until then.
        self._ready = asyncio.Event()
        self._held: asyncio.Queue[McpNotification] = asyncio.Queue(HELD_MAX)

    @classmethod
    async def connect(cls, path: Path, notify: Notify) -> "RunnerClient":
        """Connect to a runner's socket at `path`, and return the connection.

        Raises `RunnerGone` if no runner answers there. `notify` is called with each notification of the runner.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            raise RunnerGone(f"no runner answers at {path}: {error.strerror or error}") from error
        return cls(reader, writer, notify)

    def begin(self) -> None:
        """Start to pass notifications on to the agent. Called when the agent is ready for them."""
        self._ready.set()

    async def keep(self) -> None:
        """Read and handle the frames (lines of JSON) that the runner sends, until the connection ends."""
        buffer = LineBuffer()
        why = "the runner ended"
        # A separate task, so that answers never wait behind notifications: some agents send requests before they are
        # ready.
        notifying = asyncio.create_task(self._pass_on())
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                buffer.receive_data(data)
                for frame in buffer.next_frames():
                    match frame:
                        case McpResponse():
                            self._answered(frame)
                        case McpNotification():
                            await self._held.put(frame)
                        case Shutdown():
                            return
                        case Error():
                            why = f"the runner said: {frame.message}"
                        case McpRequest():
                            why = "the runner sent a request, and only the MCP server does"
                            self._writer.write(encode(Error(why)))
                            return
        except BadLine as error:
            why = str(error)
            self._writer.write(encode(Error(why)))
        except OSError as error:
            why = f"the connection to the runner broke: {error.strerror or error}"
        finally:
            notifying.cancel()
            self._end(RunnerGone(why))

    async def request(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        """Send a request to the runner and wait for the result.

        Raises `RunnerRefused` if the runner answers with an error, and `RunnerGone` if the connection breaks.
        """
        if self._gone is not None:
            raise self._gone
        number = next(self._numbers)
        try:
            line = encode(McpRequest(number, method, params))
        except BadLine as error:
            raise RunnerRefused(-32602, str(error)) from error
        future: asyncio.Future[McpResponse] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(line)
            await self._writer.drain()
            response = await future
        except asyncio.CancelledError:
            self._writer.write(encode(McpNotification(CANCELLED_METHOD, {"requestId": number})))
            raise
        except OSError as error:
            raise RunnerGone(f"the connection to the runner broke: {error.strerror or error}") from error
        finally:
            self._waiting.pop(number, None)
        if response.error is not None:
            raise RunnerRefused(response.error.code, response.error.message)
        return response.result or {}

    def close(self, reason: str) -> None:
        """Send the runner a `Shutdown` frame with the reason, and close the connection."""
        if self._gone is None:
            self._writer.write(encode(Shutdown(reason)))
        self._writer.close()

    async def _pass_on(self) -> None:
        await self._ready.wait()
        while True:
            frame = await self._held.get()
            await self._notify(frame.method, frame.params)

    def _answered(self, response: McpResponse) -> None:
        future = self._waiting.pop(response.id, None)
        if future is not None and not future.done():
            future.set_result(response)

    def _end(self, why: RunnerGone) -> None:
        self._gone = why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(why)
