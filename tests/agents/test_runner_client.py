"""Tests of the client that an MCP server uses to talk to its runner, over a real Unix socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.runner_socket import SocketEnd
from tests.server.hubs import until
from tieline.agents.runner_client import RunnerClient, RunnerGone, RunnerRefused
from tieline.agents.runner_frames import (
    LINE_BYTES_MAX,
    Error,
    McpError,
    McpNotification,
    McpRequest,
    McpResponse,
    Shutdown,
    encode,
)


class Wire:
    """A connected pair: the client under test, and the runner's end of its socket, which the test controls."""

    def __init__(self, client: RunnerClient, runner: SocketEnd, keeping: asyncio.Task[None]) -> None:
        self.client = client
        self.runner = runner
        self.keeping = keeping
        self.notified: list[tuple[str, dict[str, Any] | None]] = []


@pytest.fixture
async def wire(folder: Path) -> AsyncIterator[Wire]:
    arrived: asyncio.Future[SocketEnd] = asyncio.get_running_loop().create_future()
    path = folder / "runner.sock"
    server = await asyncio.start_unix_server(lambda *ends: arrived.set_result(SocketEnd(*ends)), path)
    notified: list[tuple[str, dict[str, Any] | None]] = []

    async def notify(method: str, params: dict[str, Any] | None) -> None:
        notified.append((method, params))

    client = await RunnerClient.connect(path, notify)
    built = Wire(client, await arrived, asyncio.create_task(client.keep()))
    built.notified = notified
    yield built
    built.keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await built.keeping
    client.close("done")
    built.runner.writer.close()
    server.close()


async def test_a_request_is_answered_under_its_number(wire: Wire) -> None:
    first = asyncio.create_task(wire.client.request("tools/list", None))
    second = asyncio.create_task(wire.client.request("tools/call", {"name": "send"}))
    asked = [await wire.runner.hear(), await wire.runner.hear()]
    assert asked == [McpRequest(1, "tools/list"), McpRequest(2, "tools/call", {"name": "send"})]
    wire.runner.say(McpResponse(2, {"b": 2}), McpResponse(99, {}), McpResponse(1, {"a": 1}))
    assert await first == {"a": 1}
    assert await second == {"b": 2}


async def test_a_refusal_has_its_code(wire: Wire) -> None:
    asking = asyncio.create_task(wire.client.request("tools/call", {}))
    await wire.runner.hear()
    wire.runner.say(McpResponse(1, error=McpError("no such tool", -32602)))
    with pytest.raises(RunnerRefused, match="no such tool") as refused:
        await asking
    assert refused.value.code == -32602


async def test_notifications_wait_until_the_agent_is_ready(wire: Wire) -> None:
    wire.runner.say(McpNotification("one", {"a": 1}), McpNotification("two"))
    # That nothing comes can only be seen when its time is over.
    await asyncio.sleep(0.05)
    assert not wire.notified
    wire.client.begin()
    await until(lambda: wire.notified == [("one", {"a": 1}), ("two", None)])


async def test_an_agent_that_asks_before_it_is_ready_is_answered_past_what_waits_for_it(wire: Wire) -> None:
    wire.runner.say(McpNotification("one"))
    asking = asyncio.create_task(wire.client.request("tools/list", None))
    await wire.runner.hear()
    wire.runner.say(McpResponse(1, {"tools": []}))
    async with asyncio.timeout(10):
        assert await asking == {"tools": []}
    assert not wire.notified
    wire.client.begin()
    await until(lambda: wire.notified == [("one", None)])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (encode(Shutdown("bye")), "the runner ended"),
        (encode(Error("you are odd")) + encode(Shutdown()), "you are odd"),
        (b"garbage\n", "not a frame"),
        (b"x" * (LINE_BYTES_MAX + 1), "longer than"),
        (encode(McpRequest(1, "ping")), "only the MCP server does"),
    ],
)
async def test_when_the_runner_ends_or_talks_nonsense_whoever_waits_is_told(wire: Wire, said: bytes, why: str) -> None:
    asking = asyncio.create_task(wire.client.request("tools/list", None))
    await wire.runner.hear()
    wire.runner.writer.write(said)
    with pytest.raises(RunnerGone, match=why):
        await asking
    with pytest.raises(RunnerGone, match=why):
        await wire.client.request("tools/list", None)


async def test_a_runner_that_hangs_up_is_gone(wire: Wire) -> None:
    wire.runner.writer.close()
    await wire.keeping
    with pytest.raises(RunnerGone):
        await wire.client.request("tools/list", None)


async def test_a_request_that_is_too_large_is_refused_and_the_connection_goes_on(wire: Wire) -> None:
    with pytest.raises(RunnerRefused, match="longer than"):
        await wire.client.request("tools/call", {"body": "x" * LINE_BYTES_MAX})
    asking = asyncio.create_task(wire.client.request("tools/list", None))
    assert isinstance(await wire.runner.hear(), McpRequest)
    wire.runner.say(McpResponse(2, {}))
    assert await asking == {}


async def test_closing_says_so(wire: Wire) -> None:
    wire.client.close("enough")
    assert await wire.runner.hear() == Shutdown("enough")


async def test_nobody_at_the_socket_is_said(folder: Path) -> None:
    async def notify(_method: str, _params: dict[str, Any] | None) -> None:
        raise AssertionError("nobody notifies")

    with pytest.raises(RunnerGone, match="no runner answers"):
        await RunnerClient.connect(folder / "none.sock", notify)
