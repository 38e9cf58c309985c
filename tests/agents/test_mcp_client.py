"""Tests of the client side of MCP on stdio, with small scripts as servers.

`tests/cli/test_connect.py` uses it with the real server.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import IO

import pytest

from tieline.agents import mcp_client
from tieline.agents.mcp_client import McpClient, ServerFailed, open_server
from tieline.protocols.mcp.codec import HANDSHAKE_VERSIONS

START = """
import json, os, signal, sys
def read():
    return json.loads(sys.stdin.readline())
def write(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
asked = read()
"""
HANDSHAKE = f"""{START}
write(method="notifications/before")
write(id=asked["id"], result={{"asked": asked["params"]["protocolVersion"]}})
assert read()["method"] == "notifications/initialized"
asked = read()
"""
WAIT_SECONDS = 5.0
OpenServer = Callable[[str], AbstractAsyncContextManager[McpClient]]


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    """Fixture: path of the file for the error output of servers."""
    return tmp_path / "errors"


@pytest.fixture
def server(errors: Path) -> OpenServer:
    """Fixture: a function that starts a Python script as an MCP server and opens a session with it."""

    @asynccontextmanager
    async def start(script: str) -> AsyncIterator[McpClient]:
        with errors.open("w") as file:
            async with open_server([sys.executable, "-S", "-c", script], {"ONLY": "this"}, file) as client:
                yield client

    return start


async def test_the_client_lists_and_calls_tools_and_ignores_notifications(server: OpenServer) -> None:
    script = f"""{HANDSHAKE}
write(method="notifications/tools/list_changed")
write(id=0, result={{}})
write(id=asked["id"], result={{"tools": [{{"name": "send"}}, {{"name": os.environ["ONLY"]}}]}})
asked = read()
write(id=asked["id"], result={{"isError": "HOME" in os.environ, "content": [asked["params"]]}})
assert not sys.stdin.readline()
"""
    async with server(script) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["send", "this"]
        called = {"name": "send", "arguments": {"to": "@bob"}}
        assert await client.call_tool("send", {"to": "@bob"}) == {"isError": False, "content": [called]}


async def test_the_client_asks_for_the_newest_version_with_a_handshake(server: OpenServer) -> None:
    script = f'{START}\nwrite(id=asked["id"], error={{"message": "asked for " + asked["params"]["protocolVersion"]}})'
    with pytest.raises(ServerFailed, match=f"asked for {HANDSHAKE_VERSIONS[-1]}"):
        async with server(script):
            pass


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('write(id=asked["id"], error={"code": -32602, "message": "no such thing"})', "no such thing"),
        ('write(id=asked["id"], error="no")', "no"),
        ('write(id=asked["id"], result=[])', "has no result"),
        ('write(id=asked["id"], result={})', "has no tools"),
        ('print("Welcome!", flush=True)', "no message of MCP"),
        ('print("[]", flush=True)', "no message of MCP"),
        ("", "has ended"),
    ],
)
async def test_a_server_that_does_not_answer_a_request_has_failed(server: OpenServer, answer: str, why: str) -> None:
    with pytest.raises(ServerFailed, match=why):
        async with server(HANDSHAKE + answer) as client:
            await client.list_tools()


async def test_a_server_that_ends_at_once_leaves_its_reason_in_the_error_output(
    server: OpenServer, errors: Path
) -> None:
    with pytest.raises(ServerFailed, match="has ended"):
        async with server("import sys; sys.exit('no hub')"):
            pass
    assert errors.read_text() == "no hub\n"


async def test_a_command_that_does_not_exist_is_an_error_of_the_system(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as file, pytest.raises(FileNotFoundError):
        async with open_server([str(tmp_path / "none")], {}, file):
            pass


async def test_a_server_that_stays_after_its_stdin_is_closed_is_killed(
    server: OpenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_client, "END_SECONDS", 0.01)
    stays = 'write(id=asked["id"], result={"tools": [{"pid": os.getpid()}]})\nsignal.pause()'
    async with server(HANDSHAKE + stays) as client:
        ((_, pid),) = (await client.list_tools())[0].items()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@asynccontextmanager
async def cancelled(command: list[str]) -> AsyncIterator[tuple[str, IO[str]]]:
    """Start a server that never answers, and cancel the client after the first line of the error output.

    Yield that line and the rest of the error output, which ends when the last process that may write it ends.
    """
    reading, writing = os.pipe()

    async def start() -> None:
        with os.fdopen(writing, "w") as errors:
            async with open_server(command, {"PATH": os.environ["PATH"]}, errors):
                pass

    with os.fdopen(reading) as output:
        task = asyncio.create_task(start())
        line = await asyncio.to_thread(output.readline)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT_SECONDS)
        assert task.cancelled(), "the client ends soon"
        yield line, output


@pytest.mark.parametrize(
    ("end_seconds", "last"), [(0.01, "wait"), (0.2, "cat")], ids=["of a server that stays", "of a server that ends"]
)
async def test_the_processes_that_a_server_started_are_killed_if_they_have_its_stdout(
    monkeypatch: pytest.MonkeyPatch, end_seconds: float, last: str
) -> None:
    monkeypatch.setattr(mcp_client, "END_SECONDS", end_seconds)
    command = ["/bin/sh", "-c", f"read request; sleep 15 & echo started >&2; {last}"]
    async with cancelled(command) as (_, output), asyncio.timeout(WAIT_SECONDS):
        assert await asyncio.to_thread(output.read) == ""


async def test_a_process_outside_the_group_of_its_server_does_not_delay_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_client, "END_SECONDS", 0.01)
    monkeypatch.setattr(mcp_client, "KILL_SECONDS", 0.5)
    script = """
import subprocess, sys
sys.stdin.readline()
left = subprocess.Popen(["sleep", "15"], start_new_session=True)
print(left.pid, file=sys.stderr, flush=True)
left.wait()
"""
    async with cancelled([sys.executable, "-S", "-c", script]) as (pid, output):
        # It has the stdout of the server open, and only this test ends it.
        os.kill(int(pid), signal.SIGKILL)
        assert await asyncio.to_thread(output.read) == ""
