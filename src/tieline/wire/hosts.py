"""Checks the `Host` header: each port of the hub answers only requests for its own host names.

Used by: the HTTP port, and the other ports of protocols. Uses: nothing. This module gets only the `Host` headers of a
request.

Any site can make its own host name resolve to 127.0.0.1 (DNS rebinding). The browser then takes the hub for a part of
that site, so neither the page's `Origin` nor the browser's rules protect the hub. But the browser sends the site's name
as `Host`. So a port on a loopback address accepts only IP addresses, `localhost` and the names of the configuration.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

_LOCALHOST = "localhost"
_EXCERPT = 80
"""Most characters of an unknown host name that the error text repeats."""

_CACHED = 16


class Hosts:
    """The host names that one port of the hub accepts in the `Host` header.

    `names` are the configured names, `address` is the port's IP address.
    """

    __slots__ = ("_accepts", "_all", "_names")

    def __init__(self, names: Iterable[str], address: str) -> None:
        self._names = frozenset(_bare(name) for name in names)
        # Only the owner knows the names of a port that the network can reach: check them only if they are configured.
        self._all = not self._names and not ip_address(address).is_loopback
        # Clients of one hub use few names, and each of their requests has one.
        self._accepts = lru_cache(_CACHED)(self._answers)

    def refusal(self, hosts: Iterable[str]) -> str | None:
        """Return the error text for a request with these `Host` headers, or `None` if the request is accepted.

        A request without this header is accepted. Every browser sends the header, so such a request does not come from
        a web page.
        """
        for host in hosts:
            if host and not self._all and not self._accepts(host):
                return (
                    f'this hub does not answer to the name "{host[:_EXCERPT]}"; if it is its own, add it to `names` in '
                    "[http] of tieline.toml"
                )
        return None

    def _answers(self, host: str) -> bool:
        name = _bare(host)
        if name in self._names or name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _bare(host: str) -> str:
    """Return a host name in lower case, without its port, its brackets and a final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")
