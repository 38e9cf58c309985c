"""The tools through which an agent's program uses the hub.

`lean` is the default set. Protocols declare other sets, with the tool names of their own systems, for agents that know
these names. `tool` defines a tool.
"""

from tieline.agents.tools import lean
from tieline.agents.tools.tool import Answer, Tool, ToolContext
from tieline.protocols import named, protocols

DEFAULT = "tieline"


def set_names() -> tuple[str, ...]:
    """The names of all sets, the hub's own first."""
    return (DEFAULT, *(protocol.name for protocol in protocols() if protocol.tools is not None))


def tools_of(name: str) -> tuple[Tool, ...]:
    """The tools of a set. Raises `KeyError`."""
    if name == DEFAULT:
        return lean.TOOLS
    load = named(name).tools
    if load is None:
        raise KeyError(name)
    return tuple(load())


__all__ = ["DEFAULT", "Answer", "Tool", "ToolContext", "set_names", "tools_of"]
