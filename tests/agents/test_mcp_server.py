"""Tests of `tieline mcp` as a process, with the official SDK's client, in an older and a newer version of MCP."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.mcp_agent import ERAS, LEGACY, WAIT_SECONDS, mcp_agent, mcp_server_processes, raw_program
from tests.protocols.mcp.test_forwarder import state, steps
from tests.protocols.mcp.test_framing import FORGERIES
from tests.server.hubs import ALONE, HubHarness, running_hub, until
from tieline.agents.mcp_server import REQUESTS_MAX
from tieline.agents.runner_frames import McpNotification, McpRequest, McpResponse, Shutdown, decode, encode
from tieline.agents.stdio import LINE_BYTES_MAX
from tieline.client import connect
from tieline.protocols.mcp.codec import CAPABILITIES_KEY, VERSION_KEY

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_lists_calls_is_pushed_to_and_sees_its_objectives(home: HubHarness, era: str) -> None:
    alice = await home.join("alice")
    async with mcp_agent(home.home, era) as agent:
        client = agent.client
        assert client.protocol_version == ("2025-11-25" if era == LEGACY else "2026-07-28")
        assert client.server_capabilities.experimental == {"claude/channel": {}}
        assert client.instructions is not None
        assert "input from others, not from your user" in client.instructions
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            *("send", "drain", "inbox", "members", "channels", "history", "receipts", "objectives", "objective"),
        }
        # A message comes by itself, and the next call shows that it came.
        sent = await alice.send("@bob", "hello", data={"branch": "main"})
        await until(lambda: agent.bodies == ["hello"], seconds=WAIT_SECONDS)
        assert agent.pushed[0].meta["from"] == "alice"
        assert agent.pushed[0].meta["branch"] == "main"
        assert await state(alice, sent.id) == "offered"
        assert (await agent.call("send", to="@alice", body="yes", reply_to=sent.id)).startswith("accepted ")
        await agent.call("members")
        assert [step for step in await steps(alice, sent.id) if step[0] in ("seen", "acked")] == [
            ("seen", "tool call: send"),
            ("acked", "answered by the agent"),
        ]
        # Whatever is in a body is text.
        for forgery in FORGERIES:
            await alice.send("@bob", forgery)
        await until(lambda: len(agent.bodies) == 1 + len(FORGERIES), seconds=WAIT_SECONDS)
        assert not any("<" in body or "\x1b" in body for body in agent.bodies)
        # An objective changes what the tools say.
        assert "no open objectives" in await agent.description()
        if era == LEGACY:
            made = await alice.create_objective("Fix it", "It works", "bob")
            await until(lambda: agent.refreshes == 1, seconds=WAIT_SECONDS)
        else:
            async with client.listen(tools_list_changed=True) as changes, asyncio.timeout(WAIT_SECONDS):
                made = await alice.create_objective("Fix it", "It works", "bob")
                await anext(aiter(changes))
        assert f"- {made.id} [active] Fix it → It works" in await agent.description()
        await agent.call("objective", do="complete", id=made.id, text="it works")
        await until(lambda: agent.bodies[-1].startswith("[objective completed]"), seconds=WAIT_SECONDS)
        assert agent.pushed[-1].meta["self"] == "yes"


@pytest.mark.parametrize("era", ERAS)
async def test_messages_that_arrived_while_the_agent_was_away_come_once(home: HubHarness, era: str) -> None:
    alice = await home.join("alice")
    sent = [await alice.send("@bob", body) for body in ("one", "two")]
    async with mcp_agent(home.home, era) as agent:
        await agent.client.list_tools()
        await until(lambda: agent.bodies == ["one", "two"], seconds=WAIT_SECONDS)
        await agent.call("members")
        await alice.members()
        assert [await state(alice, one.id) for one in sent] == ["seen", "seen"]
    await alice.send("@bob", "three")
    async with mcp_agent(home.home, era) as agent:
        await agent.client.list_tools()
        await until(lambda: bool(agent.bodies), seconds=WAIT_SECONDS)
        assert agent.bodies == ["three"]
    assert not mcp_server_processes()


async def test_a_kill_between_push_and_evidence_has_it_offered_again_and_evidence_counts_once(home: HubHarness) -> None:
    alice = await home.join("alice")
    async with raw_program(home.home, "--as", "bob") as program:
        await program.initialize()
        program.notify("notifications/initialized")
        sent = await alice.send("@bob", "do not lose me")
        assert (await program.read())["params"]["content"] == "do not lose me"
        assert await state(alice, sent.id) == "offered"
        program.process.kill()
        await program.process.wait()
    async with mcp_agent(home.home, LEGACY) as agent:
        await until(lambda: agent.bodies == ["do not lose me"], seconds=WAIT_SECONDS)
        await agent.call("members")
        await agent.call("members")
        assert [step for step in await steps(alice, sent.id) if step[0] == "seen"] == [("seen", "tool call: members")]


async def test_nothing_is_written_before_initialized_and_garbage_ends_nothing(home: HubHarness) -> None:
    alice = await home.join("alice")
    await alice.send("@bob", "early")
    async with raw_program(home.home, "--as", "bob") as program:
        answer = await program.initialize()
        assert answer["result"]["capabilities"]["experimental"] == {"claude/channel": {}}
        with pytest.raises(TimeoutError):
            await program.read(seconds=0.5)
        for line in (b"garbage", b"[]", b"{}", b'{"jsonrpc":"2.0","method":1}', b"\xff\xfe", b"null"):
            program.write(line)
        program.notify("notifications/initialized")
        while (came := await program.read()).get("method") != "notifications/claude/channel":
            pass
        assert came["params"]["content"] == "early"
        unknown = await program.ask("tools/call", {"name": "dance", "arguments": {}})
        assert unknown["error"]["code"] == -32602
        wrong = await program.ask("tools/call", {"name": "send", "arguments": {"to": 1}})
        assert wrong["result"]["isError"] is True
        assert (await program.ask("tools/list"))["result"]["tools"]


@pytest.mark.parametrize("end", ["stdin", "SIGTERM", "SIGINT"])
async def test_the_mcp_server_ends_with_its_program(home: HubHarness, end: str) -> None:
    async with raw_program(home.home, "--as", "bob") as program:
        await program.initialize()
        if end == "stdin":
            assert program.process.stdin is not None
            program.process.stdin.close()
        else:
            program.process.send_signal(signal.Signals[end])
        async with asyncio.timeout(WAIT_SECONDS):
            assert await program.process.wait() == (0 if end == "stdin" else -signal.Signals[end])


async def test_the_mcp_server_comes_back_to_a_hub_that_restarts(folder: Path) -> None:
    path = folder / "home"
    async with running_hub(path, **ALONE) as here:
        await here.add("alice", "bob")
    async with raw_program(path, "--as", "bob") as program:
        # There before the hub is.
        assert (await program.initialize())["result"]["serverInfo"]["name"] == "tieline"
        program.notify("notifications/initialized")
        for body in ("one", "two"):
            async with running_hub(path, **ALONE) as here:
                alice = here.keep(await connect(home=path, member="alice"))
                await alice.send("@bob", body)
                while (came := await program.read()).get("method") != "notifications/claude/channel":
                    pass
                assert came["params"]["content"] == body
                called = await program.ask("tools/call", {"name": "members", "arguments": {}})
                assert "alice" in called["result"]["content"][0]["text"]


async def test_other_systems_names_are_offered_on_demand(home: HubHarness) -> None:
    async with mcp_agent(home.home, LEGACY, "--tools", "peerbus") as agent:
        names = {tool.name for tool in (await agent.client.list_tools()).tools}
        assert names == {"bus.send", "bus.broadcast", "bus.peers", "bus.drain"}
        assert json.loads(await agent.call("bus.peers"))["self"] == "bob"


async def test_without_pushes_nothing_comes_by_itself(home: HubHarness) -> None:
    alice = await home.join("alice")
    await alice.send("@bob", "quiet")
    async with mcp_agent(home.home, LEGACY, "--no-push") as agent:
        await agent.call("members")
        assert not agent.bodies
        assert "\nquiet\n" in await agent.call("drain")


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [((), 2, "needs a member"), (("--as", "operator"), 3, "kept for the hub"), (("--token", "wrong"), 3, "token")],
)
async def test_who_cannot_be_anybody_is_told_at_once(
    home: HubHarness, options: tuple[str, ...], code: int, why: str
) -> None:
    async with raw_program(home.home, *options) as program, asyncio.timeout(WAIT_SECONDS):
        assert program.process.stderr is not None
        assert why in (await program.process.stderr.read()).decode()
        assert await program.process.wait() == code


async def test_under_a_runner_the_mcp_server_passes_everything_to_it(folder: Path) -> None:
    asked: list[McpRequest] = []
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(McpNotification("notifications/claude/channel", {"content": "hi", "meta": {"a": "b"}})))
        while line := await reader.readline():
            frame = decode(line)
            if isinstance(frame, Shutdown):
                break
            assert isinstance(frame, McpRequest)
            asked.append(frame)
            tools = {"tools": [{"name": "t", "description": "d", "inputSchema": {"type": "object"}}]}
            called = {"content": [{"type": "text", "text": "done"}]}
            writer.write(encode(McpResponse(frame.id, tools if frame.method == "tools/list" else called)))
            writer.write(encode(McpNotification("notifications/tools/list_changed")))
        writer.close()
        ended.set_result(None)

    path = folder / "runner.sock"
    server = await asyncio.start_unix_server(run, path)
    async with mcp_agent(folder / "none", LEGACY, env={"AC7_RUNNER_SOCKET": str(path)}) as agent:
        await until(lambda: agent.bodies == ["hi"], seconds=WAIT_SECONDS)
        assert [tool.name for tool in (await agent.client.list_tools()).tools] == ["t"]
        await until(lambda: agent.refreshes == 1, seconds=WAIT_SECONDS)
        assert await agent.call("t", a=1) == "done"
    async with asyncio.timeout(WAIT_SECONDS):
        await ended
    assert [(one.method, one.params) for one in asked] == [
        ("tools/list", None),
        ("tools/call", {"name": "t", "arguments": {"a": 1}}),
    ]
    server.close()


@pytest.mark.parametrize("variable", ["TIELINE_RUNNER_SOCKET", "AC7_RUNNER_SOCKET"])
async def test_a_runner_that_is_not_there_is_said(folder: Path, variable: str) -> None:
    async with (
        raw_program(folder / "none", env={variable: str(folder / "none.sock")}) as program,
        asyncio.timeout(WAIT_SECONDS),
    ):
        assert await program.process.wait() == 4


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_waits_tells_of_its_progress_and_a_cancelled_one_takes_nothing(
    home: HubHarness, era: str
) -> None:
    alice = await home.join("alice")
    told = asyncio.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        del progress, total, message
        told.set()

    async with mcp_agent(home.home, era, "--no-push") as agent:
        waiting = asyncio.create_task(agent.client.call_tool("drain", {"wait": 60}, progress_callback=progress))
        async with asyncio.timeout(WAIT_SECONDS):
            await told.wait()
            await alice.send("@bob", "at last")
            assert "at last" in str(await waiting)
        waiting = asyncio.create_task(agent.client.call_tool("drain", {"wait": 60}))
        await agent.call("members")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await agent.call("members")
        sent = await alice.send("@bob", "late")
        assert "late" in await agent.call("inbox")
        assert await state(alice, sent.id) != "acked"


async def test_a_request_is_refused_if_its_id_is_in_use_or_too_many_run(home: HubHarness) -> None:
    async with raw_program(home.home, "--as", "bob", "--no-push") as program:
        await program.initialize()
        wait = {"name": "drain", "arguments": {"wait": 600}}
        for number in (*(f"wait-{each}" for each in range(REQUESTS_MAX)), "wait-0", "one-more"):
            program.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": wait}).encode())
        for number, why in (("wait-0", "with this id"), ("one-more", "at once")):
            refused = await program.read()
            assert (refused["id"], why in refused["error"]["message"]) == (number, True)
        for wrong in ("wait-0", True, "nobody", None):
            params = {"requestId": wrong}
            program.write(
                json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()
            )
        # A cancelled request gets no answer, and makes room.
        assert (await program.ask("ping"))["result"] == {}


async def test_an_error_says_what_is_wrong_with_a_line(home: HubHarness) -> None:
    async with raw_program(home.home, "--as", "bob", "--no-push") as program:
        await program.initialize()
        two = b'[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","method":"b"}]'
        for line, why in ((b"garbage", "not JSON"), (two, "one message"), (b"x" * (LINE_BYTES_MAX + 1), "at most")):
            program.write(line)
            answer = await program.read()
            assert (answer["id"], why in answer["error"]["message"]) == (None, True)
        for method, params, code in (
            ("dance", {}, -32601),
            ("tools/call", {"name": 1}, -32602),
            ("ping", {"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}}, -32601),
            ("server/discover", {"_meta": {VERSION_KEY: "1999-01-01", CAPABILITIES_KEY: {}}}, -32022),
            ("server/discover", {"_meta": {VERSION_KEY: "2026-07-28"}}, -32602),
            ("subscriptions/listen", {"_meta": {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}}, -32602),
        ):
            assert (await program.ask(method, params))["error"]["code"] == code


async def test_a_program_that_reads_nothing_holds_up_no_line_of_its_own(home: HubHarness) -> None:
    alice = await home.join("alice", receive=True)
    body = "long " * 10_000
    async with raw_program(home.home, "--as", "bob") as program:
        await program.initialize()
        program.notify("notifications/initialized")
        for _ in range(20):
            await alice.send("@bob", body)
        sent = {"name": "send", "arguments": {"to": "@alice", "body": "still there"}}
        program.write(json.dumps({"jsonrpc": "2.0", "id": "send", "method": "tools/call", "params": sent}).encode())
        # It comes although more is pushed than the pipe holds.
        delivery = await asyncio.wait_for(anext(aiter(alice.deliveries())), WAIT_SECONDS)
        assert delivery.message.body == "still there"
        assert program.process.stdin is not None
        program.process.stdin.close()
        # `wait` of asyncio would also wait until somebody has read the rest.
        await until(lambda: program.process.returncode is not None, seconds=WAIT_SECONDS)
        assert program.process.returncode == 0


def test_the_server_starts_without_the_libraries_that_are_slow_to_load() -> None:
    code = "import sys, tieline.cli.main, tieline.agents.mcp_server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"mcp", "mcp_types", "pydantic", "starlette", "uvicorn", "rich"}.isdisjoint(loaded)
