"""The hub's server for peerbus: it has the tokens, the secret, the listeners, and the connections of all peers.

Used by: the package `server`, which starts it. Uses: the interface `contract.hub`, and the carriers of this folder. A
carrier is a socket that sends and receives frames: a WebSocket, or a stream of lines.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from ssl import SSLContext

import structlog

from tieline.contract.hub import Hub
from tieline.contract.member import ByShared, ByToken, Credential
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.peerbus.asgi import PeerbusHttp
from tieline.protocols.peerbus.canonical import SECRET_BYTES_MIN
from tieline.protocols.peerbus.connection import Carrier, PeerConnection
from tieline.protocols.peerbus.lines import LineCarrier
from tieline.protocols.peerbus.websocket import WebSocketCarrier
from tieline.wire.address import CannotListen, refuse_plain
from tieline.wire.doors import Closable, Doors, OwnDoors
from tieline.wire.hosts import Hosts
from tieline.wire.protocol import Server
from tieline.wire.unfinished import Unfinished

_NAME_CODES = frozenset({Code.INVALID_NAME, Code.RESERVED_NAME, Code.NAME_TAKEN})
"""Refusal codes for a peer's name. The hub logs such refusals, because the peer gets only a short close reason."""
_REFUSED_NAMES_MAX = 1000
"""Largest number of refused names that are logged. The limit stops peers from filling the log with invented names."""
_NAME_CHARACTERS_MAX = 140
"""Most characters of a name in the log, because a peer may send any text as its name."""

_GOODBYE_SECONDS = 0.5
"""Seconds that the hub waits at its stop for peers to answer the close frame."""

log = structlog.get_logger(__name__)


class SecretTooShort(ValueError):
    """Exception: the shared secret has too few bytes to be safe."""


def check_secret(secret: str | None) -> bytes | None:
    """Return the shared secret as bytes, or `None` if there is no secret.

    Raise `SecretTooShort` if the secret has too few bytes.
    """
    if not secret:
        return None
    encoded = secret.encode()
    if len(encoded) < SECRET_BYTES_MIN:
        raise SecretTooShort(f"the peerbus secret has {len(encoded)} bytes, and needs at least {SECRET_BYTES_MIN}")
    return encoded


class PeerbusServer(Server):
    """Runs peerbus in a hub: its listeners, and the connections of all peers."""

    def __init__(  # noqa: PLR0913 - its tokens, its listeners, and what the listeners share
        self,
        hub: Hub,
        *,
        tokens: Iterable[str] = (),
        secret: str | None = None,
        unfinished: Unfinished | None = None,
        socket: Path | None = None,
        port: tuple[str, int] | None = None,
        hosts: Sequence[str] = (),
        certificate: Callable[[], SSLContext] | None = None,
        is_insecure: bool = False,
        doors: Doors | None = None,
    ) -> None:
        refusal = refuse_plain(port[0], "peerbus") if port and certificate is None and not is_insecure else ""
        if refusal:
            raise ValueError(refusal)
        self.hub = hub
        # Addresses for `start`: a socket for lines, and a separate port with its host names.
        self._socket = socket
        self._port = port
        self._names = hosts
        self._certificate = certificate
        # Limit on the bytes of incomplete frames, over all carriers.
        self.unfinished = unfinished or Unfinished(hub.limits)
        # The secret with which the hub checks signatures, and signs messages from other protocols.
        self.secret = check_secret(secret)
        self.connections: set[PeerConnection] = set()
        self.http = PeerbusHttp(self)
        self._tokens = [sha256(token.encode()).digest() for token in tokens if token]
        # Refused names that are in the log already, with the code of the refusal.
        self._refused_names: set[tuple[str, Code]] = set()
        self._doors = doors or OwnDoors()
        self._listeners: list[Closable] = []
        # Carriers of the separate port; `stop` waits for them.
        self._carriers: set[WebSocketCarrier] = set()
        self._alone = asyncio.Event()
        self.address: str | None = None
        # The host names that the separate port answers to.
        self.hosts = Hosts((), "127.0.0.1")

    def credential(self, token: str) -> Credential:
        """Return the credential for a peer's token.

        If the token is a configured token, several names share it. Otherwise it is a member's own token.
        """
        # spec 6: the broker accepts a fixed set of tokens.
        digest = sha256(token.encode()).digest()
        known = [hmac.compare_digest(digest, other) for other in self._tokens]
        return ByShared(token) if any(known) else ByToken(token)

    def connect(self, carrier: Carrier) -> PeerConnection:
        """Return a new connection object for a peer.

        `carrier` is the socket that sends and receives the peer's frames (protocol messages).
        """
        return PeerConnection(self, carrier)

    def log_refusal(self, name: str, why: Refusal) -> None:
        """Write into the program's log that the hub refused a peer's name.

        Log each name only once, because a client may repeat its attempt for ever.
        """
        known = (name[:_NAME_CHARACTERS_MAX], why.code)
        if why.code not in _NAME_CODES or known in self._refused_names:
            return
        if len(self._refused_names) < _REFUSED_NAMES_MAX:
            self._refused_names.add(known)
            log.warning("the name of a peer is refused", name=known[0], code=why.code.value, reason=why.message)

    async def start(self) -> None:
        """Open the configured listeners: the Unix socket, and the separate port (a port for peerbus alone)."""
        if self._socket is not None:
            await self.listen_unix(self._socket)
        if self._port is not None:
            try:
                await self.listen(*self._port, names=self._names)
            except OSError as error:
                raise CannotListen(self._port, "peerbus", error) from error

    def places(self) -> Mapping[str, str]:
        """Return the addresses of the separate port (for peerbus alone) and of the Unix socket, if they exist."""
        scheme = "ws" if self._certificate is None else "wss"
        found = {"peerbus": f"{scheme}://{self.address}"} if self.address is not None else {}
        return found if self._socket is None else {**found, "peerbus_socket": str(self._socket)}

    async def listen(self, host: str, port: int, *, names: Sequence[str] = ()) -> None:
        """Open a port that serves only peerbus.

        Requests may use `localhost`, IP addresses and the host names in `names` as their host.
        """
        opened = await self._doors.open_port(host, port, partial(WebSocketCarrier, self), self._certificate)
        self._listeners.append(opened)
        self.hosts = Hosts(names, opened.host)
        self.address = opened.address

    async def listen_unix(self, path: Path) -> None:
        """Open a Unix socket on which each line is a frame (protocol message). Only the hub's own user can connect."""
        self._listeners.append(await self._doors.open_socket(path, lambda: LineCarrier(self)))

    async def stop(self) -> None:
        """Stop listening, and close the connections of all peers. Each peer gets the reason that the hub stops."""
        for listener in self._listeners:
            listener.close()
        self.say_goodbye()
        if self._carriers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._alone.wait(), _GOODBYE_SECONDS)
        for carrier in list(self._carriers):
            carrier.abort()

    def say_goodbye(self) -> None:
        """Close the connections of all peers. Each peer gets the reason that the hub stops."""
        for connection in list(self.connections):
            connection.end(Refusal(Code.SHUTTING_DOWN, "the hub is stopping; connect again later"))

    def enter(self, carrier: WebSocketCarrier) -> None:
        """Register a connection of the separate port (the port for peerbus alone), so that `stop` waits for its end."""
        self._carriers.add(carrier)
        self._alone.clear()

    def leave(self, carrier: WebSocketCarrier) -> None:
        """Remove a connection of the separate port (the port for peerbus alone), because the connection has ended."""
        self._carriers.discard(carrier)
        if not self._carriers:
            self._alone.set()
