"""agent-relay on the command line: its socket, for the doctor.

Above: the command line, which finds `RelayCommands` through the protocol's declaration. Below: nothing.
"""

from collections.abc import Iterator, Mapping

from tieline.cli.extension import Extension
from tieline.protocols.agent_relay import SOCKET


class RelayCommands(Extension):
    """agent-relay's part of the command line."""

    sockets = (SOCKET,)

    def listeners(self, places: Mapping[str, str | None]) -> Iterator[str]:
        """Yield the path of the socket."""
        path = places.get("relay_socket")
        if path is not None:
            yield path
