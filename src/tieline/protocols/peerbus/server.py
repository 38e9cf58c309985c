"""peerbus as a protocol of the hub: its tokens, its secret, its listeners, and all their connections.

Above: the server's assembly. Below: the Hub port, and this folder's carriers.
"""

import asyncio
import contextlib
import hmac
import socket as sockets
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from tieline.contract.hub import Hub
from tieline.contract.member import ByShared, ByToken, Credential
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.peerbus.asgi import PeerbusHttp
from tieline.protocols.peerbus.canonical import SECRET_BYTES_MIN
from tieline.protocols.peerbus.connection import Carrier, PeerConnection
from tieline.protocols.peerbus.lines import LineCarrier
from tieline.protocols.peerbus.websocket import WebSocketCarrier
from tieline.wire.address import CannotListen
from tieline.wire.hosts import Hosts
from tieline.wire.protocol import Server
from tieline.wire.unfinished import Unfinished
from tieline.wire.unix import UnixServer, listen

BACKLOG = 1024

_GOODBYE_SECONDS = 0.5
"""Time that peers have to answer the last close frame."""


class SecretTooShort(ValueError):
    """The shared secret is short enough to guess."""


def check_secret(secret: str | None) -> bytes | None:
    """The shared secret as bytes. Raises `SecretTooShort`."""
    if not secret:
        return None
    encoded = secret.encode()
    if len(encoded) < SECRET_BYTES_MIN:
        raise SecretTooShort(f"the peerbus secret has {len(encoded)} bytes, and needs at least {SECRET_BYTES_MIN}")
    return encoded


class PeerbusServer(Server):
    """All peers of a hub."""

    def __init__(
        self,
        hub: Hub,
        *,
        tokens: Iterable[str] = (),
        secret: str | None = None,
        unfinished: Unfinished | None = None,
        socket: Path | None = None,
        port: tuple[str, int] | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        self.hub = hub
        # Addresses for `start`: a socket for lines, and a separate port with its host names.
        self._socket = socket
        self._port = port
        self._names = hosts
        # Limit on the bytes of incomplete frames, over all carriers.
        self.unfinished = unfinished or Unfinished(hub.limits)
        # The secret with which the hub checks signatures, and signs messages from other protocols.
        self.secret = check_secret(secret)
        self.connections: set[PeerConnection] = set()
        self.http = PeerbusHttp(self)
        self._tokens = [sha256(token.encode()).digest() for token in tokens if token]
        self._listeners: list[asyncio.Server | UnixServer] = []
        # Carriers of the separate port; `stop` waits for them.
        self._carriers: set[WebSocketCarrier] = set()
        self._alone = asyncio.Event()
        self.address: str | None = None
        # The host names that the separate port answers to.
        self.hosts = Hosts((), "127.0.0.1")

    def credential(self, token: str) -> Credential:
        """The credential of a token: a token that several names share, or else a member's own token."""
        digest = sha256(token.encode()).digest()
        known = [hmac.compare_digest(digest, other) for other in self._tokens]
        return ByShared(token) if any(known) else ByToken(token)

    def connect(self, carrier: Carrier) -> PeerConnection:
        """A new connection over a carrier."""
        return PeerConnection(self, carrier)

    async def start(self) -> None:
        """Open the listeners."""
        if self._socket is not None:
            await self.listen_unix(self._socket)
        if self._port is not None:
            try:
                await self.listen(*self._port, names=self._names)
            except OSError as error:
                raise CannotListen(self._port, "peerbus", error) from error

    def places(self) -> Mapping[str, str]:
        """The separate port and the socket for lines, if they exist."""
        found = {"peerbus": f"ws://{self.address}"} if self.address is not None else {}
        return found if self._socket is None else {**found, "peerbus_socket": str(self._socket)}

    async def listen(self, host: str, port: int, *, names: Sequence[str] = ()) -> None:
        """Open the port for peerbus alone; `names` are its host names beside `localhost` and IP addresses."""
        loop = asyncio.get_running_loop()
        family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
        server = await loop.create_server(lambda: WebSocketCarrier(self), host, port, family=family, backlog=BACKLOG)
        self._listeners.append(server)
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        self.hosts = Hosts(names, bound_host)
        self.address = f"[{bound_host}]:{bound_port}" if family == sockets.AF_INET6 else f"{bound_host}:{bound_port}"

    async def listen_unix(self, path: Path) -> None:
        """Open the socket for lines, which only the hub's own user can open."""
        self._listeners.append(await listen(path, lambda: LineCarrier(self), mode=0o600))

    async def stop(self) -> None:
        """Say goodbye to all peers and stop listening."""
        for listener in self._listeners:
            listener.close()
        self.say_goodbye()
        if self._carriers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._alone.wait(), _GOODBYE_SECONDS)
        for carrier in list(self._carriers):
            carrier.abort()

    def say_goodbye(self) -> None:
        """Tell every peer that the hub stops."""
        for connection in list(self.connections):
            connection.end(Refusal(Code.SHUTTING_DOWN, "the hub is stopping; connect again later"))

    def enter(self, carrier: WebSocketCarrier) -> None:
        """Add a carrier of the separate port."""
        self._carriers.add(carrier)
        self._alone.clear()

    def leave(self, carrier: WebSocketCarrier) -> None:
        """Remove a carrier of the separate port."""
        self._carriers.discard(carrier)
        if not self._carriers:
            self._alone.set()
