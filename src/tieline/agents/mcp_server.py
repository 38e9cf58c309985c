"""The MCP server on stdio, through which an agent sends messages to the hub and receives messages from it.

Used by: an agent's program, which starts the server as a child. Uses: a backend, which is an agent session or the
runner that started the program; `stdio`, and the codec of MCP. The server pushes each message to the agent as
`notifications/claude/channel`, so the agent need not poll.

Programs wait only a few seconds for a server, also on a busy machine, and then work without its tools. So this module
imports little. The official SDK would take most of the time until the first answer (docs/adr/0013-mcp-on-stdio.md).

The server supports the versions of MCP with a handshake and the stateless ones. Each request shows which of the
two its client uses. With a handshake version, the server pushes after the client has sent `initialized`, and a
notification announces a changed tool list. With a stateless version, it pushes after the first request, and clients
subscribe to such changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from tieline.agents.runner_client import RunnerClient, RunnerGone, RunnerRefused
from tieline.agents.stdio import LINE_BYTES_MAX, TOO_LONG, Stdio, open_stdio
from tieline.protocols.mcp import codec
from tieline.protocols.mcp.agent_session import AgentSession, UnknownTool, result_of
from tieline.protocols.mcp.codec import Invalid, Message

PROGRESS_SECONDS = 5.0
"""Seconds between two progress notifications while a tool call waits. The time is shorter than the timeouts of
programs."""

REQUESTS_MAX = 64
"""Maximum number of requests that are answered at the same time. A program sends few requests at once."""


class Backend(Protocol):
    """Interface by which the MCP server lists and calls the hub's tools.

    `HubBackend` and `RunnerBackend` implement it.
    """

    def begin(self) -> None:
        """Start to send notifications to the agent. Called when the agent's program is ready."""

    async def list_tools(self) -> Mapping[str, Any]:
        """Return the result of MCP's `tools/list`."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> Mapping[str, Any]:
        """Call the tool `name`. Return the result of MCP's `tools/call`. Raises `Invalid` for a wrong call."""


class HubBackend:
    """Backend of an MCP server without a runner (`tieline run`): an agent session with the hub, in this process."""

    def __init__(self, agent_session: AgentSession) -> None:
        self._agent_session = agent_session

    def begin(self) -> None:
        """Start to send notifications to the agent. Called when the agent's program is ready."""
        self._agent_session.begin()

    async def list_tools(self) -> Mapping[str, Any]:
        """Return the result of MCP's `tools/list`. The descriptions list the objectives that are open now."""
        await self._agent_session.wait_for_hub()
        return {"tools": self._agent_session.list_tools()}

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> Mapping[str, Any]:
        """Call the tool `name`. Return the result of MCP's `tools/call`. Raises `Invalid` for a wrong call."""
        try:
            return result_of(await self._agent_session.call_tool(name, arguments))
        except UnknownTool as error:
            raise Invalid(codec.INVALID_PARAMS, str(error)) from error


class RunnerBackend:
    """Backend of an MCP server under `tieline run`: passes requests to the runner, which has a session with the hub."""

    def __init__(self, runner: RunnerClient) -> None:
        self._runner = runner

    def begin(self) -> None:
        """Start to pass the runner's notifications on to the agent. Called when the agent's program is ready."""
        self._runner.begin()

    async def list_tools(self) -> Mapping[str, Any]:
        """Ask the runner for the result of MCP's `tools/list`, and return it."""
        return await self._request("tools/list", None)

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> Mapping[str, Any]:
        """Ask the runner to call a tool, and return the result of MCP's `tools/call`."""
        return await self._request("tools/call", {"name": name, "arguments": arguments or {}})

    async def _request(self, method: str, params: dict[str, Any] | None) -> Mapping[str, Any]:
        try:
            return await self._runner.request(method, params)
        except RunnerRefused as error:
            raise Invalid(error.code, str(error)) from error
        except RunnerGone as error:
            raise Invalid(codec.INTERNAL_ERROR, str(error)) from error


class McpServer:
    """The MCP server of one agent, on stdin and stdout."""

    def __init__(self) -> None:
        self._backend: Backend | None = None
        self._stdio: Stdio | None = None
        # True once the program is ready for notifications; and true if it then uses a stateless version.
        self._is_ready = False
        self._is_stateless = False
        # Requests that are being answered, by their ids; and the ids of those that are subscriptions to the tools.
        self._running: dict[int | str, asyncio.Task[None]] = {}
        self._subscriptions: set[int | str] = set()

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Write a notification to the agent's program. Before the program is ready, the notification is dropped."""
        if not self._is_ready:
            return
        if method != codec.TOOLS_CHANGED_METHOD or not self._is_stateless:
            await self._write(codec.notification(method, params))
            return
        for subscription in list(self._subscriptions):
            meta = {"_meta": {codec.SUBSCRIPTION_KEY: subscription}}
            await self._write(codec.notification(method, {**(params or {}), **meta}))

    async def serve(self, backend: Backend, keep: Callable[[], Awaitable[None]]) -> None:
        """Answer requests of the agent's program until stdin closes.

        Meanwhile run `keep`, which keeps the backend connected.
        """
        self._backend = backend
        keeping = asyncio.ensure_future(keep())
        keeping.add_done_callback(_report)
        try:
            async with open_stdio() as self._stdio:
                async for line in self._stdio.lines():
                    await self._handle(line)
        finally:
            tasks = [keeping, *self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, line: bytes) -> None:
        assert self._stdio is not None, "nothing is written before it is served"
        await self._stdio.write(line)

    # Messages of the client.

    async def _handle(self, line: bytes) -> None:
        """Handle one line from the client. A request is answered in a task, so that it does not delay the next line."""
        try:
            message = _decode(line)
        except Invalid as wrong:
            await self._write(codec.error(None, wrong))
            return
        number = message.id
        if message.named == "notifications/initialized":
            self._begin(is_stateless=False)
        elif message.named == "notifications/cancelled":
            self._cancel((message.params or {}).get("requestId"))
        elif not message.is_request or not isinstance(number, int | str):
            # Other notifications mean nothing here, and this server asks the client nothing.
            return
        elif number in self._running:
            await self._write(codec.error(number, Invalid(codec.INVALID_REQUEST, "a request with this id is running")))
        elif len(self._running) >= REQUESTS_MAX:
            full = Invalid(codec.INTERNAL_ERROR, f"at most {REQUESTS_MAX} requests are answered at once")
            await self._write(codec.error(number, full))
        elif message.named == "initialize":
            # Nothing is pushed before this answer, although the client may send the next lines at once.
            await self._answer(number, message)
        else:
            self._running[number] = task = asyncio.create_task(self._answer(number, message))
            task.add_done_callback(_report)

    def _cancel(self, number: Any) -> None:
        # True equals 1, but it is no id.
        if isinstance(number, int | str) and not isinstance(number, bool) and number in self._running:
            self._running[number].cancel()

    async def _answer(self, number: int | str, message: Message) -> None:
        """Write the answer to the request with the id `number`. A request that the client cancels gets no answer."""
        is_stateless = message.named != "initialize" and codec.is_stateless(message)
        try:
            try:
                if is_stateless:
                    codec.check_meta(message)
                answer = codec.answer(number, await self._result(number, message, is_stateless=is_stateless))
            except Invalid as wrong:
                answer = codec.error(number, wrong)
            except Exception:
                await self._write(codec.error(number, Invalid(codec.INTERNAL_ERROR, "the request failed")))
                raise
            await self._write(answer)
        finally:
            self._running.pop(number, None)
        if is_stateless:
            self._begin(is_stateless=True)

    async def _result(self, number: int | str, message: Message, *, is_stateless: bool) -> dict[str, Any]:
        """Carry out an MCP request and return its result. Raises `Invalid` if the request is wrong or unknown.

        `number` is the id of the request. `is_stateless` is true if the request uses a version of MCP without
        handshake.
        """
        assert self._backend is not None, "nothing is asked before it is served"
        match message.named:
            case "initialize":
                return codec.initialized(message.params)[1]
            case "ping" if not is_stateless:
                return {}
            case "server/discover" if is_stateless:
                return codec.discovered()
            case "tools/list":
                return codec.listed((await self._backend.list_tools())["tools"], is_stateless=is_stateless)
            case "tools/call":
                result = await self._call(message)
                return codec.stateless(result) if is_stateless else result
            case "subscriptions/listen" if is_stateless:
                return await self._subscribe(number, message)
            case _:
                raise Invalid(codec.METHOD_NOT_FOUND, f"there is no method {message.named[:100]!r}")

    async def _call(self, message: Message) -> dict[str, Any]:
        assert self._backend is not None, "nothing is asked before it is served"
        name, arguments = codec.call_of(message)
        token = codec.progress_token(message.params)
        telling = None if token is None else asyncio.create_task(self._tell_progress(token))
        try:
            return dict(await self._backend.call_tool(name, arguments))
        finally:
            if telling is not None:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    async def _tell_progress(self, token: int | str) -> None:
        """Send a progress notification with the waiting time of a tool call, again and again at a fixed interval.

        `token` is the progress token of the call. The function runs until its task is cancelled.
        """
        seconds = 0.0
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            seconds += PROGRESS_SECONDS
            await self._write(codec.progress(token, seconds, f"waiting for {seconds:g} seconds"))

    async def _subscribe(self, number: int | str, message: Message) -> dict[str, Any]:
        """Send notifications about changes of the tools until the client cancels this request.

        `number` is the id of the request. The function never returns by itself. Raises `Invalid` if the request does
        not say which notifications the client wants.
        """
        wants_tools, acknowledgement = codec.subscribed(number, message)
        await self._write(acknowledgement)
        # The client is ready now, although this request is not answered yet.
        self._begin(is_stateless=True)
        if wants_tools:
            self._subscriptions.add(number)
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # never done
        finally:
            self._subscriptions.discard(number)

    def _begin(self, *, is_stateless: bool) -> None:
        if not self._is_ready:
            self._is_ready, self._is_stateless = True, is_stateless
            assert self._backend is not None, "nothing is asked before it is served"
            self._backend.begin()


def _decode(line: bytes) -> Message:
    """Decode a line into one MCP message and return it. Raises `Invalid` if the line is not exactly one message."""
    if line is TOO_LONG:
        raise Invalid(codec.INVALID_REQUEST, f"a line has at most {LINE_BYTES_MAX} bytes")
    messages = codec.decode(line)
    if len(messages) > 1:
        raise Invalid(codec.INVALID_REQUEST, "a line has one message")
    return messages[0]


def _report(task: asyncio.Future[None]) -> None:
    """If a task ended with an exception, report the exception to the event loop.

    Without this report, a bug would stay hidden.
    """
    error = None if task.cancelled() else task.exception()
    if error is not None:
        text = "a task of the MCP server failed"
        task.get_loop().call_exception_handler({"message": text, "exception": error, "future": task})
