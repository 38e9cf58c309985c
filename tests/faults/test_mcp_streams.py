"""Tests of a thousand idle streams of `/mcp`: the hub's memory for each stream and its session.

The streams are tested with both versions of MCP: with a handshake, and stateless.
"""

import json
import resource
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from tests.cli.hub_process import HubProcess, wait_until
from tests.protocols.mcp.web import ABOUT, META, STATELESS, VERSION, request

STREAMS = 1000
MEMBERS = 20
WARM_UP = 200
"""Number of streams that are opened before the measurement, and stay open. The first streams load code and fill memory
that all later ones share. If they were closed, the later ones would use their memory."""
STREAM_BYTES_MAX = 20 * 1024

pytestmark = pytest.mark.slow


class Opener:
    """Test client that opens many streams at one hub.

    It uses plain sockets, so that each stream needs little memory here.
    """

    def __init__(self, hub: HubProcess) -> None:
        self._address = urlsplit(hub.running.http)
        self.tokens = hub.add_members(*(f"m{number}" for number in range(MEMBERS)))

    def dial(self) -> socket.socket:
        """Return a new connection to the hub."""
        return socket.create_connection((self._address.hostname, self._address.port), timeout=60)

    def ask(self, sock: socket.socket, head: str, token: str, body: object = None, **headers: str) -> bytes:
        """Send a request, and return the head of its answer. If the answer has a length, read its body too."""
        payload = b"" if body is None else json.dumps(body).encode()
        said = {
            "host": self._address.netloc,
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(payload)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [f"{name}: {value}" for name, value in said.items()]
        sock.sendall("\r\n".join([head, *lines, "", ""]).encode() + payload)
        came = b""
        while b"\r\n\r\n" not in came:
            more = sock.recv(65536)
            assert more, came
            came += more
        assert came.startswith(b"HTTP/1.1 200"), came
        answer, _, content = came.partition(b"\r\n\r\n")
        if b"content-length: " in answer:
            left = int(answer.split(b"content-length: ")[1].split(b"\r\n")[0]) - len(content)
            while left > 0:
                left -= len(sock.recv(left))
        return answer

    def handshake(self, number: int) -> socket.socket:
        """Open a session with `initialize`, and its stream, as the member with this number. Return the connection."""
        token = self.tokens[number % MEMBERS]
        sock = self.dial()
        answer = self.ask(sock, "POST /mcp HTTP/1.1", token, request("initialize", ABOUT))
        session = answer.split(b"mcp-session-id: ")[1].split(b"\r\n")[0].decode()
        self.ask(sock, "GET /mcp HTTP/1.1", token, mcp_session_id=session, mcp_protocol_version=VERSION)
        return sock

    def stateless(self, number: int) -> socket.socket:
        """Open the stream of a stateless client, as the member with this number. Return the connection."""
        body = request("subscriptions/listen", {"_meta": META, "notifications": {"toolsListChanged": True}})
        token, method = self.tokens[number % MEMBERS], "subscriptions/listen"
        sock = self.dial()
        self.ask(sock, "POST /mcp HTTP/1.1", token, body, mcp_protocol_version=STATELESS, mcp_method=method)
        return sock


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_a_thousand_idle_streams_cost_little(era: str, figure: Callable[[str], None]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with HubProcess("--store", "memory", "--no-agent-channels", "--no-spool") as hub:
        opener = Opener(hub)
        dial: Callable[[int], socket.socket] = opener.handshake if era == "handshake" else opener.stateless
        process = psutil.Process(hub.running.pid)
        opened = [dial(number) for number in range(WARM_UP)]
        wait_until(lambda: sessions(hub) >= WARM_UP + MEMBERS, "the first streams have their session with the hub")
        before = process.memory_info().rss
        opened += [dial(WARM_UP + number) for number in range(STREAMS)]
        wait_until(lambda: sessions(hub) >= WARM_UP + STREAMS + MEMBERS, "all streams have their session with the hub")
        each = (process.memory_info().rss - before) / STREAMS
        for sock in opened:
            sock.close()
        figure(f"{STREAMS} idle streams of /mcp, {era}: {each / 1024:.1f} KiB each")
        assert each <= STREAM_BYTES_MAX


def sessions(hub: HubProcess) -> float:
    """Return the number of the hub's current MCP sessions, from its metrics."""
    address = urlsplit(hub.running.http)
    with socket.create_connection((address.hostname, address.port), timeout=60) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        text = b"".join(iter(lambda: sock.recv(65536), b"")).decode()
    found = [line for line in text.splitlines() if line.startswith('tieline_sessions{protocol="mcp"}')]
    return float(found[0].split()[1]) if found else 0.0
