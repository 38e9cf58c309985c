"""agent-channels: channels of JSON messages over Unix sockets, and the bridges that join them.

Used by: the code that runs protocols, and agents that use only the library. Uses: `wire`. The library gives no meaning
to messages, and does not know who its clients are. PROTOCOL.md has the format of the messages, the limits, and the
points in which the hub deviates from the specification.

`codec` converts bytes to values and back. `connection` is one socket. `channel`, `client`, `group` and `bridge` have
the classes of the protocol's own library, under the same names. `server` connects the protocol to the hub.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tieline.protocols.agent_channels.settings import FLAGS, TEMPLATE, ChannelsSettings
from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server
from tieline.wire.puppet import Puppet

if TYPE_CHECKING:
    from tieline.protocols.agent_channels.bridge import Bridge, TcpBridgeClient, TcpBridgeServer
    from tieline.protocols.agent_channels.channel import Channel, ClientError
    from tieline.protocols.agent_channels.client import ChannelClient
    from tieline.protocols.agent_channels.codec import (
        DecodeError,
        FrameDecoder,
        InvalidMessage,
        Message,
        encode,
        is_valid_message,
    )
    from tieline.protocols.agent_channels.connection import SlowReader
    from tieline.protocols.agent_channels.group import ChannelGroup, ChannelNotFound

__all__ = [
    "PROTOCOL",
    "Bridge",
    "Channel",
    "ChannelClient",
    "ChannelGroup",
    "ChannelNotFound",
    "ClientError",
    "DecodeError",
    "FrameDecoder",
    "InvalidMessage",
    "Message",
    "SlowReader",
    "TcpBridgeClient",
    "TcpBridgeServer",
    "encode",
    "is_valid_message",
]

FOLDER = Path("channels", "main")
"""Folder of the sockets, relative to the hub's data folder."""

_LIBRARY = ("bridge", "channel", "client", "codec", "connection", "group")


def _server(host: Host, settings: ChannelsSettings) -> Server:
    from tieline.protocols.agent_channels.server import ChannelsServer

    folder = settings.folder_path or host.home / FOLDER
    return ChannelsServer(host.hub, folder, inboxes=settings.inboxes, unfinished=host.unfinished)


def _carriage() -> Carriage:
    from tieline.protocols.agent_channels.posts import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from tieline.protocols.agent_channels.puppet import ChannelsPuppet

    return ChannelsPuppet


def _commands() -> Any:
    from tieline.protocols.agent_channels.commands import ChannelsCommands

    return ChannelsCommands()


PROTOCOL = Protocol(
    name="agent-channels",
    section="agent_channels",
    settings=ChannelsSettings,
    template=lambda: TEMPLATE,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    colour="#4d6b00",
    terminal_colour="magenta",
    flags=FLAGS,
    places={"channels_dir": "channels"},
    in_followers=True,
    commands=_commands,
)


def __getattr__(name: str) -> Any:
    # Load the library on first use, because code that only lists the protocols does not need it.
    if name in __all__:
        for module in _LIBRARY:
            found = getattr(importlib.import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
