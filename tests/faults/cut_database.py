"""Test helper: a way to a database that a test can block, so that nothing passes and nobody is told."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class DatabaseWay:
    """A port of this machine that leads to a database, until it is blocked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._target = urlsplit(url).port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the database by this way."""
        return self._url.replace(f":{self._target}", f":{self._listening.getsockname()[1]}")

    def block(self) -> None:
        """Let nothing pass any more. Connections stay open, and new ones are accepted."""
        self._open.clear()

    def unblock(self) -> None:
        """Let everything pass again, also what waits."""
        self._open.set()

    def close(self) -> None:
        """End all connections."""
        self._open.set()
        self._listening.close()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._sockets.append(client)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            behind = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        self._sockets.append(behind)
        threading.Thread(target=self._pass_on, args=(behind, client), daemon=True).start()
        self._pass_on(client, behind)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
