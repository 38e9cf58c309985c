"""What an agent can do on the hub, as tools of its own program.

`lean` is the default; `ac7`, `backchannel` and `peerbus` have those systems' own names, for agents that were taught
them. `tool` is what they are made of.
"""

from tieline.agents.tools import ac7, backchannel, lean, peerbus
from tieline.agents.tools.tool import Answer, Desk, Tool

DEFAULT = "tieline"

SETS: dict[str, tuple[Tool, ...]] = {
    DEFAULT: lean.TOOLS,
    "ac7": ac7.TOOLS,
    "backchannel": backchannel.TOOLS,
    "peerbus": peerbus.TOOLS,
}
"""Tools by the name of their set."""


__all__ = ["DEFAULT", "SETS", "Answer", "Desk", "Tool"]
