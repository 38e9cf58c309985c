"""Tests that strangers who begin TLS handshakes and never finish them cost the hub little, and keep nobody out."""

import asyncio
import contextlib
import re
import socket
import ssl
import sys
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.faults.processes import SOAK
from tieline.client import connect
from tieline.wire.tls import HANDSHAKES_MAX

pytestmark = pytest.mark.slow

STRANGERS = 2 * HANDSHAKES_MAX if SOAK else 200
"""Number of connections with an unfinished handshake. In a soak, more than the hub waits for."""
PEAK_BYTES_MAX = 150 * 1024 * 1024
"""Limit of the memory that the strangers may cost, as for the other attacks."""
_HELLO_BYTES = 100


def _peak_bytes(pid: int) -> int:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 1024 * int(kilobytes)


def _half_hello() -> bytes:
    """Return the beginning of a client's first message in a handshake."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="hub").do_handshake()
    return outgoing.read()[:_HELLO_BYTES]


def test_unfinished_handshakes_cost_little_and_keep_nobody_out() -> None:
    with HubProcess("--tls") as hub:
        before = _peak_bytes(hub.running.pid)
        asyncio.run(_attack(hub))
        cost = _peak_bytes(hub.running.pid) - before
        sys.stdout.write(f"{STRANGERS} unfinished handshakes cost {cost / 2**20:.0f} MiB\n")
        assert cost < PEAK_BYTES_MAX
        assert "Traceback" not in hub.stderr
        assert hub.stop() == 0


async def _attack(hub: HubProcess) -> None:
    async with await connect(home=hub.home) as operator:
        token = (await operator.add_member("alice")).token
    host, port = hub.running.http.partition("://")[2].split(":")
    hello = _half_hello()
    with contextlib.ExitStack() as strangers:
        for number in range(STRANGERS):
            stranger = strangers.enter_context(socket.create_connection((host, int(port))))
            stranger.sendall(hello if number % 2 else b"")
        async with asyncio.timeout(30), await connect(url=hub.running.pinned, token=token) as alice:
            assert [member.name for member in await alice.members()] == ["alice"]
        # The connection of the client ends in the background.
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=30)
