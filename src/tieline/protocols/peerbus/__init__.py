"""peerbus: a protocol in which peers with unique names send each other messages that are signed from end to end.

The server keeps each message until its recipient acknowledges it. `canonical` makes the bytes that are signed, and
`codec` encodes and decodes the frames. `server` connects peers to the hub. `client` is a client for Python programs.
See PROTOCOL.md.
"""

from collections.abc import Callable
from typing import Any

from tieline.protocols.peerbus.settings import DEFAULT_PORT, FLAGS, SECRET_VARIABLE, PeerbusSettings, template
from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server, Signatures
from tieline.wire.puppet import Puppet

SOCKET = "peerbus.sock"


def _server(host: Host, settings: PeerbusSettings) -> Server:
    from tieline.protocols.peerbus.server import PeerbusServer
    from tieline.wire.address import parse_address

    return PeerbusServer(
        host.hub,
        tokens=settings.tokens,
        secret=settings.hmac_secret,
        unfinished=host.unfinished,
        socket=host.home / SOCKET,
        port=parse_address(settings.listen, DEFAULT_PORT) if settings.listen else None,
        hosts=host.names,
        certificate=host.certificate,
        is_insecure=host.is_insecure,
        doors=host.doors,
    )


def _carriage() -> Carriage:
    from tieline.protocols.peerbus.codec import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from tieline.protocols.peerbus.puppet import PeerbusPuppet

    return PeerbusPuppet


def _tools() -> tuple[Any, ...]:
    from tieline.protocols.peerbus.tools import TOOLS

    return TOOLS


def _signature_check() -> Callable[[bytes, bytes], bool]:
    from tieline.protocols.peerbus.codec import is_signed

    return is_signed


def _commands() -> Any:
    from tieline.protocols.peerbus.commands import PeerbusCommands

    return PeerbusCommands()


PROTOCOL = Protocol(
    name="peerbus",
    section="peerbus",
    settings=PeerbusSettings,
    template=template,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    colour="#b35900",
    terminal_colour="blue",
    flags=FLAGS,
    places={"peerbus": "peerbus", "peerbus_socket": ""},
    tools=_tools,
    signatures=Signatures(SECRET_VARIABLE, _signature_check),
    commands=_commands,
    in_workers=True,
)
