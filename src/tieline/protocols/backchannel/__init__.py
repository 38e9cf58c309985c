"""backchannel: a protocol with messages as files in a folder (a Maildir spool), and with the same operations over HTTP.

Used by: the command line, which works on a spool without any hub, and the server, which runs protocols. Uses:
`contract` and `wire`. PROTOCOL.md describes the layout of the spool, its guarantees and our deviations.

`codec` and `record` define messages and agent records, and their JSON. `spool` is the folder. `claims` takes messages
from the folder, `arrivals` watches it, and `upkeep` finds files in it that killed processes left. `identity` stores the
name under which the user's commands act. `adoption` connects the folder to a hub, `relay` has the HTTP routes, and
`server` starts both.
"""

from typing import Any

from tieline.protocols.backchannel.settings import FLAGS, ROOM_HEADER, BackchannelSettings, template
from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server
from tieline.wire.puppet import Puppet


def _server(host: Host, settings: BackchannelSettings) -> Server:
    from tieline.protocols.backchannel.server import BackchannelServer

    return BackchannelServer(host, settings)


def _carriage() -> Carriage:
    from tieline.protocols.backchannel.view import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from tieline.protocols.backchannel.puppet import BackchannelPuppet

    return BackchannelPuppet


def _tools() -> tuple[Any, ...]:
    from tieline.protocols.backchannel.tools import TOOLS

    return TOOLS


def _commands() -> Any:
    from tieline.protocols.backchannel.commands import BackchannelCommands

    return BackchannelCommands()


PROTOCOL = Protocol(
    name="backchannel",
    section="backchannel",
    settings=BackchannelSettings,
    template=template,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    colour="#7a3fb8",
    terminal_colour="yellow",
    other_names=("spool",),
    flags=FLAGS,
    places={"spool": "spool"},
    tools=_tools,
    in_followers=True,
    commands=_commands,
    room_header=ROOM_HEADER,
    openapi="/v1/openapi.json",
    in_rooms=True,
)
