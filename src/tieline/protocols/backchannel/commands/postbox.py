"""Postboxes: the places of messages for a command without a hub: a folder, or a relay that serves one.

Above: `local`, which runs the commands. Below: the spool and the relay's client, under one set of verbs.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tieline.protocols.backchannel.client import RelayClient
    from tieline.protocols.backchannel.codec import SpoolMessage
    from tieline.protocols.backchannel.record import AgentRecord
    from tieline.protocols.backchannel.spool import Spool, SpoolDraft


class Taking(Protocol):
    """Claims of one reader. The reader finishes each message or gives it back."""

    def claim(self, message_id: str) -> "SpoolMessage | None":
        """Take a message; `None` if another reader was first."""

    def sync(self) -> None:
        """Make the claims so far durable."""

    def finish(self, message_id: str, *, keep: bool = False) -> None:
        """Finish a message."""

    def release(self, message_id: str) -> None:
        """Give a message back."""


class Coming(Protocol):
    """Messages as they arrive."""

    def again(self, message_id: str, after_seconds: float) -> None:
        """Yield a message once more, after a delay."""

    def __aiter__(self) -> "AsyncIterator[SpoolMessage]": ...


class Postbox(Protocol):
    """A place to leave and find messages."""

    @property
    def where(self) -> str:
        """Kind and place of the postbox, for people."""

    def environment(self, agent: str) -> dict[str, str]:
        """Variables for a command that we run: with them, `tieline` and `bch` use this postbox as the same agent."""

    def register(self, name: str) -> None:
        """Register an agent that is unknown. The first command of an agent calls this."""

    def send(self, draft: "SpoolDraft") -> "tuple[SpoolMessage, int | None]":
        """Send a message; returns it and the number of its recipients, if that is known."""

    def inbox(self, agent: str) -> "list[SpoolMessage]":
        """Unread messages, oldest first."""

    def taking(self, agent: str, *, late: bool = False, keep: bool = False) -> AbstractContextManager[Taking]:
        """Open the claims of a reader. With `late`, a message stays unread if the reader fails."""

    def recover(self, agent: str) -> int:
        """Make the claims of killed readers unread again. Return the number of messages."""

    def subscribe(self, agent: str, channel: str) -> None:
        """Join a channel."""

    def unsubscribe(self, agent: str, channel: str) -> None:
        """Leave a channel."""

    def agents(self) -> "list[AgentRecord]":
        """All agents."""

    def backlog(self, agent: str) -> int | None:
        """The number of messages that wait for an agent, if that can be known."""

    def arrivals(self, agent: str) -> Coming:
        """An agent's messages as they come."""


class SpoolPostbox:
    """A Maildir spool on this machine."""

    def __init__(self, spool: "Spool") -> None:
        self._spool = spool

    @property
    def where(self) -> str:
        return f"the spool in {self._spool.root}"

    def environment(self, agent: str) -> dict[str, str]:
        from tieline.client.client import MEMBER_VARIABLE
        from tieline.protocols.backchannel.identity import AGENT_VARIABLE, HOME_VARIABLE

        return {MEMBER_VARIABLE: agent, AGENT_VARIABLE: agent, HOME_VARIABLE: str(self._spool.root)}

    def register(self, name: str) -> None:
        self._spool.register(name)

    def send(self, draft: "SpoolDraft") -> "tuple[SpoolMessage, int | None]":
        sent = self._spool.send(draft)
        return sent.message, len(sent.recipients)

    def inbox(self, agent: str) -> "list[SpoolMessage]":
        return self._spool.inbox(agent)

    def taking(self, agent: str, *, late: bool = False, keep: bool = False) -> AbstractContextManager[Taking]:
        # Neither option is needed: a spool's claim can be given back, and `finish` decides whether to keep the message.
        return self._spool.claims(agent)

    def recover(self, agent: str) -> int:
        return self._spool.recover(agent)

    def subscribe(self, agent: str, channel: str) -> None:
        self._spool.subscribe(agent, channel)

    def unsubscribe(self, agent: str, channel: str) -> None:
        self._spool.unsubscribe(agent, channel)

    def agents(self) -> "list[AgentRecord]":
        return self._spool.agents()

    def backlog(self, agent: str) -> int | None:
        return len(self._spool.waiting(agent))

    def arrivals(self, agent: str) -> Coming:
        from tieline.protocols.backchannel.arrivals import Arrivals

        return Arrivals(self._spool, agent)


class RelayPostbox:
    """A relay elsewhere, to which this folder's identity has joined."""

    def __init__(self, client: "RelayClient") -> None:
        self._client = client

    @property
    def where(self) -> str:
        return f"the relay at {self._client.url}"

    def environment(self, agent: str) -> dict[str, str]:
        from tieline.client.client import MEMBER_VARIABLE
        from tieline.protocols.backchannel.identity import AGENT_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE

        here = {MEMBER_VARIABLE: agent, AGENT_VARIABLE: agent, URL_VARIABLE: self._client.url}
        return {**here, TOKEN_VARIABLE: self._client.token} if self._client.token else here

    def register(self, name: str) -> None:
        # An agent with a token is registered already. Without a token, the relay refuses and says why.
        return

    def send(self, draft: "SpoolDraft") -> "tuple[SpoolMessage, int | None]":
        form = {
            "to": draft.to,
            "body": draft.body,
            "priority": draft.priority,
            "scope": draft.scope,
            "thread": draft.thread,
            "refs": draft.refs,
        }
        return self._client.send(form), None

    def inbox(self, agent: str) -> "list[SpoolMessage]":
        return self._client.inbox(agent)

    def taking(self, agent: str, *, late: bool = False, keep: bool = False) -> AbstractContextManager[Taking]:
        from tieline.protocols.backchannel.client import RelayClaims

        return RelayClaims(self._client, agent, late=late, keep=keep)

    def recover(self, agent: str) -> int:
        return 0

    def subscribe(self, agent: str, channel: str) -> None:
        self._client.subscribe(agent, channel)

    def unsubscribe(self, agent: str, channel: str) -> None:
        self._client.unsubscribe(agent, channel)

    def agents(self) -> "list[AgentRecord]":
        return self._client.agents()

    def backlog(self, agent: str) -> int | None:
        return None

    def arrivals(self, agent: str) -> Coming:
        from tieline.protocols.backchannel.client import RelayArrivals

        return RelayArrivals(self._client, agent)
