"""Tests of foreign clients over TLS: libraries that know no fingerprints are told to trust the hub's certificate.

`docs/network.md` names the setting of each. The official clients of MCP are tested beside their protocol.
"""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial

from tests.clients.node import Program, Refused, program
from tests.server.hubs import WAIT_SECONDS, HubHarness, bodies, running_hub, take
from tieline.protocols.agent_channels.bridge import TcpBridgeServer
from tieline.protocols.agent_channels.channel import Channel
from tieline.protocols.agent_channels.client import ChannelClient
from tieline.protocols.peerbus import codec as peerbus
from tieline.server.certificate import own_certificate
from tieline.wire.frames import encode_frame

pytestmark = pytest.mark.slow


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    tls = {"http": {"tls": True}}
    async with running_hub(folder / "h", http="0.0.0.0:0", peerbus_listen="0.0.0.0:0", flags=tls) as built:
        await built.add("alice", "bob")
        yield built


def certificate(there: HubHarness) -> str:
    """Return the path of the file that a client is given."""
    return str(there.home / "tls.crt")


def peerbus_addresses(there: HubHarness) -> list[str]:
    """Return the addresses of peerbus: the one on the HTTP port, and the port of its own."""
    extra = there.running.places["peerbus"]
    assert extra is not None
    return [there.running.http.replace("https", "wss", 1) + "/peerbus", extra]


def streams(there: HubHarness) -> dict[str, dict[str, Any]]:
    """Return the event streams of bob, each with the request that sends a message to alice."""
    url = there.running.http
    return {
        f"{url}/v1/events/bob": {"url": f"{url}/v1/send", "body": {"to": "@alice", "body": "by backchannel"}},
        f"{url}/subscribe?name=bob": {"url": f"{url}/push", "body": {"to": "alice", "body": "by ac7"}},
    }


async def test_node_connects_with_node_extra_ca_certs(there: HubHarness, tmp_path: Path) -> None:
    token = there.tokens["bob"]
    alice = await there.join("alice", receive=True)
    async with program("web.mjs", tmp_path / "errors", NODE_EXTRA_CA_CERTS=certificate(there)) as node:
        for number, (stream, send) in enumerate(streams(there).items()):
            assert await node.command(stream=stream, token=token) == {"status": 200}
            answer = await node.command(ask=send["url"], token=token, body=send["body"])
            assert answer["status"] == 200, answer
            assert bodies(await take(alice, 1)) == [send["body"]["body"]]
            await alice.send("@bob", f"answer {number}")
            await _hear(node, f'"answer {number}"')
        for url in peerbus_addresses(there):
            node.events.clear()
            await node.command(dial=url, say=peerbus.encode_register("bob", token).decode())
            await _hear(node, '"type":"peers"')


async def _hear(node: Program, text: str) -> None:
    await node.until(lambda: any(text in event["text"] for event in node.events), text)


async def test_node_refuses_the_certificate_without_that(there: HubHarness, tmp_path: Path) -> None:
    async with program("web.mjs", tmp_path / "errors") as node:
        with pytest.raises(Refused, match="SELF_SIGNED"):
            await node.command(ask=f"{there.running.http}/v1/health", token="")
        for url in peerbus_addresses(there):
            with pytest.raises(Refused, match="no WebSocket"):
                await node.command(dial=url, say="")


async def test_python_connects_with_ssl_cert_file(there: HubHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certificate(there))
    token = there.tokens["bob"]
    alice = await there.join("alice", receive=True)
    for number, (stream, send) in enumerate(streams(there).items()):
        with contextlib.closing(await asyncio.to_thread(_open, stream, token)) as events:
            await asyncio.to_thread(_post, send["url"], token, send["body"])
            assert bodies(await take(alice, 1)) == [send["body"]["body"]]
            await alice.send("@bob", f"answer {number}")
            assert await asyncio.to_thread(_find, events, f'"answer {number}"')
    for url in peerbus_addresses(there):
        async with dial(url, compression=None, proxy=None) as socket:
            await socket.send(peerbus.encode_register("bob", token), text=True)
            assert json.loads(await socket.recv())["type"] == "peers"


async def test_python_refuses_the_certificate_without_that(there: HubHarness) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        await asyncio.to_thread(_open, f"{there.running.http}/v1/health", "")
    with pytest.raises(ssl.SSLCertVerificationError):
        await dial(peerbus_addresses(there)[1], proxy=None)


def _open(url: str, token: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=WAIT_SECONDS)


def _post(url: str, token: str, body: dict[str, Any]) -> None:
    with _open(url, token, body) as answer:
        answer.read()


def _find(lines: Iterator[bytes], text: str) -> bool:
    return any(text.encode() in line for line in lines)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_curl_connects_with_cacert(there: HubHarness) -> None:
    url, bearer = there.running.http, f"authorization: Bearer {there.tokens['bob']}"
    trusting = ("--cacert", certificate(there), "--header", bearer)
    assert json.loads(await _curl(*trusting, f"{url}/v1/inbox/bob")) == []
    assert json.loads(await _curl(*trusting, f"{url}/briefing"))["name"] == "bob"
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
    accept = ("--header", "accept: application/json, text/event-stream", "--header", "content-type: application/json")
    assert '"serverInfo"' in await _curl(*trusting, *accept, "--data", json.dumps(hello), f"{url}/mcp")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        await _curl("--header", bearer, f"{url}/v1/inbox/bob")
    assert failed.value.returncode == 60, "the certificate is not trusted"


HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "curl", "version": "1"}}


async def _curl(*arguments: str) -> str:
    command = ("curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "20", *arguments)
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    return done.stdout


async def test_a_plain_tls_client_reaches_a_bridge_of_agent_channels(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = own_certificate(folder, ()).context()
    channel = Channel(folder / "a.sock")
    await channel.start()
    bridge = TcpBridgeServer(channel.path, "0.0.0.0", tls=tls)
    await bridge.start()
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", bridge.port, ssl=ssl.create_default_context())
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / "tls.crt"))
        async with asyncio.timeout(WAIT_SECONDS), ChannelClient(channel.path) as local:
            _, writer = await asyncio.open_connection("127.0.0.1", bridge.port, ssl=ssl.create_default_context())
            writer.write(encode_frame(b'{"msg":"from elsewhere"}'))
            assert (await anext(aiter(local))).msg == "from elsewhere"
            writer.close()
    finally:
        await bridge.stop()
        await channel.stop()
