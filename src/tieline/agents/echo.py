"""Self-echo: decides which of its own messages an agent is not shown.

The hub delivers a message to its sender too if others see the message, so that all sessions of a member stay alike. An
agent that is shown its own chat takes the chat for news and answers itself. But the agent does want to hear about its
objectives, for example that one is completed. So an agent's own chat is suppressed, and lifecycle messages are not.
"""

from tieline.agents.framing import is_lifecycle
from tieline.client import Message


def should_suppress_self_echo(message: Message, *, member: str) -> bool:
    """True if the message is from the member and is not a lifecycle message."""
    return message.sender == member and not is_lifecycle(message)
