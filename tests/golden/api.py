"""Golden tests of the hub's own protocol on a WebSocket, and HTTP for health, receipts, search and logs."""

import re
from pathlib import Path

from tests.golden.native_client import EVERYTHING, Native
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.golden.web import Web
from tests.golden.websocket import WebSocket
from tests.server.hubs import ALONE


async def _member(there: Stage, name: str, *permissions: str) -> str:
    await there.there.add(name, permissions=permissions)
    return there.there.tokens[name]


async def _join(there: Stage, name: str, token: str, *, receive: bool = False) -> Native:
    carrier = await WebSocket.dial(there, name, "/api/stream")
    assert carrier is not None
    session = Native(carrier)
    await session.hello(token=token, receive=receive)
    return session


async def play_stream(folder: Path, recorder: Recorder) -> None:
    """Open sessions on the WebSocket, send and receive a few messages, and record the conversation."""
    async with stage(folder, recorder, **ALONE) as there:
        ada_token, bob_token = await _member(there, "ada"), await _member(there, "bob")
        recorder.section("a token in hello, and in the handshake")
        ada = await _join(there, "ada", ada_token)
        carrier = await WebSocket.dial(there, "bob", "/api/stream", Authorization=f"Bearer {bob_token}")
        assert carrier is not None
        bob = Native(carrier)
        await bob.hello(receive=True)
        recorder.section("a message and its way")
        message = await ada.send("@bob", "over a WebSocket", title="Hello")
        await bob.hear()
        await ada.ask("follow", id=message)
        await bob.say({"t": "ack", "keys": [[1, 1]]})
        await ada.hear()
        await bob.ask("fetch")
        await ada.ask("members")
        await ada.ask("send", target="@nobody", body="x")
        recorder.section("refusals")
        for payload in ('[{"t":"hello","v":1,"key":"only on the socket"}]', '[{"t":"hello"}]', "no JSON"):
            stranger = await WebSocket.dial(there, "stranger", "/api/stream")
            assert stranger is not None
            await stranger.say(payload)
            await stranger.hear()
            await stranger.ended()
        await WebSocket.dial(there, "a page from elsewhere", "/api/stream", Origin="https://example.org")
        await WebSocket.dial(there, "stranger", "/api/elsewhere")
        await bob.leave()
        recorder.section("the end of the hub")
        await there.there.hub.stop()
        await ada.hear()
        await ada.carrier.ended()


async def play(folder: Path, recorder: Recorder) -> None:
    """Request all of the hub's own HTTP routes, and record the conversation."""
    async with stage(folder, recorder, **ALONE) as there:
        ada_token = await _member(there, "ada", *EVERYTHING)
        bob_token = await _member(there, "bob")
        ada, bob = await there.there.join("ada"), await there.there.join("bob")
        first = await ada.send("@bob", "the first word", title="One")
        await bob.send("#general", "the second word", data={"n": 2})
        await ada.create_objective("Port it", "It runs", "bob")
        await bob.record_activity({"kind": "log", "ts": recorder.clock.now_ms, "text": "started"})
        stranger, asks, others = Web(there, "stranger"), Web(there, "ada", ada_token), Web(there, "bob", bob_token)
        recorder.section("health and metrics")
        await stranger.ask("GET", "/healthz")
        await stranger.ask("HEAD", "/healthz")
        await stranger.ask("POST", "/healthz")
        await Web(there, "stranger", show=_metric_names).ask("GET", "/metrics")
        recorder.section("receipts")
        await others.ask("GET", f"/api/messages/{first.id}/receipts")
        await asks.ask("HEAD", f"/api/messages/{first.id}/receipts")
        await asks.ask("GET", f"/api/messages/{first.id}/receipts?after=bob")
        await asks.ask("GET", "/api/messages/01900000-0000-7000-8000-000000000000/receipts")
        await stranger.ask("GET", f"/api/messages/{first.id}/receipts")
        await asks.ask("POST", f"/api/messages/{first.id}/receipts", {})
        await asks.ask("GET", f"/api/messages/{first.id}/receipts", origin="https://example.org")
        recorder.section("search")
        await asks.ask("GET", "/api/search?q=word")
        times = "since=0&until=4102444800000"
        await asks.ask("GET", f"/api/search?q=word&from=bob&in=%23general&{times}&before=1000&limit=1")
        await others.ask("GET", "/api/search?q=nowhere")
        await asks.ask("GET", "/api/search")
        await asks.ask("GET", "/api/search?q=word&else=1")
        await asks.ask("GET", "/api/search?q=word&limit=many")
        await Web(there, "wrong", "tie_wrong").ask("GET", "/api/search?q=word")
        recorder.section("logs")
        await asks.ask("GET", "/api/log/main")
        await asks.ask("GET", "/api/log/main?from=2&to=3")
        await asks.ask("HEAD", "/api/log/main")
        await asks.ask("GET", "/api/log/activity", accept_encoding="identity")
        await asks.ask("GET", "/api/log/activity?from=1000")
        await asks.ask("GET", "/api/log/else")
        await asks.ask("GET", "/api/log/main?from=x")
        await others.ask("GET", "/api/log/main")
        await stranger.ask("GET", "/api/log/main")
        await asks.ask("POST", "/api/log/main", {})
        recorder.section("doors")
        await stranger.ask("GET", "/nowhere")
        await stranger.ask("GET", "/healthz", host="example.org")
        await stranger.ask("GET", "/healthz", authorization="x" * 5000)


def _metric_names(body: bytes) -> list[str]:
    """Return the lines of the metrics without their values: names, kinds and labels."""
    lines = body.decode().splitlines()
    return [re.sub(r"[ ][^ ]+$", "", line) if not line.startswith("#") else line for line in lines]
