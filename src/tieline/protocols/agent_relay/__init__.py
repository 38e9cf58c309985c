"""agent-relay: a protocol with JSON envelopes over a Unix socket.

Terminal programs can also send messages by printing them.

Used by: the code that runs protocols, and the wrapper for terminal programs. Uses: `wire`.

The module `extractor` finds the messages in a program's output. It uses `instruction` to parse the messages, `escapes`
for escape sequences, `thinking` for thinking blocks, and `held_output` for output that is not shown yet.
"""

from typing import Any

from tieline.protocols.agent_relay.settings import FLAGS, TEMPLATE, RelaySettings
from tieline.wire.extractor import Extractor
from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server
from tieline.wire.puppet import Puppet

SOCKET = "agent-relay.sock"


def _server(host: Host, settings: RelaySettings) -> Server:
    from tieline.protocols.agent_relay.server import RelayServer

    return RelayServer(
        host.hub,
        settings.socket_path or host.home / SOCKET,
        heartbeat_ms=settings.heartbeat_ms,
        frame_bytes_max=settings.frame_bytes_max,
        require_resume_token=settings.require_resume_token,
        unfinished=host.unfinished,
    )


def _carriage() -> Carriage:
    from tieline.protocols.agent_relay.codec import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from tieline.protocols.agent_relay.puppet import RelayPuppet

    return RelayPuppet


def _extractor() -> type[Extractor]:
    from tieline.protocols.agent_relay.extractor import Extractor

    return Extractor


def _commands() -> Any:
    from tieline.protocols.agent_relay.commands import RelayCommands

    return RelayCommands()


PROTOCOL = Protocol(
    name="agent-relay",
    section="agent_relay",
    settings=RelaySettings,
    template=lambda: TEMPLATE,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    colour="#a3295f",
    terminal_colour="green",
    flags=FLAGS,
    places={"relay_socket": "relay"},
    extractor=_extractor,
    in_followers=True,
    commands=_commands,
)
