"""agent-channels: channels of JSON messages over Unix sockets, and the bridges that join them.

Above: the hub's server, and agents that use the library by itself. Below: `wire`. It refuses to know what messages
mean, who clients are and what the hub does with a message; PROTOCOL.md has the wire, its limits and our deviations.

`codec` is bytes and values; `connection` is one socket; `channel`, `client`, `group` and `bridge` are the nouns of the
protocol's own library, under its names.
"""

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
