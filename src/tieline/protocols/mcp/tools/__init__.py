"""The tools through which an agent's program uses the hub.

`lean` is the default set. Protocols declare other sets, with the tool names of their own systems, for agents that know
these names. `tool` defines a tool.
"""

from tieline.protocols import named, protocols
from tieline.protocols.mcp.tools import lean
from tieline.protocols.mcp.tools.tool import Answer, Tool, ToolContext

DEFAULT = "tieline"


def set_names() -> tuple[str, ...]:
    """Return the names of all sets of tools, the hub's own set first."""
    return (DEFAULT, *(protocol.name for protocol in protocols() if protocol.tools is not None))


def tools_of(name: str) -> tuple[Tool, ...]:
    """Return the tools of the set with this name. Raises `KeyError` if there is no such set."""
    if name == DEFAULT:
        return lean.TOOLS
    load = named(name).tools
    if load is None:
        raise KeyError(name)
    return tuple(load())


__all__ = ["DEFAULT", "Answer", "Tool", "ToolContext", "set_names", "tools_of"]
