"""Tests of the acceptor: it accepts connections when a server asks for them, and recovers from a failure to accept."""

import asyncio
import errno
import socket
from pathlib import Path

import pytest

from tests.server.hubs import until
from tieline.wire import acceptor
from tieline.wire.acceptor import Acceptor


class Listener(socket.socket):
    """Test double: a listening socket whose `accept` raises the given errors first."""

    errors: list[OSError]

    def accept(self) -> tuple[socket.socket, object]:
        if self.errors:
            raise self.errors.pop()
        return super().accept()


def listening(path: Path, *errors: OSError) -> Listener:
    made = Listener(socket.AF_UNIX)
    made.errors = [*errors]
    made.setblocking(False)
    made.bind(str(path))
    made.listen()
    return made


class Counted(asyncio.Protocol):
    """Test double: a connection that records its start and its end in lists."""

    def __init__(self, opened: list[asyncio.BaseTransport], lost: list[Exception | None]) -> None:
        self.opened = opened
        self.lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.opened.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Server:
    """Test double: a server that records its accepted, opened and lost connections."""

    def __init__(self, path: Path, *errors: OSError) -> None:
        self.path = path
        self.accepted: list[socket.socket] = []
        self.opened: list[asyncio.BaseTransport] = []
        self.lost: list[Exception | None] = []
        self.acceptor = Acceptor(listening(path, *errors), self._make)

    def _make(self, accepted: socket.socket) -> asyncio.Protocol:
        self.accepted.append(accepted)
        return Counted(self.opened, self.lost)

    def dial(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.path))
        return client


async def test_whoever_waits_is_accepted_at_once_and_gets_a_transport_later(folder: Path) -> None:
    server = Server(folder / "s")
    clients = [server.dial(), server.dial()]
    server.acceptor.accept_all()
    assert (len(server.accepted), len(server.opened)) == (2, 0)
    await server.acceptor.wait_closed()
    assert len(server.opened) == 2
    for client in clients:
        client.close()
    for transport in server.opened:
        transport.close()
    server.acceptor.close()
    assert not server.acceptor.is_serving()
    server.acceptor.accept_all()


async def test_too_many_open_files_are_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "_REST_SECONDS", 0.01)
    server = Server(folder / "s", OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError())
    client = server.dial()
    await until(lambda: bool(server.opened))
    client.close()
    server.opened[0].close()
    server.acceptor.close()


async def test_a_server_that_closes_while_it_waits_stays_closed(folder: Path) -> None:
    server = Server(folder / "s", OSError(errno.EMFILE, "Too many open files"))
    client = server.dial()
    server.acceptor.accept_all()
    server.acceptor.close()
    server.acceptor.accept_all()
    assert server.accepted == []
    client.close()


async def test_a_connection_that_gets_no_transport_is_closed_and_its_server_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(asyncio.get_running_loop(), "connect_accepted_socket", fail)
    server = Server(folder / "s")
    client = server.dial()
    await until(lambda: bool(server.lost))
    assert (server.opened, server.accepted[0].fileno()) == ([], -1)
    client.close()
    server.acceptor.close()
