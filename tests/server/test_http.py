"""Tests of the HTTP port: health, metrics, and the rights to open a stream."""

import asyncio
import json
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import websockets
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect

from tests.server.hubs import HubHarness, running_hub, take
from tieline import __version__
from tieline.client import HubRefused
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.refusal import Code
from tieline.core.store import StoreError
from tieline.server.bounds import BoundedProtocol
from tieline.wire.native import frames as f


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe") as built:
        await built.add("alice", "bob")
        yield built


async def get(url: str) -> tuple[int, str, str]:
    """Make a GET request. Return status, content type and text of the answer."""

    def read() -> tuple[int, str, str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.headers["content-type"], response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read().decode()

    return await asyncio.to_thread(read)


async def metrics(there: HubHarness) -> dict[str, float]:
    """Return the values of all metrics, by name and labels."""
    status, kind, text = await get(f"{there.running.http}/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def stream_address(there: HubHarness) -> str:
    return there.running.http.replace("http", "ws") + "/api/stream"


async def test_a_healthy_hub_says_so_with_its_version(there: HubHarness) -> None:
    status, kind, text = await get(f"{there.running.http}/healthz")
    assert (status, kind) == (200, "application/json")
    assert json.loads(text) == {"status": "ok", "version": __version__}


async def test_a_hub_whose_store_is_lost_says_so(there: HubHarness) -> None:
    assert there.hub.local_hub is not None
    there.hub.local_hub.failure.set_result(StoreError("gone"))
    status, _, text = await get(f"{there.running.http}/healthz")
    assert status == 503
    assert json.loads(text)["status"] == "failed"


async def test_other_pages_are_not_there(there: HubHarness) -> None:
    assert (await get(f"{there.running.http}/nothing"))[0] == 404


async def test_the_metrics_count_what_passed_and_what_waits(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    for number in range(3):
        await alice.send("@bob", str(number))
    bob.ack((await take(bob, 3))[0])
    await bob.members()
    samples = await metrics(there)
    assert samples["tieline_messages_accepted_total"] == 3
    assert samples["tieline_deliveries_created_total"] == 3
    assert samples["tieline_members"] == 2
    assert samples["tieline_sessions/tieline"] == 2
    assert (samples["tieline_backlog"], samples["tieline_held"]) == (2, 0)
    assert samples["tieline_commits_total"] >= 3
    await (await there.operator()).pause_thread("@alice+@bob")
    await alice.send("@bob", "held")
    await bob.members()
    samples = await metrics(there)
    assert (samples["tieline_backlog"], samples["tieline_held"]) == (3, 1)


async def test_the_metrics_still_know_the_members_after_the_store_failed_once(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there.hub.local_hub is not None
    store = there.hub.local_hub._broker.store
    alice = await there.join("alice")

    def fail() -> None:
        monkeypatch.undo()
        raise StoreError("no space left on device")

    monkeypatch.setattr(store, "commit", fail)
    with capture_logs(), pytest.raises(HubRefused) as caught:
        await alice.send("@bob", "lost")
    assert caught.value.code is Code.STORE_FAILED
    assert (await metrics(there))["tieline_members"] == 2


async def test_the_metrics_count_activity_apart(there: HubHarness) -> None:
    alice = await there.join("alice")
    await alice.record_activity({"kind": "x"}, {"kind": "y"})
    samples = await metrics(there)
    assert (samples["tieline_activity_events_total"], samples["tieline_activity_commits_total"]) == (2, 1)
    assert samples["tieline_activity_waiting"] == 0


async def test_small_answers_are_sent_without_delay(folder: Path) -> None:
    accepted: list[int] = []

    class Spy(BoundedProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            sock = transport.get_extra_info("socket")
            accepted.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tieline.server.http.BoundedProtocol", Spy)
        async with running_hub(folder, store="memory") as there:
            assert (await get(f"{there.running.http}/healthz"))[0] == 200
    assert accepted
    assert all(accepted)


async def test_asking_for_metrics_leaves_no_session_behind(there: HubHarness) -> None:
    assert await metrics(there)
    assert not [name for name in await metrics(there) if name.startswith("tieline_sessions")]


# The names of the port


DOORS = ["/healthz", "/", "/v1/health", "/v1/agents", "/api/session", "/api/search?q=x", "/api/log/main", "/roster"]
STREAMS = ["/api/stream", "/peerbus", "/", "/subscribe?name=alice"]


async def ask(
    there: HubHarness, path: str, host: str | None, *, upgrade: bool = False, origin: str = ""
) -> tuple[int, str]:
    """Make a request with this `Host` header, or none. Return status and text of the answer."""
    address = urlsplit(there.running.http)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = [f"GET {path} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), "Authorization: Bearer x"]
    if upgrade:
        head += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        head += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    head += [f"Origin: {origin}"] if origin else []
    writer.write("\r\n".join([*head, "", ""]).encode())
    try:
        async with asyncio.timeout(10):
            answer = (await reader.readuntil(b"\r\n\r\n")).decode()
            if " 421 " in answer:
                answer += (await reader.read()).decode()
    finally:
        writer.close()
    return int(answer.split()[1]), answer


@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
async def test_a_page_that_rebinds_its_name_to_loopback_reaches_no_door(there: HubHarness, upgrade: bool) -> None:
    host = f"rebound.example:{urlsplit(there.running.http).port}"
    for path in STREAMS if upgrade else DOORS:
        status, text = await ask(there, path, host, upgrade=upgrade, origin=f"http://{host}")
        assert status == 421, path
        assert "tieline.toml" in text


async def test_a_refused_websocket_leaves_nothing_in_the_log(
    there: HubHarness, caplog: pytest.LogCaptureFixture
) -> None:
    address = urlsplit(there.running.http)
    token = "x" * (DEFAULT_LIMITS.token_bytes_max + 1)
    for host, shown, status in (("rebound.example", "x", 421), (address.netloc, token, 431)):
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = ["GET /api/stream HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {shown}", "Connection: Upgrade"]
        head += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        writer.write("\r\n".join([*head, "", ""]).encode())
        async with asyncio.timeout(10):
            assert f" {status} ".encode() in await reader.readline()
            # The connection ends after whatever the hub has to say about it.
            await reader.read()
        writer.close()
    assert (await get(f"{there.running.http}/healthz"))[0] == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "hub.localhost", None])
async def test_clients_by_address_and_localhost_and_those_without_a_host_reach_every_door(
    there: HubHarness, host: str | None
) -> None:
    shown = None if host is None else f"{host}:{urlsplit(there.running.http).port}"
    assert [path for path in DOORS if (await ask(there, path, shown))[0] in (403, 421)] == []
    opened = [(await ask(there, path, shown, upgrade=True))[0] for path in STREAMS]
    assert opened == [101, 101, 101, 401]


async def test_a_name_of_the_configuration_is_answered_beside_localhost(folder: Path) -> None:
    (folder / "tieline.toml").write_text('[http]\nnames = ["hub.example.org"]\n')
    async with running_hub(folder) as there:
        for host, status in (("hub.example.org", 200), ("localhost", 200), ("other.example.org", 421)):
            assert (await ask(there, "/healthz", host))[0] == status


async def test_a_hub_that_listens_on_the_network_answers_to_names_that_it_was_not_told(folder: Path) -> None:
    async with running_hub(folder, http="0.0.0.0:0", flags={"http": {"insecure": True}}) as there:
        port = urlsplit(there.running.http).port
        built = HubHarness(folder, there.hub, msgspec.structs.replace(there.running, http=f"http://127.0.0.1:{port}"))
        assert (await ask(built, "/healthz", "hub.example.org"))[0] == 200


# The stream


async def exchange_frames(connection: ClientConnection, *frames: f.Frame) -> list[f.HubFrame]:
    await connection.send(f.encode_batch(frames), text=True)
    async with asyncio.timeout(10):
        return f.decode_hub_batch(await connection.recv())


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
async def test_a_page_of_another_site_cannot_open_a_stream(there: HubHarness, origin: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with websocket_connect(stream_address(there), origin=websockets.Origin(origin), proxy=None):
            pass
    assert caught.value.response.status_code == 403


async def test_a_page_of_the_hub_itself_and_a_program_can(there: HubHarness) -> None:
    for origin in (websockets.Origin(there.running.http), None):
        async with websocket_connect(stream_address(there), origin=origin, proxy=None) as connection:
            (welcome,) = await exchange_frames(connection, f.Hello(token=there.tokens["alice"]))
            assert isinstance(welcome, f.Welcome)


async def test_a_batch_may_be_text_or_bytes(there: HubHarness) -> None:
    async with websocket_connect(stream_address(there), proxy=None) as connection:
        await connection.send(f.encode_batch([f.Hello(token=there.tokens["alice"])]))
        (welcome,) = f.decode_hub_batch(await connection.recv())
        assert isinstance(welcome, f.Welcome)
        (roster,) = await exchange_frames(connection, f.ListMembers(3))
        assert isinstance(roster, f.Roster)


@pytest.mark.parametrize("bad", ["", "hello", "{}", '[{"t":"dance"}]', '[{"t":"claim","n":1}]', '[{"t":"hello"}]'])
async def test_bad_input_ends_that_stream_with_a_refusal_and_no_other(there: HubHarness, bad: str) -> None:
    alice = await there.join("alice", carrier="websocket")
    async with websocket_connect(stream_address(there), proxy=None) as connection:
        await exchange_frames(connection, f.Hello(token=there.tokens["bob"]))
        await connection.send(bad)
        async with asyncio.timeout(10):
            (refused,) = f.decode_hub_batch(await connection.recv())
            assert isinstance(refused, f.Refused)
            assert refused.code is Code.INVALID_REQUEST
            with pytest.raises(websockets.ConnectionClosed):
                await connection.recv()
    assert len(await alice.members()) == 2


async def test_a_message_that_is_too_large_ends_that_stream_and_no_other(folder: Path) -> None:
    (folder / "tieline.toml").write_text("[limits]\nframe_bytes_max = 10000\n")
    async with running_hub(folder) as there:
        await there.add("alice", "bob")
        alice = await there.join("alice", carrier="websocket")
        async with websocket_connect(stream_address(there), proxy=None) as connection:
            await exchange_frames(connection, f.Hello(token=there.tokens["bob"]))
            await connection.send("x" * 10_001)
            async with asyncio.timeout(10):
                with pytest.raises(websockets.ConnectionClosed) as caught:
                    await connection.recv()
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 1009
        assert len(await alice.members()) == 2


async def test_stopping_tells_every_stream_why(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("alice")
        alice = await there.join("alice", receive=True, carrier="websocket")
        await there.hub.stop()
        with pytest.raises(HubRefused) as caught:
            await take(alice, 1)
        assert caught.value.code is Code.SHUTTING_DOWN


async def test_sessions_end_with_their_streams(there: HubHarness) -> None:
    alice, bob = await there.join("alice", carrier="websocket"), await there.join("bob", carrier="websocket")
    await alice.close()
    async with asyncio.timeout(10):
        while any(member.sessions for member in await bob.members() if member.name == "alice"):
            pass
