"""TLS: the certificate that a client trusts, and the handshakes of the hub's ports.

Used by: everything that connects to a hub by its URL, and every port of a hub. Uses: the standard library's `ssl`. The
address of a hub may end with the fingerprint of the hub's certificate, as in `https://10.0.0.5:7117#sha256=1f8a…`. A
client then accepts this certificate and no other (it *pins* the certificate), and asks no certificate authority. The
part after `#` is never sent.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable
from hashlib import sha256
from typing import cast
from urllib.parse import urlsplit

from tieline.wire.acceptor import Acceptor
from tieline.wire.address import PIN, TLS_SCHEMES, split_pin

HANDSHAKE_SECONDS_MAX = 10.0
"""Longest time of a TLS handshake in seconds. It needs two journeys over the network; other greetings have as long."""
HANDSHAKES_MAX = 1024
"""Largest number of unfinished handshakes of one port. One more ends the oldest: a client that means it is faster, and
one that only waits cannot keep others out."""
BACKLOG = 1024
"""Number of connections that the kernel queues for a port: many clients may return at once after a restart."""
_GOODBYE_SECONDS_MAX = 5.0
"""Longest wait in seconds for the other side's part of the end of a TLS connection."""


class WrongCertificate(ssl.SSLCertVerificationError):
    """Exception: the hub's certificate has another fingerprint than the client expects. The message has both."""

    def __str__(self) -> str:
        return str(self.args[0])


def fingerprint_of(certificate: bytes) -> str:
    """Return the fingerprint of a certificate in binary form (DER): its SHA-256, in hexadecimal digits."""
    return sha256(certificate).hexdigest()


def untrusted(error: ssl.SSLCertVerificationError) -> str:
    """Return the reason why a client does not trust a certificate, with advice."""
    if isinstance(error, WrongCertificate):
        return str(error)
    advice = f"use the address with the hub's fingerprint ({PIN}…), which 'tieline join' stores, or set SSL_CERT_FILE"
    return f"{error.verify_message}; {advice}"


class _PinnedContext(ssl.SSLContext):
    """Settings of a TLS client that accepts the one certificate with the fingerprint `expected`."""

    expected: str

    def check(self, shown: bytes | None) -> None:
        """Raise `WrongCertificate` if the certificate `shown` has another fingerprint."""
        found = fingerprint_of(shown or b"")
        if found != self.expected:
            raise WrongCertificate(
                f"its certificate has the fingerprint {found}, and {self.expected} was expected: another program "
                "answers there, or the hub has a new certificate; ask its owner for a new invitation"
            )


class _PinnedObject(ssl.SSLObject):
    """One TLS connection of asyncio. The handshake fails if the certificate is not the expected one."""

    def do_handshake(self) -> None:
        super().do_handshake()
        cast("_PinnedContext", self.context).check(self.getpeercert(binary_form=True))


class _PinnedSocket(ssl.SSLSocket):
    """One TLS connection of `http.client`. The handshake fails if the certificate is not the expected one."""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        cast("_PinnedContext", self.context).check(self.getpeercert(binary_form=True))


def client_context(url: str) -> ssl.SSLContext | None:
    """Return the TLS settings for a connection to the hub at `url`. Return `None` for an address without TLS.

    With a fingerprint in the address, the handshake fails for any other certificate, before the client sends anything.
    Without a fingerprint, an authority that this machine (or `SSL_CERT_FILE`) trusts must have signed the certificate.
    Raise `BadPin` for a wrong fingerprint, or for a fingerprint in an address without TLS.
    """
    _, fingerprint = split_pin(url)
    if urlsplit(url).scheme not in TLS_SCHEMES:
        return None
    if fingerprint is None:
        return ssl.create_default_context()
    context = _PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The fingerprint replaces both: it stands for this certificate, whatever names and dates are in it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.expected = fingerprint
    context.sslobject_class = _PinnedObject
    context.sslsocket_class = _PinnedSocket
    return context


def open_http(url: str, seconds_max: float, *, verified: bool = True) -> http.client.HTTPConnection:
    """Return an HTTP client for the hub at `url`, which connects at the first request.

    `seconds_max` is the longest wait for the hub. Raise `BadPin` for a wrong fingerprint in the address. Without
    `verified`, the authority and the name of a certificate are not checked, but a fingerprint in the address still is.
    Use this only for requests that contain no secret.
    """
    host = urlsplit(url).netloc.rpartition("@")[2]
    context = client_context(url)
    if context is None:
        return http.client.HTTPConnection(host, timeout=seconds_max)
    if not verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, timeout=seconds_max, context=context)


class TlsListener(Acceptor):
    """Accepts connections on a listening socket, with limits on the time and the number of unfinished handshakes.

    When a handshake is done, `make` makes the asyncio protocol of the connection. `context` returns the TLS settings
    with the current certificate. It is called for each connection, so that a new certificate is used at once. Without a
    listening socket, another process accepts the connections, and `take` gets them.
    """

    def __init__(
        self,
        listener: socket.socket | None,
        make: Callable[[], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        *,
        seconds_max: float = HANDSHAKE_SECONDS_MAX,
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        if listener is not None:
            listener.setblocking(False)
        self.sockets: tuple[socket.socket, ...] = () if listener is None else (listener,)
        self._context = context
        self._seconds_max = seconds_max
        self._handshakes_max = handshakes_max
        # Tasks of unfinished handshakes, oldest first.
        self._handshakes: dict[asyncio.Task[None], None] = {}
        super().__init__(listener, lambda _: _Secured(make))

    @property
    def handshakes(self) -> int:
        """Number of unfinished handshakes."""
        return len(self._handshakes)

    async def _open(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        if len(self._handshakes) >= self._handshakes_max:
            # A cancelled task ends in a later turn. Many connections may come in this one, and each must end another.
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
        self._handshakes[task] = None
        try:
            # The client may be gone, too slow, or speak no TLS. Its transport is closed then.
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: protocol,
                    accepted,
                    ssl=self._context(),
                    ssl_handshake_timeout=self._seconds_max,
                    ssl_shutdown_timeout=_GOODBYE_SECONDS_MAX,
                )
        finally:
            self._handshakes.pop(task, None)

    def close(self) -> None:
        """Stop listening, and end unfinished handshakes. Other connections stay open."""
        super().close()
        for task in list(self._handshakes):
            task.cancel()


class _Secured(asyncio.Protocol):
    """Waits for the end of a connection's handshake. Then it makes the connection's protocol and hands over to it."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


def listen_tls(
    address: tuple[str, int],
    make: Callable[[], asyncio.Protocol],
    context: Callable[[], ssl.SSLContext],
    *,
    backlog: int = BACKLOG,
) -> TlsListener:
    """Open a port that speaks TLS, and return it.

    When a handshake is done, `make` makes the asyncio protocol of the connection. `context` returns the current TLS
    settings. `backlog` is the size of the kernel's queue.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return TlsListener(socket.create_server(address, family=family, backlog=backlog), make, context)
