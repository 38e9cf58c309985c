"""agent-relay's extension of the command line: it tells `tieline doctor` the path of the protocol's socket.

Used by: the command line, which finds `RelayCommands` through the protocol's declaration. Uses: nothing.
"""

from collections.abc import Iterator, Mapping

from tieline.cli.extension import Extension
from tieline.protocols.agent_relay import SOCKET


class RelayCommands(Extension):
    """agent-relay's extension of the command line: it names the protocol's socket, so that commands can check it."""

    sockets = (SOCKET,)

    def listeners(self, places: Mapping[str, str | None]) -> Iterator[str]:
        """Yield the path of the protocol's socket. `places` are the entries of `run.json`."""
        path = places.get("relay_socket")
        if path is not None:
            yield path
