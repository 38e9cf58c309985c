"""Tests of TLS: which certificate a client trusts, and how long and how many handshakes a port waits for."""

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tieline.server.certificate import own_certificate
from tieline.wire.address import BadPin, split_pin, with_pin
from tieline.wire.tls import TlsListener, client_context, open_http, untrusted

FINGERPRINT = "1f" * 32
WAIT_SECONDS = 10.0


class Echo(asyncio.Protocol):
    """Sends back what it gets, and tells `heard` about it."""

    def __init__(self, heard: list[bytes]) -> None:
        self.heard = heard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport.get_extra_info("sslcontext"), ssl.SSLContext)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)
        self.transport.write(data)  # type: ignore[attr-defined]  # no class that both event loops share has it


class Server:
    """A port that speaks TLS and sends back what it gets."""

    def __init__(self, port: TlsListener, fingerprint: str, heard: list[bytes]) -> None:
        self.port = port
        self.address: tuple[str, int] = port.sockets[0].getsockname()
        self.fingerprint = fingerprint
        self.heard = heard

    def url(self, fingerprint: str | None) -> str:
        """Return the address of the port, with a fingerprint of its certificate."""
        return with_pin(f"https://{self.address[0]}:{self.address[1]}", fingerprint)


@contextlib.asynccontextmanager
async def serving(folder: Path, **limits: float) -> AsyncIterator[Server]:
    certificate = own_certificate(folder, ())
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))
    port = TlsListener(listener, lambda: Echo(heard), certificate.context, **limits)  # type: ignore[arg-type]  # a count
    try:
        yield Server(port, certificate.fingerprint, heard)
    finally:
        port.close()
        await port.wait_closed()


async def say(server: Server, fingerprint: str | None, text: bytes = b"secret") -> bytes:
    """Connect, send `text`, and return the answer."""
    reader, writer = await asyncio.open_connection(*server.address, ssl=client_context(server.url(fingerprint)))
    try:
        writer.write(text)
        return await asyncio.wait_for(reader.readexactly(len(text)), WAIT_SECONDS)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def test_an_address_carries_a_fingerprint_after_a_mark() -> None:
    url = "https://hub:7117"
    assert split_pin(with_pin(url, FINGERPRINT)) == (url, FINGERPRINT)
    assert split_pin(with_pin(url, None)) == (url, None)


def test_a_fingerprint_may_be_spelled_as_other_programs_print_it() -> None:
    spelled = ":".join(["1F"] * 32)
    assert split_pin(f"https://hub#sha256={spelled}") == ("https://hub", FINGERPRINT)


@pytest.mark.parametrize("digits", ["", "1f", "zz" * 32, "1f" * 33])
def test_anything_else_after_the_mark_is_refused(digits: str) -> None:
    with pytest.raises(BadPin, match="fingerprint"):
        client_context(f"https://hub#sha256={digits}")


@pytest.mark.parametrize("address", ["http://hub:7117", "ws://hub:7117", "hub:7117", "hub"])
def test_a_fingerprint_without_tls_is_refused_because_nothing_would_check_it(address: str) -> None:
    for use in (client_context, lambda url: open_http(url, 1)):
        with pytest.raises(BadPin, match="needs https://"):
            use(with_pin(address, FINGERPRINT))


def test_an_address_without_tls_needs_no_settings() -> None:
    assert client_context("http://hub:7117") is None
    assert type(open_http("http://hub:7117", 1)) is http.client.HTTPConnection


async def test_the_expected_certificate_is_trusted(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert await say(server, server.fingerprint) == b"secret"
        connection = open_http(server.url(server.fingerprint), WAIT_SECONDS)
        with contextlib.closing(connection):
            await asyncio.to_thread(connection.connect)


async def test_another_certificate_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        with pytest.raises(ssl.SSLCertVerificationError, match=f"{server.fingerprint}, and {FINGERPRINT} was expected"):
            await say(server, FINGERPRINT)
        connection = open_http(server.url(FINGERPRINT), WAIT_SECONDS)
        with contextlib.closing(connection), pytest.raises(ssl.SSLCertVerificationError, match="was expected"):
            await asyncio.to_thread(connection.request, "GET", "/", None, {"authorization": "Bearer secret"})
        # The port serves on, and got nothing of what the others wanted to send.
        assert await say(server, server.fingerprint, b"last") == b"last"
        assert server.heard == [b"last"]


async def test_without_a_fingerprint_the_authorities_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as server:
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            await say(server, None)
        assert "SSL_CERT_FILE" in untrusted(refused.value)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.crt"))
        assert await say(server, None) == b"secret"


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
    return True


async def test_a_client_that_never_finishes_its_handshake_is_disconnected(tmp_path: Path) -> None:
    async with serving(tmp_path, seconds_max=0.05) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"\x16\x03\x01")
        assert await _is_closed(reader)
        writer.close()


async def test_one_handshake_too_many_ends_the_oldest(tmp_path: Path) -> None:
    async with serving(tmp_path, handshakes_max=2) as server:
        idle = [await asyncio.open_connection(*server.address) for _ in range(2)]
        assert await say(server, server.fingerprint) == b"secret"
        assert await _is_closed(idle[0][0])
        for _, writer in idle:
            writer.close()


async def test_connections_that_come_at_once_each_end_another_handshake(tmp_path: Path) -> None:
    async with serving(tmp_path, handshakes_max=2) as server, contextlib.AsyncExitStack() as stack:
        # All wait in the kernel's queue, so the port accepts them in one turn.
        idle = [stack.enter_context(socket.create_connection(server.address)) for _ in range(20)]
        for each in idle:
            each.setblocking(False)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(idle[0], 1), WAIT_SECONDS)
        assert server.port.handshakes == 2
        assert await say(server, server.fingerprint) == b"secret"


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b""])
async def test_noise_instead_of_a_handshake_only_ends_its_own_connection(tmp_path: Path, noise: bytes) -> None:
    async with serving(tmp_path, handshakes_max=1) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(noise)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), WAIT_SECONDS)
        writer.close()
        assert await say(server, server.fingerprint) == b"secret"


async def test_a_port_that_closes_ends_unfinished_handshakes(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        await _counted(lambda: server.port.handshakes == 1)
        server.port.close()
        assert await _is_closed(reader)
        writer.close()


async def _counted(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - nothing tells when a connection was accepted
            await asyncio.sleep(0.001)


def test_a_request_without_a_secret_may_skip_the_check_of_the_certificate() -> None:
    assert open_http("http://hub.example", 1, verified=False).port == 80
    connection = open_http("https://hub.example", 1, verified=False)
    assert isinstance(connection, http.client.HTTPSConnection)
    context = connection._context  # type: ignore[attr-defined]  # the settings of the connection have no other name
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)
