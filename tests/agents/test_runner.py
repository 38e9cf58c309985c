"""Tests of the runner (part of `tieline run`) with a real hub and socket, but without an agent's program.

Connections to the runner's socket stand for MCP servers.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agents.runner_socket import SocketEnd
from tests.protocols.mcp.test_agent_session import Program, running
from tests.server.hubs import HubHarness, until
from tieline.agents import activity as uploads
from tieline.agents import runner
from tieline.agents.activity import Uploader
from tieline.agents.runner import Run, prepared_run
from tieline.agents.runner_frames import (
    CANCELLED_METHOD,
    LINE_BYTES_MAX,
    Error,
    McpError,
    McpNotification,
    McpRequest,
    McpResponse,
    Shutdown,
    encode,
)
from tieline.client import Client, Disconnected, HubRefused
from tieline.contract.refusal import Code
from tieline.protocols.mcp.agent_session import AgentSession
from tieline.protocols.mcp.codec import CHANNEL_METHOD, TOOLS_CHANGED_METHOD


class McpServerEnd(SocketEnd):
    """Test double for an MCP server that is connected to the runner's socket."""

    async def ends(self) -> bool:
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                return await self.reader.read() == b""
            return True


@pytest.fixture
async def run(home: HubHarness, folder: Path) -> AsyncIterator[Run]:
    """Fixture: a prepared run of bob, with a session at the hub."""

    async def open_session() -> Client:
        return await home.join("bob", receive=True, window=1024)

    async with prepared_run(folder / "runs", open_session, await open_session(), environment={}) as prepared:
        prepared.runner.join()
        yield prepared


class Connect:
    """Test helper that connects test doubles of MCP servers to a run's socket, and closes them after a test."""

    def __init__(self) -> None:
        self._made: list[McpServerEnd] = []

    async def __call__(self, run: Run) -> McpServerEnd:
        made = McpServerEnd(*await asyncio.open_unix_connection(run.folder.socket, limit=2 * LINE_BYTES_MAX))
        self._made.append(made)
        return made

    async def close(self) -> None:
        for made in self._made:
            made.writer.close()
            with contextlib.suppress(OSError):
                await made.writer.wait_closed()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    connecting = Connect()
    yield connecting
    await connecting.close()


def test_only_the_user_can_connect(run: Run) -> None:
    assert run.folder.socket.stat().st_mode & 0o777 == 0o600


async def test_an_mcp_server_is_answered_and_told_what_comes(connect: Connect, home: HubHarness, run: Run) -> None:
    alice = await home.join("alice")
    await alice.send("@bob", "before there was an MCP server")
    one = await connect(run)
    note = await one.hear()
    assert isinstance(note, McpNotification)
    assert (note.method, (note.params or {})["content"]) == (CHANNEL_METHOD, "before there was an MCP server")
    one.say(McpRequest(1, "tools/list"), McpRequest("two", "tools/call", {"name": "members", "arguments": {}}))
    answers = {answer.id: answer for answer in (await one.hear(), await one.hear()) if isinstance(answer, McpResponse)}
    assert len((answers[1].result or {})["tools"]) == 9
    assert "You are bob" in str(answers["two"].result)


@pytest.mark.slow
async def test_only_the_last_mcp_server_is_told_what_arrives_and_all_that_tools_changed(
    connect: Connect, home: HubHarness, run: Run
) -> None:
    alice = await home.join("alice")
    old, new = await connect(run), await connect(run)
    new.say(McpRequest(1, "tools/list"))
    assert isinstance(await new.hear(), McpResponse)
    await alice.send("@bob", "hello")
    await alice.create_objective("build", "it works", "bob")
    assert isinstance(first := await old.hear(), McpNotification)
    assert first.method == TOOLS_CHANGED_METHOD
    heard = [await new.hear() for _ in range(3)]
    assert sum(isinstance(one, McpNotification) and one.method == CHANNEL_METHOD for one in heard) == 2
    new.writer.close()
    await until(lambda: len(run.runner._mcp_connections) == 1)
    # Nobody acted upon what that one was told.
    again = [await old.hear(), await old.hear()]
    assert all(one in heard for one in again)
    await alice.send("@bob", "to the one that is left")
    assert isinstance(last := await old.hear(), McpNotification)
    assert (last.params or {})["content"] == "to the one that is left"


async def test_what_an_mcp_server_was_told_before_it_was_killed_is_told_to_the_next_unless_its_agent_acted(
    connect: Connect, home: HubHarness, run: Run
) -> None:
    alice = await home.join("alice")
    first = await connect(run)
    sent = await alice.send("@bob", "hello")
    told = await first.hear()
    first.writer.close()
    await until(lambda: not run.runner._mcp_connections)
    assert (await alice.receipts(sent.id))[0].state == "offered"
    second = await connect(run)
    assert await second.hear() == told
    second.say(McpRequest(1, "tools/call", {"name": "members", "arguments": {}}))
    assert isinstance(await second.hear(), McpResponse)
    assert (await alice.receipts(sent.id))[0].state == "seen"
    second.writer.close()
    await until(lambda: not run.runner._mcp_connections)
    third = await connect(run)
    third.say(McpRequest(2, "tools/list"))
    assert isinstance(await third.hear(), McpResponse)


@pytest.mark.parametrize(
    "said", [b"nonsense\n", b'{"kind":"other"}\n', b"x" * (LINE_BYTES_MAX + 1), encode(McpNotification("x"))]
)
async def test_what_an_mcp_server_may_not_say_ends_its_connection_with_an_error(
    connect: Connect, run: Run, said: bytes
) -> None:
    one, other = await connect(run), await connect(run)
    one.writer.write(said)
    assert isinstance(await one.hear(), Error)
    assert await one.ends()
    other.say(McpRequest(1, "tools/list"))
    assert isinstance(await other.hear(), McpResponse)


async def test_an_mcp_server_that_asks_without_end_is_read_no_further_than_it_is_answered(
    connect: Connect, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    asked = 0

    async def slow(_session: AgentSession, request: McpRequest) -> McpResponse:
        nonlocal asked
        asked += 1
        await go_on.wait()
        return McpResponse(request.id, {})

    monkeypatch.setattr(runner, "answer", slow)
    one = await connect(run)
    one.say(*(McpRequest(number, "x") for number in range(3 * runner.REQUESTS_MAX)))
    await until(lambda: asked == runner.REQUESTS_MAX)
    go_on.set()
    answers = [await one.hear() for _ in range(3 * runner.REQUESTS_MAX)]
    assert len({answer.id for answer in answers if isinstance(answer, McpResponse)}) == 3 * runner.REQUESTS_MAX


async def test_an_answer_that_fits_no_frame_is_an_error_to_its_request(
    connect: Connect, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def huge(_session: AgentSession, request: McpRequest) -> McpResponse:
        return McpResponse(request.id, {"text": "x" * LINE_BYTES_MAX})

    monkeypatch.setattr(runner, "answer", huge)
    one = await connect(run)
    one.say(McpRequest(7, "x"))
    answer = await one.hear()
    assert isinstance(answer, McpResponse)
    assert (answer.id, answer.result) == (7, None)


async def test_mcp_servers_are_told_that_the_run_is_over_and_nothing_is_left(
    connect: Connect, home: HubHarness, folder: Path
) -> None:
    async def open_session() -> Client:
        return await home.join("bob", receive=True)

    async with prepared_run(folder / "runs", open_session, await open_session(), environment={}) as run:
        run.runner.join()
        one = await connect(run)
        one.say(McpRequest(1, "tools/list"))
        assert isinstance(await one.hear(), McpResponse)
    assert isinstance(await one.hear(), Shutdown)
    assert await one.ends()
    assert list((folder / "runs" / "run").iterdir()) == []


async def test_an_mcp_server_that_does_not_read_does_not_keep_the_run_from_ending(
    connect: Connect, home: HubHarness, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CLOSE_SECONDS", 0.05)

    async def open_session() -> Client:
        return await home.join("bob", receive=True)

    alice = await home.join("alice")
    async with asyncio.timeout(20):
        async with prepared_run(folder / "runs", open_session, await open_session(), environment={}) as run:
            run.runner.join()
            stuck = await connect(run)
            stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(40):
                await alice.send("@bob", "x" * 60_000)
            await until(lambda: len(run.runner._mcp_connections) == 1)


async def test_a_signal_before_anybody_handles_it_is_kept(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0)
    heard: list[signal.Signals] = []
    await until(lambda: bool(run.signals._kept))
    with run.signals.handled_by(heard.append):
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: len(heard) == 2)
    assert heard == [signal.SIGTERM, signal.SIGHUP]


# Uploads


class Hub:
    """Test double for a session with the hub.

    Uploads of activity first fail with the given exceptions, then succeed.
    """

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.batches: list[tuple[dict[str, Any], ...]] = []

    async def record_activity(self, *events: dict[str, Any]) -> int:
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(events)
        return len(events)


def uploader(hub: Hub) -> Uploader:
    made = Uploader()
    made.client = hub  # type: ignore[assignment]
    return made


async def test_events_go_in_batches_and_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BATCH_MAX", 2)
    hub = Hub()
    made = uploader(hub)
    running = asyncio.create_task(made.run())
    for number in range(5):
        made.put({"kind": "x", "n": number, "headers": {"x-api-key": "abc123"}, "said": "ac7_" + 20 * "s"})
    await made.finish(running)
    assert [len(batch) for batch in hub.batches] == [2, 2, 1]
    assert [event["n"] for batch in hub.batches for event in batch] == [0, 1, 2, 3, 4]
    assert "abc123" not in str(hub.batches)
    assert "ac7_" not in str(hub.batches)
    assert (made.uploaded, made.left_out) == (5, 0)


async def test_events_of_many_values_go_in_smaller_batches() -> None:
    hub = Hub()
    made = uploader(hub)
    running = asyncio.create_task(made.run())
    for _ in range(5):
        made.put({"kind": "x", "n": [0] * (uploads.BATCH_VALUES_MAX // 2 - 10)})
    await made.finish(running)
    assert [len(batch) for batch in hub.batches] == [2, 2, 1]


async def test_a_hub_that_goes_away_is_uploaded_to_again_and_one_that_refuses_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "BATCH_SECONDS", 0.01)
    full, never = HubRefused(Code.ACTIVITY_FULL, "later"), HubRefused(Code.INVALID_REQUEST, "never")
    hub = Hub(Disconnected("gone"), full, never)
    made = uploader(hub)
    running = asyncio.create_task(made.run())
    made.put({"n": 1})
    await until(lambda: made.left_out == 1)
    made.put({"n": 2})
    await made.finish(running)
    assert hub.batches == [({"n": 2},)]


async def test_what_cannot_be_kept_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "WAITING_MAX", 3)
    monkeypatch.setattr(uploads, "FLUSH_SECONDS", 0.05)
    made = Uploader()
    running = asyncio.create_task(made.run())
    for number in range(5):
        made.put({"n": number})
    made.put({"n": object()})
    assert made.left_out == 3
    # Without a session the run ends all the same.
    await made.finish(running)
    assert made.left_out == 6


async def test_a_runner_is_answered_in_frames(home: HubHarness) -> None:
    async with running(Program(home.home)) as program:
        answer = partial(runner.answer, program.agent_session)
        listed = await answer(McpRequest(1, "tools/list"))
        assert listed.result is not None
        assert {tool["name"] for tool in listed.result["tools"]} >= {"send", "drain"}
        called = await runner.answer(
            program.agent_session, McpRequest(2, "tools/call", {"name": "members", "arguments": {}})
        )
        assert called.result is not None
        assert called.result["content"][0]["text"].startswith("You are bob.")
        refused = await answer(McpRequest(3, "tools/call", {"name": "send"}))
        assert refused.result is not None
        assert refused.result["isError"] is True
        assert await runner.answer(
            program.agent_session, McpRequest(4, "tools/call", {"name": "dance", "arguments": {}})
        ) == McpResponse(4, error=McpError("there is no tool 'dance'", -32602))
        for strange in (McpRequest(5, "tools/call", {"name": 1}), McpRequest(6, "ping")):
            assert (await answer(strange)).error is not None


async def test_a_cancelled_call_takes_nothing_from_the_inbox(connect: Connect, home: HubHarness, run: Run) -> None:
    alice = await home.join("alice")
    one = await connect(run)
    one.say(McpRequest(1, "tools/call", {"name": "drain", "arguments": {"wait": 60}}))
    await until(lambda: bool(run.runner._mcp_connections) and bool(run.runner._mcp_connections[0]._answering))
    numbers: list[Any] = [2, [], None, 1]
    one.say(*(McpNotification(CANCELLED_METHOD, {"requestId": number}) for number in numbers))
    await until(lambda: not run.runner._mcp_connections[0]._answering)
    sent = await alice.send("@bob", "late")
    assert isinstance(await one.hear(), McpNotification)
    assert (await alice.receipts(sent.id))[0].state == "offered"
