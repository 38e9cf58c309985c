"""Parses addresses of listeners and of hubs, as people write them."""

import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

_PORT_MAX = 65535  # ports have sixteen bits

PIN = "#sha256="
"""Text between the address of a hub and the fingerprint of its certificate."""

TLS_SCHEMES = ("https", "wss")
"""Beginnings of addresses whose connections have TLS."""

_FINGERPRINT_CHARS = 64  # SHA-256 in hexadecimal digits


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Return the host and the port of `HOST:PORT`, or of `HOST` if there is a default port.

    IPv6 hosts are in brackets. Raises `ValueError` if the text is no address.
    """
    if default_port is not None and ":" not in text:
        return text or "127.0.0.1", default_port
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ValueError(f"{text!r} is not an address: write HOST:PORT, for example 127.0.0.1:7117")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Return true if `host` is a loopback address.

    Only programs on this machine can reach a listener on such an address.
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_ELSEWHERE = ("192.0.2.1", 9)
"""An address of another network, reserved for examples. Nothing is ever sent there."""


def reachable(host: str) -> str:
    """Return `host`, or this machine's own address if `host` means all addresses, such as `0.0.0.0`.

    Other machines can use this address. Return the name of the machine if it has no way to other networks.
    """
    try:
        if not ip_address(host).is_unspecified:
            return host
    except ValueError:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A datagram socket sends nothing here; the system only chooses the address to send from.
            probe.connect(_ELSEWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])


def ascii_name(name: str) -> str:
    """Return a host name as clients send it: other letters than ASCII are encoded (IDNA), as in `xn--hb-xka.example`.

    Raise `ValueError` if this form is not certain. The rules have changed for some letters, such as `ß`.
    """
    if name.isascii():
        return name
    try:
        encoded = name.lower().encode("idna")
        if encoded.decode("idna") == name.lower():
            return encoded.decode()
    except UnicodeError:
        pass
    raise ValueError(f"{name!r} is no host name that the hub can encode: write it in ASCII, as xn--…")


def check_url(text: str) -> str:
    """Return the address of a web site in ASCII, without a slash at its end. Raise `ValueError` for other text."""
    parts = urlsplit(text)
    try:
        host = parts.hostname if parts.port != 0 and "@" not in parts.netloc else None
    except ValueError:
        # The port is no number.
        host = None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is no address of a hub: write https://HOST, or https://HOST:PORT")
    if not parts.netloc.isascii():
        netloc = parts.netloc.lower().replace(host, ascii_name(host))
        return parts._replace(netloc=netloc).geturl().rstrip("/")
    return text.rstrip("/")


def refuse_plain(host: str, what: str) -> str:
    """Return the reason why `what` must not listen on `host` without TLS; empty if only this machine can reach it."""
    if is_loopback(host):
        return ""
    return (
        f"{what} would listen on {host}, where others can read tokens and messages on their way: add --tls (the hub "
        "makes a certificate), or --tls-cert FILE and --tls-key FILE (you have one), or --insecure-http (the network "
        "is safe, for example a tunnel, or behind a proxy with TLS)"
    )


class CannotListen(OSError):
    """Raised if the hub cannot listen on an address of a protocol. The text names the address and the protocol."""

    def __init__(self, address: tuple[str, int], protocol: str, error: OSError) -> None:
        host, port = address
        super().__init__(f"cannot listen on {host}:{port} for {protocol}: {error.strerror or error}")


class BadPin(ValueError):
    """Exception: the fingerprint in an address is invalid, or cannot be checked. The message has the address."""


def with_pin(url: str, fingerprint: str | None) -> str:
    """Return the address of a hub with the fingerprint of its certificate. Without one, return the address itself."""
    return f"{url}{PIN}{fingerprint}" if fingerprint else url


def split_pin(url: str) -> tuple[str, str | None]:
    """Return the address of a hub without the fingerprint at its end, and the fingerprint, or `None`.

    Raise `BadPin` if the text there is no fingerprint, or if the address does not use TLS: without TLS there is no
    certificate to check, and a client would send its token in clear text. Colons and upper case letters, as other
    programs print them, are accepted.
    """
    address, pin, digits = url.partition(PIN)
    if not pin:
        return url, None
    fingerprint = digits.replace(":", "").lower()
    if len(fingerprint) != _FINGERPRINT_CHARS or not set(fingerprint) <= set("0123456789abcdef"):
        raise BadPin(f"{url!r} does not end with a fingerprint: after {PIN} come {_FINGERPRINT_CHARS} digits")
    if urlsplit(address).scheme not in TLS_SCHEMES:
        raise BadPin(f"{url!r} has a fingerprint, so it needs https:// at its beginning: only TLS has a certificate")
    return address, fingerprint
