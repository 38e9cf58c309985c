"""The hub's certificate for TLS: in files that the hub's owner provides, or made and signed by the hub itself.

Used by: the code that assembles the hub. Uses: files, and `x509` to make a certificate or to read the names in one.
The hub's own certificate is made once for each home and kept there, because clients that joined know its fingerprint.
"""

import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

import structlog

from tieline.server.config import ConfigError, Http
from tieline.wire.home import CERTIFICATE_FILE, write_private
from tieline.wire.tls import fingerprint_of

PRIVATE_KEY_FILE = "tls.key"

log = structlog.get_logger(__name__)


class Certificate:
    """A certificate and its private key, in two files. They are read again when one of the files changes."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        # The files that could not be used and the reason, as last logged; `None` if the current files are in use.
        self._logged: tuple[tuple[int, ...], str] | None = None
        try:
            self._state = self._read_state()
            self._context = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError(f"the certificate {certificate} with the key {key} cannot be used: {error}") from error

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings with the current certificate.

        If a file has changed, read both again. If they cannot be used, for example because only one of them is new yet,
        return the settings with the old certificate. Try again at each connection, because the reason may be outside
        the files, such as permissions.
        """
        state: tuple[int, ...] = ()
        try:
            state = self._read_state()
            if state != self._state:
                self._context = self._load()
                self._state = state
                log.info("a new certificate is in use", certificate=str(self._certificate))
            self._logged = None
        except (OSError, ValueError) as error:
            failed = (state, str(error))
            if failed != self._logged:
                self._logged = failed
                log.warning(
                    "a changed certificate cannot be used", certificate=str(self._certificate), reason=failed[1]
                )
        return self._context

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, in hexadecimal digits."""
        return fingerprint_of(ssl.PEM_cert_to_DER_cert(_first(self._certificate.read_text(encoding="ascii"))))

    @property
    def host(self) -> str:
        """The first host name in the certificate that is no pattern such as `*.example.org`; empty if there is none."""
        from tieline.server.x509 import host_names  # noqa: PLC0415 - slow, and only for a certificate of the owner

        return next((name for name in host_names(self._certificate.read_bytes()) if not name.startswith("*")), "")

    def _read_state(self) -> tuple[int, ...]:
        states = [path.stat() for path in (self._certificate, self._key)]
        return tuple(number for state in states for number in (state.st_ino, state.st_size, state.st_mtime_ns))

    def _load(self) -> ssl.SSLContext:
        # A new context each time: if the files do not fit each other, the context in use stays as it was.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        # An encrypted key would otherwise be asked for on the terminal.
        context.load_cert_chain(self._certificate, self._key, password=lambda: b"")
        return context


def own_certificate(home: Path, hosts: Iterable[str]) -> Certificate:
    """Return the certificate that the hub in the folder `home` has signed itself. Make it if there is none.

    `hosts` are the names and IP addresses of the hub, for clients that compare the name. They matter only when the
    certificate is made. Raise `ConfigError` if one of them is no name.
    """
    certificate, key = home / CERTIFICATE_FILE, home / PRIVATE_KEY_FILE
    if not (certificate.exists() and key.exists()):
        from tieline.server.x509 import make_certificate  # noqa: PLC0415 - slow, and needed once for each home

        names = {"localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts}
        try:
            certificate_bytes, key_bytes = make_certificate(names)
        except ValueError as error:
            raise ConfigError(f"no certificate can be made: {error}") from error
        write_private(key, key_bytes)
        write_private(certificate, certificate_bytes)
    return Certificate(certificate, key)


def _first(text: str) -> str:
    """Return the first certificate in a PEM file. A chain has the hub's own certificate first."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return begin + text.partition(begin)[2].partition(end)[0] + end


def certificate_of(home: Path, http: Http, host: str) -> Certificate | None:
    """Return the certificate of the hub's ports; `None` if they do not speak TLS.

    `host` is the name or IP address at which the hub listens. It becomes a name in a certificate that the hub makes.
    """
    if http.tls:
        return own_certificate(home, (host, *http.all_names))
    if http.tls_cert:
        return Certificate(Path(http.tls_cert).expanduser(), Path(http.tls_key).expanduser())
    return None
