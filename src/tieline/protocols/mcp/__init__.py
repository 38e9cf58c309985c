"""MCP: gives an agent the hub's tools, and pushes the agent's messages to its program, over HTTP at `/mcp`.

Used by: the code that runs protocols; `tieline.agents`, which serves the same tools on stdio. Uses: the hub's own
protocol, in process. PROTOCOL.md has the requests, the rules, and the points in which the hub deviates from the
specification.

`codec` encodes and decodes MCP's messages. `server` is the HTTP application. `caller` makes the tool calls of a token,
`listener` pushes messages to one client, and `response` sends one answer. `tools` are the tools. `agent_session` serves
one agent. It uses `forwarder`, which pushes messages and keeps them open until there is evidence that they were read,
and `open_objectives`. `framing` makes the frame (the tags around a message) in which an agent sees a message. `echo`
hides from an agent the messages that it wrote itself.
"""

from tieline.protocols.mcp.settings import FLAGS, TEMPLATE, McpSettings
from tieline.wire.fidelity import Carriage
from tieline.wire.protocol import Host, Protocol, Server
from tieline.wire.puppet import Puppet


def _server(host: Host, settings: McpSettings) -> Server:
    del settings
    from tieline.protocols.mcp.server import Mcp

    return Mcp(host.hub, host.now_ms, unfinished=host.unfinished)


def _carriage() -> Carriage:
    from tieline.protocols.mcp.codec import CARRIAGE

    return CARRIAGE


def _puppet() -> type[Puppet]:
    from tieline.protocols.mcp.puppet import McpPuppet

    return McpPuppet


PROTOCOL = Protocol(
    name="mcp",
    section="mcp",
    settings=McpSettings,
    template=lambda: TEMPLATE,
    server=_server,
    carriage=_carriage,
    puppet=_puppet,
    colour="#00737a",
    terminal_colour="bright_blue",
    flags=FLAGS,
    is_framed=True,
    in_rooms=True,
)
