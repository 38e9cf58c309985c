"""Parses addresses of listeners, as people write them."""

from ipaddress import ip_address

_PORT_MAX = 65535  # ports have sixteen bits


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


class CannotListen(OSError):
    """Raised if the hub cannot listen on an address of a protocol. The text names the address and the protocol."""

    def __init__(self, address: tuple[str, int], protocol: str, error: OSError) -> None:
        host, port = address
        super().__init__(f"cannot listen on {host}:{port} for {protocol}: {error.strerror or error}")
