"""Postboxes: one interface for the two places where a command without a hub can send and find messages.

The two places are a spool and a relay (backchannel's HTTP server). Used by: `local`, which runs the commands. Uses: the
spool and the relay's client.
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
    """Interface: the messages that one reader claims from a spool or relay. `finish` or `release` ends each claim."""

    def claim(self, message_id: str) -> "SpoolMessage | None":
        """Claim a message and return it; `None` if another reader was first."""

    def sync(self) -> None:
        """Make all claims so far durable, so that after a power failure nobody can take these messages again."""

    def finish(self, message_id: str, *, keep: bool = False) -> None:
        """End the claim of a message that the reader has handled.

        The message's file is deleted. If `keep` is true, the file is not deleted.
        """

    def release(self, message_id: str) -> None:
        """End the claim of a message that the reader has not handled."""


class Coming(Protocol):
    """Interface: iterator over an agent's messages as they arrive."""

    def again(self, message_id: str, after_seconds: float) -> None:
        """Yield this message once more, after a delay of `after_seconds`."""

    def __aiter__(self) -> "AsyncIterator[SpoolMessage]": ...


class Postbox(Protocol):
    """Interface of the place where messages are sent and wait: a spool, or a relay (backchannel's HTTP server)."""

    @property
    def where(self) -> str:
        """Text for people that says where messages are: the spool's folder or the relay's address."""

    def environment(self, agent: str) -> dict[str, str]:
        """Return environment variables with which `tieline` and `bch` use this postbox as the agent `agent`."""

    def register(self, name: str) -> None:
        """Register the agent `name` if the name is unknown. So an agent needs no separate command to register."""

    def send(self, draft: "SpoolDraft") -> "tuple[SpoolMessage, int | None]":
        """Send a message. Return the message and the number of its recipients (`None` if the number is unknown).

        Register the sender if the name is unknown, but not if there is no recipient.
        """

    def inbox(self, agent: str) -> "list[SpoolMessage]":
        """Return an agent's unread messages, oldest first."""

    def taking(self, agent: str, *, late: bool = False, keep: bool = False) -> AbstractContextManager[Taking]:
        """Return a context manager with which one reader claims messages. `late` and `keep` matter only for a relay.

        With `late`, a message stays unread until `finish` is called, so it is not lost if the reader fails. With
        `keep`, the relay is asked to keep claimed messages.
        """

    def recover(self, agent: str) -> int:
        """Make the messages that killed readers had claimed unread again. Return the number of these messages."""

    def subscribe(self, agent: str, channel: str) -> None:
        """Let the agent join a channel."""

    def unsubscribe(self, agent: str, channel: str) -> None:
        """Let the agent leave a channel."""

    def agents(self) -> "list[AgentRecord]":
        """Return the records of all agents."""

    def backlog(self, agent: str) -> int | None:
        """Return the number of messages that wait for an agent; `None` if the number cannot be known."""

    def arrivals(self, agent: str) -> Coming:
        """Return an iterator over an agent's messages as they come."""


class SpoolPostbox:
    """Postbox (place of messages) in a Maildir spool on this machine."""

    def __init__(self, spool: "Spool") -> None:
        self._spool = spool

    @property
    def where(self) -> str:
        return f"the spool in {self._spool.root}"

    def environment(self, agent: str) -> dict[str, str]:
        from tieline.client.connection import MEMBER_VARIABLE
        from tieline.protocols.backchannel.identity import AGENT_VARIABLE, HOME_VARIABLE

        return {MEMBER_VARIABLE: agent, AGENT_VARIABLE: agent, HOME_VARIABLE: str(self._spool.root)}

    def register(self, name: str) -> None:
        self._spool.register(name)

    def send(self, draft: "SpoolDraft") -> "tuple[SpoolMessage, int | None]":
        from tieline.protocols.backchannel.codec import agent_of

        if agent_of(draft.to) != draft.sender:
            self._spool.find_recipients(draft)
        self._spool.register(draft.sender)
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
    """Postbox (place of messages) at a relay, the HTTP server of backchannel. The user has joined this relay."""

    def __init__(self, client: "RelayClient") -> None:
        self._client = client

    @property
    def where(self) -> str:
        return f"the relay at {self._client.url}"

    def environment(self, agent: str) -> dict[str, str]:
        from tieline.client.connection import MEMBER_VARIABLE
        from tieline.protocols.backchannel.identity import AGENT_VARIABLE, ROOM_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE

        here = {MEMBER_VARIABLE: agent, AGENT_VARIABLE: agent, URL_VARIABLE: self._client.url}
        more = {TOKEN_VARIABLE: self._client.token, ROOM_VARIABLE: self._client.room}
        return here | {name: value for name, value in more.items() if value}

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
