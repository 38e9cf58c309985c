"""Tests of the relay's client with servers that are missing or misbehave. tests/cli has the tests with a real relay."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tieline.protocols.backchannel.client import RelayClient, RelayRefused, RelayUnreachable

MESSAGE = '{"id":"i","from":"a","to":"b","body":"x","priority":"normal","ts":"t"}'


@contextlib.contextmanager
def answering(status: int, body: str) -> "Iterator[str]":
    """Start an HTTP server that gives the same answer to all requests. Yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing, because the test needs no access log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body"), [(200, "<html>"), (200, "5"), (200, ""), (500, '{"error":"oh"}'), (404, "Not Found")]
)
def test_what_is_no_relay_is_told_as_such(status: int, body: str) -> None:
    with answering(status, body) as url:
        client = RelayClient(url, "t")
        for ask in (lambda: client.register("a"), client.agents, lambda: client.inbox("a"), lambda: client.send({})):
            with pytest.raises(RelayUnreachable):
                ask()


def test_a_fingerprint_without_tls_is_refused_before_the_token_is_sent() -> None:
    with answering(200, "{}") as url, pytest.raises(RelayUnreachable, match="needs https://"):
        RelayClient(f"{url}#sha256={'1f' * 32}", "t")


def test_a_refusal_is_told_in_the_relays_own_words() -> None:
    with answering(403, '{"error":"token is for \\"a\\", not \\"b\\""}') as url:
        client = RelayClient(url, "t")
        with pytest.raises(RelayRefused, match='token is for "a", not "b"'):
            client.inbox("b")
        with pytest.raises(RelayRefused, match='token is for "a", not "b"'):
            list(client.events("b"))


def test_a_stream_is_read_event_by_event_and_garbage_in_it_is_passed_over() -> None:
    stream = f": keepalive\n\ndata: {MESSAGE}\n\nevent: x\ndata:{MESSAGE}\n\ndata: garbage\n\ndata: {MESSAGE}\r\n\r\n"
    with answering(200, stream) as url:
        assert [message.body for message in RelayClient(url).events("b")] == ["x", "x"]


@pytest.mark.parametrize("url", ["", "relay:7117", "ftp://x", "http://"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(RelayUnreachable):
        RelayClient(url)


def test_a_token_that_no_header_can_carry_is_refused() -> None:
    with answering(200, "[]") as url, pytest.raises(RelayRefused):
        RelayClient(url, "a\nb").agents()
