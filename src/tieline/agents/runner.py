"""The runner: gives tools and messages to one run of an agent's program, and uploads its activity.

Used by: `claude_code.py` and `codex_session.py`, which own the program. Uses: the agent session, which talks to the
hub; the uploader; and a socket. The program starts Tieline's MCP server, which connects to this socket. So a run has
one session with the hub and one record of pushed messages, however often the program restarts its MCP server.

Only this user can use the socket. An MCP server sends requests and gets answers and notifications for the agent. If
several MCP servers are connected, only the newest one gets messages, because otherwise the model would read them twice.
All MCP servers are told when the tools change. If an MCP server disconnects before its agent acted on a message,
another MCP server gets the message.

The runner marks in the activity when an objective of the agent opens and closes, so that readers can find everything
between two marks.
"""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tieline.agents import runner_frames as frames
from tieline.agents.activity import Uploader
from tieline.agents.loopback import Loopback, open_loopback
from tieline.agents.program import Signals, caught_signals
from tieline.agents.run_folder import RunFolder, run_folder
from tieline.client import Client, HubError
from tieline.contract.objective import Status
from tieline.protocols.mcp.agent_session import AgentSession, OpenSession, UnknownTool, result_of
from tieline.protocols.mcp.codec import INVALID_PARAMS, METHOD_NOT_FOUND, TOOLS_CHANGED_METHOD
from tieline.protocols.mcp.forwarder import Forwarder, Takes, anywhere
from tieline.protocols.mcp.tools import DEFAULT
from tieline.wire.unix import listen, peer_uid

MCP_ARGUMENTS = ("-P", "-m", "tieline.cli.main", "mcp")
"""Arguments for Python with which an agent's program starts Tieline's MCP server. The program runs in the folder of
some project. `-P` keeps Python from searching that folder first for modules."""

REQUESTS_MAX = 64
"""Maximum number of requests of one MCP server at the same time. Above this limit the runner stops reading until it has
answered some."""

MCP_SERVERS_MAX = 16
"""Maximum number of connected MCP servers. A program usually has one, and a second one during a restart."""

UNPROVED_MAX = 1024
"""Maximum number of messages that are kept for each MCP server since the agent's last tool call. The hub pushes no more
messages at a time."""

CLOSE_SECONDS = 1.0
"""Seconds that an MCP server has to read the last lines from the runner. An MCP server that does not read must not
delay the end of the run."""

_READ_BYTES = 65_536  # as much as a socket usually holds
_NAME_CHARS = 100
_REASON_CHARS = 300  # a line or two on a terminal
_PAUSE_SECONDS = 0.01  # a broken connection is removed after a moment

Tell = Callable[[str], None]


class Runner:
    """The part of `tieline run` that has the run's session with the hub, its uploader, and its MCP connections.

    Only one event loop may use it.
    """

    def __init__(
        self,
        open_session: OpenSession,
        client: Client,
        *,
        tools: str,
        push: bool,
        hooked: bool,
        takes: Takes,
        tell: Tell,
    ) -> None:
        assert client.welcome is not None, "an open session was welcomed"
        self.member = client.welcome.speaker
        self.takes = takes
        self._open_session = open_session
        self._first = client
        self._tell = tell
        self.uploader = Uploader()
        self.uploader.client = client
        self.agent_session = AgentSession(
            self._open, self._notify, tools=tools, push=push, hooked=hooked, takes=takes, tell=tell
        )
        # Connected MCP servers, oldest first; and an event that is set while one is connected.
        self._mcp_connections: list[_McpConnection] = []
        self._connected = asyncio.Event()
        self._connection_tasks: set[asyncio.Task[None]] = set()
        # Messages sent to an MCP server that is gone: perhaps the agent never saw them.
        self._untold: deque[frames.McpNotification] = deque(maxlen=UNPROVED_MAX)
        self._keeping: asyncio.Task[None] | None = None
        self._marks: set[asyncio.Task[None]] = set()
        # Ids of objectives that are marked as open.
        self._marked: set[str] = set()
        self._marking = asyncio.Lock()
        # Called when a program has read the list of our tools.
        self.on_listed: Callable[[], None] = lambda: None

    # The hub.

    @property
    def client(self) -> Client:
        """The session with the hub that was opened last. This session may have ended since."""
        assert self.uploader.client is not None, "a run begins with a session"
        return self.uploader.client

    def join(self, forwarder: Forwarder | None = None) -> None:
        """Start to receive deliveries for the member.

        `forwarder` shows them to the program; `None` for the default one.
        """
        self.agent_session.forwarder = forwarder
        self._keeping = asyncio.create_task(self.agent_session.keep(self._first))

    async def leave(self) -> None:
        """End the session with the hub."""
        if self._keeping is None:
            await self._first.close()
            return
        self._keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._keeping

    async def _open(self) -> Client:
        client = await self._open_session()
        self.uploader.client = client
        return client

    async def _notify(self, method: str, params: dict[str, Any] | None) -> None:
        frame = frames.McpNotification(method, params)
        if method == TOOLS_CHANGED_METHOD:
            for connection in list(self._mcp_connections):
                await connection.write(frame)
            self._mark_soon()
            return
        while True:
            await self._connected.wait()
            if await self._mcp_connections[-1].tell(frame):
                return
            # The connection is broken, and will be removed in a moment.
            await asyncio.sleep(_PAUSE_SECONDS)

    # Objectives.

    def _mark_soon(self) -> None:
        task = asyncio.create_task(self.mark_objectives())
        self._marks.add(task)
        task.add_done_callback(self._marks.discard)

    async def mark_objectives(self) -> None:
        """Write events into the agent's activity for its objectives that opened or closed since the last call."""
        async with self._marking:
            opened = {one.id for one in self.agent_session.open_objectives.current}
            for objective in sorted(opened - self._marked):
                self._put({"kind": "objective_open", "objectiveId": objective})
                self._marked.add(objective)
            for objective in sorted(self._marked - opened):
                self._put(
                    {"kind": "objective_close", "objectiveId": objective, "result": await self._became(objective)}
                )
                self._marked.discard(objective)

    async def _became(self, objective: str) -> str:
        """Return the reason why an objective is no longer open for the agent: `done`, `cancelled` or `reassigned`."""
        with contextlib.suppress(HubError):
            status = (await self.client.objective(objective)).objective.status
            if status in (Status.DONE, Status.CANCELLED):
                return str(status)
        # If the member may no longer see the objective, it belongs to another member.
        return "reassigned"

    def close_objectives(self) -> None:
        """Write an event into the agent's activity for each open objective, because the run is over.

        The event marks the objective as closed for the agent.
        """
        for objective in sorted(self._marked):
            self._put({"kind": "objective_close", "objectiveId": objective, "result": "runner_shutdown"})
        self._marked.clear()

    def _put(self, event: dict[str, Any]) -> None:
        self.uploader.put({**event, "ts": time.time_ns() // 1_000_000})

    # MCP servers.

    def accept(self) -> asyncio.StreamReaderProtocol:
        """Return the asyncio protocol for a new connection of an MCP server to the runner's socket."""
        reader = asyncio.StreamReader(limit=_READ_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._serve_connection)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        uid = peer_uid(writer.transport)
        if (uid is not None and uid != os.getuid()) or len(self._mcp_connections) >= MCP_SERVERS_MAX:
            writer.close()
            return
        connection = _McpConnection(self.agent_session, reader, writer, self._listed, self._say_failed)
        self._connection_tasks.add(task)
        task.add_done_callback(self._connection_tasks.discard)
        self._mcp_connections.append(connection)
        self.agent_session.begin()
        self._mark_soon()
        is_over = False
        try:
            await self._tell_untold(connection)
            self._connected.set()
            await connection.serve()
        except OSError:
            # The MCP server is gone.
            pass
        except asyncio.CancelledError:
            is_over = True
        finally:
            self._mcp_connections.remove(connection)
            self._untold.extend(connection.unproved)
            if not self._mcp_connections:
                self._connected.clear()
            await connection.close()
        if self._mcp_connections and not is_over:
            with contextlib.suppress(asyncio.CancelledError):
                await self._tell_untold(self._mcp_connections[-1])

    def _listed(self) -> None:
        self.on_listed()

    def _say_failed(self, call: str) -> None:
        self._tell(f"{self.member}: its call of {call}")

    async def _tell_untold(self, connection: "_McpConnection") -> None:
        while self._untold:
            frame = self._untold.popleft()
            if not await connection.tell(frame):
                self._untold.appendleft(frame)
                return

    async def hang_up(self) -> None:
        """Tell the connected MCP servers that the run is over, and close the connections."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                for connection in list(self._mcp_connections):
                    await connection.write(frames.Shutdown("the run is over"))
        for task in list(self._connection_tasks):
            task.cancel()
        await asyncio.gather(*self._connection_tasks, *self._marks, return_exceptions=True)


class _McpConnection:
    """The runner's connection with one MCP server: answers its requests, and sends it notifications for the agent."""

    def __init__(
        self,
        agent_session: AgentSession,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_listed: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        self._agent_session = agent_session
        self._on_listed = on_listed
        # Called with the name of a tool whose call failed, and the reason.
        self._on_failed = on_failed
        self._reader = reader
        self._writer = writer
        # Requests that are being answered, by their ids.
        self._answering: dict[int | str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(REQUESTS_MAX)
        # Messages sent since the agent's last tool call.
        self.unproved: deque[frames.McpNotification] = deque(maxlen=UNPROVED_MAX)

    async def serve(self) -> None:
        """Answer the requests of the MCP server until it closes the connection."""
        buffer = frames.LineBuffer()
        while data := await self._reader.read(_READ_BYTES):
            buffer.receive_data(data)
            try:
                for frame in buffer.next_frames():
                    match frame:
                        case frames.McpRequest():
                            if frame.method == "tools/call":
                                self.unproved.clear()
                            await self._room.acquire()
                            self._answering[frame.id] = asyncio.create_task(self._answer(frame))
                        case frames.McpNotification(method=frames.CANCELLED_METHOD):
                            self._cancel(frame.params or {})
                        case frames.Shutdown() | frames.Error():
                            return
                        case frames.McpResponse() | frames.McpNotification():
                            await self.write(frames.Error("an MCP server sends requests only"))
                            return
            except frames.BadLine as error:
                await self.write(frames.Error(str(error)))
                return

    async def tell(self, frame: frames.McpNotification) -> bool:
        """Send a notification for the agent to the MCP server. Return false if the notification could not be sent.

        Also store the notification until the agent's next tool call, which proves that the agent has seen it. If this
        connection ends first, another MCP server gets the notification.
        """
        if not await self.write(frame):
            return False
        self.unproved.append(frame)
        return True

    async def write(self, frame: frames.AnyFrame) -> bool:
        """Write a frame (one line of JSON) to the MCP server. Return false if the write failed."""
        try:
            self._writer.write(frames.encode(frame))
            await self._writer.drain()
        except (OSError, frames.BadLine):
            return False
        return not self._writer.is_closing()

    async def close(self) -> None:
        """Close the connection. Requests that are not answered yet are cancelled."""
        for task in self._answering.values():
            task.cancel()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            self._writer.transport.abort()

    async def _answer(self, request: frames.McpRequest) -> None:
        try:
            response = await answer(self._agent_session, request)
            try:
                frames.encode(response)
            except frames.BadLine as error:
                response = frames.McpResponse(request.id, error=frames.McpError(str(error)))
            await self.write(response)
            if request.method == "tools/list":
                self._on_listed()
            elif failed := failed_call(request, response):
                self._on_failed(failed)
        finally:
            self._room.release()
            self._answering.pop(request.id, None)

    def _cancel(self, params: Mapping[str, Any]) -> None:
        number = params.get("requestId")
        task = self._answering.get(number) if isinstance(number, int | str) else None
        if task is not None:
            task.cancel()


async def answer(agent_session: AgentSession, request: frames.McpRequest) -> frames.McpResponse:
    """Return the answer to an MCP server's request on the runner's socket: list the agent's tools, or call one."""
    params = request.params or {}
    match request.method:
        case "tools/list":
            await agent_session.wait_for_hub()
            return frames.McpResponse(request.id, {"tools": agent_session.list_tools()})
        case "tools/call":
            name, arguments = params.get("name"), params.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, dict | None):
                wrong = frames.McpError("a call has a name and arguments", INVALID_PARAMS)
                return frames.McpResponse(request.id, error=wrong)
            try:
                return frames.McpResponse(request.id, result_of(await agent_session.call_tool(name, arguments)))
            except UnknownTool as error:
                return frames.McpResponse(request.id, error=frames.McpError(str(error), INVALID_PARAMS))
        case _:
            text = f"there is no method {request.method[:_NAME_CHARS]!r}"
            return frames.McpResponse(request.id, error=frames.McpError(text, METHOD_NOT_FOUND))


def failed_call(request: frames.McpRequest, response: frames.McpResponse) -> str:
    """Return the name of a tool whose call failed, and the reason, for the person at the terminal.

    Return an empty text if the request is no call of a tool, or if the call succeeded.
    """
    if request.method != "tools/call":
        return ""
    match response:
        case frames.McpResponse(error=frames.McpError(message=reason)):
            pass
        case frames.McpResponse(result={"isError": True, "content": [{"text": str(reason)}, *_]}):
            pass
        case _:
            return ""
    name = str((request.params or {}).get("name"))[:_NAME_CHARS]
    cut = f"{reason[:_REASON_CHARS]}…" if len(reason) > _REASON_CHARS else reason
    # The text of a refusal begins with "refused" and the code.
    return f"{name} was {cut}" if cut.startswith("refused") else f"{name} failed: {cut}"


@dataclass(frozen=True)
class Run:
    """Data of a prepared run (folder, runner, loopback, signals…), for the function that runs the agent's program."""

    folder: RunFolder
    runner: Runner
    loopback: Loopback
    signals: Signals
    environment: Mapping[str, str]
    trace: bool
    push: bool
    tell: Tell


@contextlib.asynccontextmanager
async def prepared_run(  # noqa: PLR0913 - what a run needs to know of the hub, the person and the program
    home: Path,
    open_session: OpenSession,
    client: Client,
    *,
    environment: Mapping[str, str],
    upstreams: Mapping[str, str] | None = None,
    tools: str = DEFAULT,
    push: bool = True,
    hooked: bool = False,
    takes: Takes = anywhere,
    tell: Tell = lambda _text: None,
) -> AsyncIterator[Run]:
    """Prepare a run in the hub's folder `home` with the open session `client`, yield it, and clean up at the end.

    `open_session` opens a new session when the old one has ended. `tools` is the name of a set of tools for the agent.
    With `upstreams` (base URLs of APIs) the run is traced: the program's API calls go through a local proxy. Without
    `push` no messages are pushed to the agent, for a program that does not show them. With `hooked`, hooks show
    messages to the agent and report which messages it has seen. `takes` returns true for the scope of a message that is
    for this agent. `tell` prints a line for the person at the terminal.
    """
    running = Runner(open_session, client, tools=tools, push=push, hooked=hooked, takes=takes, tell=tell)
    with caught_signals() as signals, run_folder(home) as folder:
        server = await listen(folder.socket, running.accept, mode=0o600)
        uploading = asyncio.create_task(running.uploader.run())
        try:
            async with open_loopback(running.uploader.put, upstreams or {}) as local:
                yield Run(folder, running, local, signals, environment, upstreams is not None, push, tell)
        finally:
            server.close()
            await running.hang_up()
            running.close_objectives()
            # The last upload needs a session, so the session ends after it.
            await running.uploader.finish(uploading)
            await running.leave()
