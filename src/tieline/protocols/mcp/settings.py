"""The configuration of MCP over HTTP."""

from tieline.wire.protocol import Settings, on_off

TEMPLATE = """\
[mcp]
enabled = true
"""


class McpSettings(Settings, frozen=True):
    """Configuration of MCP over HTTP: the section `[mcp]`."""


FLAGS = (on_off("mcp", "Serve MCP over HTTP, at /mcp."),)
