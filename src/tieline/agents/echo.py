"""Self-echo: which of its own messages an agent is not shown.

The hub gives a sender its own messages back where others see them too, so that all sessions of a member stay alike. An
agent that is shown what it just said takes it for news and answers itself; that its objective is completed, however, it
does want to hear. So what is chat from oneself is suppressed, and what happened to an objective is not.
"""

from tieline.agents.framing import is_lifecycle
from tieline.client import Message


def should_suppress_self_echo(message: Message, *, member: str) -> bool:
    """Whether a message is the member's own chat."""
    return message.sender == member and not is_lifecycle(message)
