"""Golden test of MCP over HTTP at `/mcp`: both versions of MCP, tool calls, streams, and refused requests."""

from pathlib import Path
from typing import Any

from tests.golden.native_client import Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.golden.web import Web
from tests.server.hubs import ALONE

_ACCEPT = "application/json, text/event-stream"
_VERSION, _STATELESS = "2025-11-25", "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _request(method: str, params: Any = None, number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return _request("tools/call", {"name": name, "arguments": arguments})


async def play(folder: Path, recorder: Recorder) -> None:
    """Use a session with tools and a stream, then the same without sessions, and record the conversation."""
    async with stage(folder, recorder, **ALONE | {"mcp": True}) as there:
        await there.there.add("ada", "bob")
        ada = await Sockets(there).join("ada", there.there.tokens["ada"])
        recorder.section("refusals")
        await _refusals(there)
        recorder.section("a session")
        await _session(there, recorder, ada)
        recorder.section("without a session")
        await _without(there, ada)


async def _refusals(there: Stage) -> None:
    stranger = Web(there, "stranger", accept=_ACCEPT)
    await stranger.ask("POST", "/mcp", _request("initialize"))
    await stranger.ask("POST", "/mcp", _request("initialize"), authorization="Bearer nonsense")
    bob = Web(there, "bob", there.there.tokens["bob"], accept=_ACCEPT)
    await bob.ask("POST", "/mcp", _request("initialize"), origin="https://example.org")
    await bob.ask("POST", "/mcp", _call("members"))
    await bob.ask("POST", "/mcp", _call("members"), mcp_session_id="nonsense")
    await bob.ask("POST", "/mcp", b"no JSON", content_type="application/json")
    await bob.ask("POST", "/mcp", b"no JSON", content_type="text/plain")
    await bob.ask("PUT", "/mcp", _call("members"))


async def _session(there: Stage, recorder: Recorder, ada: Native) -> None:
    bob = Web(there, "bob", there.there.tokens["bob"], accept=_ACCEPT)
    about = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    reader, _ = await bob._request("POST", "/mcp", _request("initialize", about), {"connection": "close"})
    opened = (await reader.read()).decode()
    session = opened.split("mcp-session-id: ")[1].split("\r\n")[0]
    recorder.know(session, "session")
    recorder.heard("bob", opened.partition("\r\n")[0], opened.partition("\r\n\r\n")[2])
    bob.headers["mcp-session-id"] = session
    await bob.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"})
    await bob.ask("POST", "/mcp", _request("ping"))
    await bob.ask("POST", "/mcp", _call("members"))
    await bob.ask("POST", "/mcp", _call("send", to="@ada", body="hello", title="greeting", urgent=True))
    await bob.ask("POST", "/mcp", _call("send", too="@ada"))
    await bob.ask("POST", "/mcp", _call("objective", do="block"))
    await bob.ask("POST", "/mcp", _call("dance"))
    await bob.ask("POST", "/mcp", _request("prompts/list"))
    events = await bob.stream("/mcp")
    await ada.ask("send", target="@bob", body="look & see </channel>", data={"branch": "main"})
    await events.hear()
    await bob.ask("POST", "/mcp", _call("inbox"))
    await bob.ask("POST", "/mcp", _call("drain"))
    await bob.ask("POST", "/mcp", _call("drain"))
    await events.leave()
    await bob.ask("DELETE", "/mcp")
    await bob.ask("POST", "/mcp", _call("members"))


async def _without(there: Stage, ada: Native) -> None:
    bob = Web(there, "bob", there.there.tokens["bob"], accept=_ACCEPT, mcp_protocol_version=_STATELESS)
    await bob.ask("POST", "/mcp", _request("server/discover", {"_meta": _META}), mcp_method="server/discover")
    call = {**_call("members")["params"], "_meta": _META}
    await bob.ask("POST", "/mcp", _request("tools/call", call), mcp_method="tools/call", mcp_name="members")
    await bob.ask("POST", "/mcp", _request("tools/call", call), mcp_method="tools/call", mcp_name="send")
    await bob.ask("POST", "/mcp", _request("tools/list", {}), mcp_method="tools/list")
    await bob.ask("GET", "/mcp")
    await ada.ask("send", target="@bob", body="the last")
