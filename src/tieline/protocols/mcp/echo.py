"""Self-echo: decides which messages an agent is not shown because the agent itself sent them.

The hub delivers a message to its sender too if others see the message, so that all sessions of a member stay alike. An
agent that sees its own chat messages may take them for new messages and answer itself. But the agent needs messages
about its objectives, for example that one is completed. So the agent's own chat messages are suppressed, and messages
about events of objectives are not.
"""

from tieline.protocols.mcp.framing import is_lifecycle
from tieline.wire.native.frames import Message


def should_suppress_self_echo(message: Message, *, member: str) -> bool:
    """True if a message must not be shown to a member: the member sent it, and it reports no event of an objective."""
    return message.sender == member and not is_lifecycle(message)
