"""Tests of a hub that other machines can reach: TLS, the refusal without it, and proxies that are trusted."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.agents.mcp_agent import MODERN, http_agent
from tests.server.hubs import ALONE, HubHarness, bodies, running_hub, take
from tieline.client import HubUnreachable, connect
from tieline.protocols.peerbus.client import Adapter
from tieline.protocols.peerbus.settings import PeerbusSettings
from tieline.server.certificate import own_certificate
from tieline.server.config import ConfigError, load_config
from tieline.server.x509 import host_names
from tieline.wire.address import with_pin
from tieline.wire.tls import open_http

ELSEWHERE = "0.0.0.0:0"
WRONG = "00" * 32


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, http=ELSEWHERE, peerbus_listen="0.0.0.0:0", flags={"http": {"tls": True}}) as built:
        await built.add("alice", "bob")
        yield built


async def test_messages_go_both_ways_over_a_pinned_certificate(there: HubHarness) -> None:
    url = there.running.pinned
    assert url.startswith("https://")
    assert "0.0.0.0" not in url
    async with await connect(url=url, token=there.tokens["bob"], receive=True) as bob:
        alice = await there.join("alice", receive=True)
        await alice.send("@bob", "hello")
        assert bodies(await take(bob, 1)) == ["hello"]
        await bob.send("@alice", "hello yourself")
        assert bodies(await take(alice, 1)) == ["hello yourself"]


@pytest.mark.parametrize(("fingerprint", "reason"), [(WRONG, "was expected"), (None, "SSL_CERT_FILE"), ("x", "digits")])
async def test_any_other_certificate_is_not_trusted(there: HubHarness, fingerprint: str | None, reason: str) -> None:
    with pytest.raises(HubUnreachable, match=reason):
        await connect(url=with_pin(there.running.http, fingerprint), token=there.tokens["bob"])


async def test_the_extra_port_of_peerbus_speaks_tls_too(there: HubHarness) -> None:
    secret = load_config(there.home).of(PeerbusSettings).hmac_secret
    url = there.running.places["peerbus"]
    assert url is not None
    assert url.startswith("wss://")
    url = with_pin(url, there.running.fingerprint)
    alice = await there.join("alice", receive=True)
    async with Adapter(url, name="bob", token=there.tokens["bob"], secret=secret) as bob:
        await bob.send("alice", {"text": "signed"})
        assert len(await take(alice, 1)) == 1


@pytest.mark.parametrize("given", [{"http": ELSEWHERE}, {"peerbus_listen": "0.0.0.0:0"}])
async def test_a_port_that_others_reach_is_refused_without_tls(folder: Path, given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="--insecure-http"):
        async with running_hub(folder, **given):
            pass


async def test_a_port_that_others_reach_serves_plain_http_if_its_owner_says_so(folder: Path) -> None:
    insecure = {"http": {"insecure": True}}
    async with running_hub(folder, http=ELSEWHERE, peerbus_listen="0.0.0.0:0", flags=insecure) as there:
        assert there.running.http.startswith("http://")
        assert "0.0.0.0" not in there.running.http
        await there.add("alice")
        async with await connect(url=there.running.http, token=there.tokens["alice"]) as alice:
            assert len(await alice.members()) == 1


async def test_the_owners_certificate_is_not_pinned_and_its_name_is_the_address(folder: Path, tmp_path: Path) -> None:
    own_certificate(tmp_path, ())
    files = {"tls_cert": str(tmp_path / "tls.crt"), "tls_key": str(tmp_path / "tls.key")}
    async with running_hub(folder, flags={"http": files}) as there:
        assert there.running.fingerprint == ""
        assert there.running.url.startswith(("https://localhost:", f"https://{socket.gethostname()}:"))
        assert not (folder / "tls.crt").exists()


async def test_names_with_other_letters_are_in_the_certificate_as_clients_send_them(folder: Path) -> None:
    settings = {"tls": True, "names": ("hüb.example",), "base_url": "https://bäse.example"}
    async with running_hub(folder, **ALONE, flags={"http": settings}) as there:
        assert {"xn--hb-xka.example", "xn--bse-qla.example"} <= set(host_names((folder / "tls.crt").read_bytes()))
        with contextlib.closing(open_http(there.running.pinned, 10)) as connection:
            await asyncio.to_thread(connection.request, "GET", "/healthz", None, {"host": "xn--hb-xka.example"})
            assert (await asyncio.to_thread(connection.getresponse)).status == 200


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tls_cert": "x"}, "needs its key"),
        ({"tls": True, "tls_cert": "x", "tls_key": "y"}, "give one of them"),
        ({"tls_cert": "/missing", "tls_key": "/missing"}, "/missing"),
        ({"trusted_proxies": ("10.0.0.1/8",)}, "10.0.0.1/8"),
        ({"base_url": "hub.example.org"}, "https://HOST"),
        ({"base_url": "http://hub.example.org", "tls": True}, "write https:// there"),
        ({"names": ("straße.example",), "tls": True}, "write it in ASCII"),
    ],
)
async def test_settings_that_cannot_be_used_are_named(folder: Path, settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        async with running_hub(folder, flags={"http": settings}):
            pass


async def test_only_a_trusted_proxy_may_say_who_its_client_is(folder: Path) -> None:
    """The limit for new rooms is one for each address, so it shows which address the hub sees."""
    base = "https://hub.example.org"
    for proxy, fate in (("127.0.0.0/8", {401}), ("192.0.2.0/24", {401, 429})):
        home = folder / proxy.partition(".")[0]
        home.mkdir(mode=0o700)
        flags = {"http": {"trusted_proxies": (proxy,), "base_url": base}}
        async with running_hub(home, flags=flags) as there:
            assert there.running.public == base
            assert await asyncio.to_thread(_make_rooms, there.running.http) == fate


def _make_rooms(url: str) -> set[int]:
    """Ask for a few more rooms than one address may have, for as many addresses. Return the answers' statuses."""
    statuses = set()
    with contextlib.closing(open_http(url, 10)) as connection:
        for number in range(1, 103):
            headers = {"host": "hub.example.org", "x-forwarded-for": f"203.0.113.{number}"}
            connection.request("POST", "/v1/rooms", b"", headers)
            answer = connection.getresponse()
            answer.read()
            statuses.add(answer.status)
    return statuses


async def test_a_trusted_proxy_says_that_its_client_used_tls(folder: Path) -> None:
    for proxies, is_secure in ((("127.0.0.1",), True), ((), False)):
        async with running_hub(folder, flags={"http": {"trusted_proxies": proxies}}) as there:
            await there.add(name := f"m{len(proxies)}")
            cookie = await asyncio.to_thread(_log_in, there.running.http, there.tokens[name])
            assert ("Secure" in cookie) is is_secure


def _log_in(url: str, token: str) -> str:
    """Log in to the console as a proxy does for a client with TLS. Return the cookie."""
    with contextlib.closing(open_http(url, 10)) as connection:
        headers = {"x-forwarded-proto": "https", "content-type": "application/json"}
        connection.request("POST", "/api/session", msgspec.json.encode({"token": token}), headers)
        answer = connection.getresponse()
        return answer.headers["set-cookie"] or answer.read().decode()


async def test_the_official_python_client_of_mcp_trusts_what_it_is_told_to_trust(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(there.home / "tls.crt"))
    async with http_agent(there.running.http, there.tokens["bob"], MODERN) as agent:
        assert await agent.description("send")
