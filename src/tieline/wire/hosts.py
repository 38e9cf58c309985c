"""Hosts: the names under which a port of the hub is answered.

Above: the HTTP port, and those that protocols have beside it. Below: nothing. It refuses to know requests: a `Host`
header goes in.

A page of any site can have its own name resolve to 127.0.0.1 (DNS rebinding). To the browser the hub is then part of
that site, so neither the page's `Origin` nor the browser's rules keep it out. The name itself does: the browser sends
it as `Host`. So a port on a loopback address answers to IP addresses, `localhost` and the names of the configuration.
"""

from collections.abc import Iterable
from ipaddress import ip_address

_LOCALHOST = "localhost"
_EXCERPT = 80
"""Characters of a strange name that are repeated."""


class Hosts:
    """The names that one port answers to."""

    __slots__ = ("_all", "_names")

    def __init__(self, names: Iterable[str], address: str) -> None:
        self._names = frozenset(_bare(name) for name in names)
        # A port that the network reaches has names that only its owner knows; it checks when it was told them.
        self._all = not self._names and not ip_address(address).is_loopback

    def refusal(self, hosts: Iterable[str]) -> str | None:
        """Why a request with these `Host` headers is refused; `None` if it is answered.

        No header at all is answered: every browser sends one, so no page is behind such a request.
        """
        for host in hosts:
            if host and not self._all and not self._answers(_bare(host)):
                return (
                    f'this hub does not answer to the name "{host[:_EXCERPT]}"; if it is its own, add it to `names` in '
                    "[http] of tieline.toml"
                )
        return None

    def _answers(self, name: str) -> bool:
        if name in self._names or name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _bare(host: str) -> str:
    """A name without its port, its brackets and its last dot, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")
