"""Tests of the hub's `/mcp` with the official TypeScript clients: one for MCP with a handshake, one also without."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.clients.node import Program, Refused, need, program
from tests.protocols.mcp.test_forwarder import state
from tests.server.hubs import HubHarness, running_hub

pytestmark = pytest.mark.slow

SDK = "@modelcontextprotocol/sdk"
CLIENT = "@modelcontextprotocol/client"
PINNED: dict[str, Any] = {"versionNegotiation": {"mode": {"pin": "2026-07-28"}}}
LIBRARIES = [
    pytest.param("sdk", {}, id="sdk"),
    pytest.param("client", {}, id="client, handshake"),
    pytest.param("client", PINNED, id="client, stateless"),
]


async def call(client: Program, name: str, **arguments: Any) -> str:
    """Call a tool. Return the text of its answer."""
    result = await client.command(call="callTool", args=[{"name": name, "arguments": arguments}])
    return str(result["content"][0]["text"])


@pytest.mark.parametrize(("library", "options"), LIBRARIES)
async def test_it_lists_drains_answers_and_is_pushed_to(
    place: HubHarness, folder: Path, library: str, options: dict[str, Any]
) -> None:
    need(SDK if library == "sdk" else CLIENT)
    alice = await place.join("alice")
    url, token = f"{place.running.http}/mcp", place.tokens["bob"]
    async with program("mcp.mjs", folder / "errors") as client:
        with pytest.raises(Refused):
            await client.command(connect={"library": library, "url": url, "token": "nonsense", "options": options})
        about = {"library": library, "url": url, "token": token, "options": options}
        opened = await client.command(connect=about)
        assert (opened["session"] is None) == (options == PINNED)
        tools = (await client.command(call="listTools", args=[]))["tools"]
        assert {"send", "drain", "inbox"} <= {tool["name"] for tool in tools}
        waiting = asyncio.create_task(call(client, "drain", wait=15))
        sent = await alice.send("@bob", "hello")
        assert "\nhello\n" in await waiting
        assert await state(alice, sent.id) == "acked"
        assert (await call(client, "send", to="@alice", body="yes", reply_to=sent.id)).startswith("accepted")
        if options == PINNED:
            await client.command(call="listen", args=[{"toolsListChanged": True}])
        await alice.send("@bob", "pushed")
        pushed = "notifications/claude/channel"
        await client.until(
            lambda: any(event["event"] == pushed and event["params"]["content"] == "pushed" for event in client.events),
            "the push",
        )


@pytest.mark.parametrize("library", ["sdk", "client"])
async def test_it_trusts_the_certificate_of_a_hub_that_it_is_told_to_trust(folder: Path, library: str) -> None:
    need(SDK if library == "sdk" else CLIENT)
    async with running_hub(folder / "h", flags={"http": {"tls": True}}) as there:
        await there.add("bob")
        about = {"library": library, "url": f"{there.running.http}/mcp", "token": there.tokens["bob"], "options": {}}
        async with program("mcp.mjs", folder / "errors") as client:
            with pytest.raises(Refused):
                await client.command(connect=about)
        certificate = str(there.home / "tls.crt")
        async with program("mcp.mjs", folder / "errors", NODE_EXTRA_CA_CERTS=certificate) as client:
            await client.command(connect=about)
            assert (await client.command(call="listTools", args=[]))["tools"]
