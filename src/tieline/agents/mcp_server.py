"""The MCP server on stdio, through which an agent sends messages to the hub and receives messages from it.

Above: an agent's program, which starts the server as a child. Below: a backend, which is an agent session or the runner
that started the program. The server pushes each message to the agent as `notifications/claude/channel`, so the agent
need not poll.

The server supports the older protocol versions of MCP, which have the notification `initialized`, and the newer ones,
which do not. The client's first request decides which version is used. With an older version, the server pushes after
the client has sent `initialized`. With a newer version, it pushes after the first request. With an older version, a
notification announces a changed tool list. With a newer version, clients subscribe to such changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tieline import __version__
from tieline.agents.runner_client import RunnerClient, RunnerGone, RunnerRefused
from tieline.protocols.mcp.agent_session import AgentSession, UnknownTool, result_of
from tieline.protocols.mcp.codec import EXPERIMENTAL, INSTRUCTIONS, NAME, TITLE, TOOLS_CHANGED_METHOD

PROGRESS_SECONDS = 5.0
"""Interval of progress notifications while a tool call waits. It is shorter than the timeouts of programs."""


class Backend(Protocol):
    """Lists and calls tools for the MCP server, through its own session with the hub or through a runner."""

    def begin(self) -> None:
        """Start to notify the agent. Called when the agent's program is ready."""

    async def list_tools(self) -> Mapping[str, Any]:
        """Return the result of MCP's `tools/list`."""

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> Mapping[str, Any]:
        """Call the tool of this name, and return the result of MCP's `tools/call`. Raises `MCPError`."""


class HubBackend:
    """Backend for a server without a runner: an agent session with the hub, in this process."""

    def __init__(self, agent_session: AgentSession) -> None:
        self._agent_session = agent_session

    def begin(self) -> None:
        """Start to notify the agent. Called when the agent's program is ready."""
        self._agent_session.begin()

    async def list_tools(self) -> Mapping[str, Any]:
        """Return the result of MCP's `tools/list`. The descriptions list the objectives that are open now."""
        await self._agent_session.settle()
        return {"tools": self._agent_session.list_tools()}

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> Mapping[str, Any]:
        """Call the tool of this name, and return the result of MCP's `tools/call`. Raises `MCPError`."""
        try:
            return result_of(await self._agent_session.call_tool(name, arguments))
        except UnknownTool as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error


class RunnerBackend:
    """Backend for a server under a runner, which started the agent's program and has the session with the hub."""

    def __init__(self, runner: RunnerClient) -> None:
        self._runner = runner

    def begin(self) -> None:
        """Start to notify the agent. Called when the agent's program is ready."""
        self._runner.begin()

    async def list_tools(self) -> Mapping[str, Any]:
        """Ask the runner for the result of MCP's `tools/list`, and return it."""
        return await self._request("tools/list", None)

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> Mapping[str, Any]:
        """Have the runner call a tool, and return the result of MCP's `tools/call`."""
        return await self._request("tools/call", {"name": name, "arguments": arguments or {}})

    async def _request(self, method: str, params: dict[str, Any] | None) -> Mapping[str, Any]:
        try:
            return await self._runner.request(method, params)
        except RunnerRefused as error:
            raise MCPError(error.code, str(error)) from error
        except RunnerGone as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from error


class _ChannelServer(Server[Any]):
    """The MCP SDK's server, changed to announce the capabilities in `EXPERIMENTAL` with all protocol versions.

    The SDK's own server announces such capabilities only with older versions.
    """

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        return super().get_capabilities(
            notification_options,
            experimental_capabilities or EXPERIMENTAL,
            extensions,
            protocol_version=protocol_version,
        )


class McpServer:
    """The MCP server of one agent, on stdin and stdout."""

    def __init__(self, *, instructions: str = INSTRUCTIONS) -> None:
        self._bus = InMemorySubscriptionBus()
        self._backend: Backend | None = None
        # The session for notifications; `None` until the client is ready for notifications.
        self._session: ServerSession | None = None
        self._server = _ChannelServer(
            NAME,
            version=__version__,
            title=TITLE,
            instructions=instructions,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        self._server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._on_initialized
        )
        self._server.middleware.append(self._notice_era)

    async def notify(self, method: str, params: dict[str, Any] | None) -> None:
        """Write a notification to the agent's program. Before the program is ready, the notification is dropped."""
        if self._session is None:
            return
        if method == TOOLS_CHANGED_METHOD:
            # Clients with a newer protocol version take this notification only through a subscription.
            await self._bus.publish(ToolsListChanged())
        notification = types.Notification[dict[str, Any] | None, str](method=method, params=params)
        await self._session.send_notification(cast(types.ServerNotification, notification))

    async def serve(self, backend: Backend, keep: Callable[[], Awaitable[None]]) -> None:
        """Serve the agent's program until stdin closes. Meanwhile run `keep`, which keeps the backend connected."""
        self._backend = backend
        keeping = asyncio.ensure_future(keep())
        keeping.add_done_callback(_report)
        try:
            async with stdio_server() as (read_stream, write_stream):
                options = self._server.create_initialization_options(
                    NotificationOptions(tools_changed=True), EXPERIMENTAL
                )
                await self._server.run(read_stream, write_stream, options)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    # Requests of the client.

    async def _list_tools(
        self, _context: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        assert self._backend is not None, "nothing is asked before it is served"
        return types.ListToolsResult.model_validate(await self._backend.list_tools())

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        assert self._backend is not None, "nothing is asked before it is served"
        telling = asyncio.create_task(_tell_progress(context))
        try:
            return types.CallToolResult.model_validate(await self._backend.call_tool(params.name, params.arguments))
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _on_initialized(self, context: ServerRequestContext[Any], _params: types.NotificationParams) -> None:
        self._begin(context.session)

    async def _notice_era(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.request_id is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._begin(ctx.session)
        return result

    def _begin(self, session: ServerSession) -> None:
        if self._session is None:
            self._session = session
            assert self._backend is not None, "nothing is asked before it is served"
            self._backend.begin()


async def _tell_progress(context: ServerRequestContext[Any]) -> None:
    """Send a progress notification with the waiting time of the client's call, if the client gave a progress token."""
    seconds = 0.0
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        seconds += PROGRESS_SECONDS
        await context.session.report_progress(seconds, message=f"waiting for {seconds:g} seconds")


def _report(keeping: asyncio.Future[None]) -> None:
    """Report the exception that ended the backend's task, if any. Without this report, a bug would stay hidden."""
    error = None if keeping.cancelled() else keeping.exception()
    if error is not None:
        text = "the MCP server's backend ended"
        keeping.get_loop().call_exception_handler({"message": text, "exception": error, "future": keeping})
