"""Notices: what the hub itself has to tell members, as messages in their inboxes.

They are events, so the loop rule leaves them alone and they cause nothing; and they come from a name that no member can
have. Each is bounded by what provokes it: a conversation is paused once in a while, a delivery dies once.
"""

import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tieline.contract.identifiers import USERS, SessionId
from tieline.contract.message import Content, Kind, Message
from tieline.contract.target import to_member
from tieline.core.directory import Account, Session

if TYPE_CHECKING:
    from tieline.core.broker import Broker

SPEAKER = "hub@notices"
"""Who speaks. No member's name has an `@`."""

_PROTOCOL = "tieline"
_HUMANS_MAX = 16
"""People who are told of a loop: one of them will look."""
_LETTERS_MAX = 64
"""Deliveries given up at once whose senders are told."""


def tell(broker: "Broker", accounts: Iterable[Account], title: str, body: str, data: dict[str, Any]) -> None:
    """Tell each of these members the same; one whose inbox is full is not told."""
    session = Session(SessionId(""), _PROTOCOL, SPEAKER, account=None)
    for account in accounts:
        if account.inbox.backlog < broker.limits.backlog_max:
            content = Content(target=to_member(account.name), body=body, title=title, kind=Kind.EVENT, data=data)
            broker.post(session, content, (account,))


def command(word: str, conversation: str) -> str:
    """A command as a person can enter it, whatever the conversation is called."""
    return f"tieline {word} {shlex.quote(conversation)}"


def duration(ms: int) -> str:
    """A duration as people say it, in minutes or seconds."""
    return f"{ms / 60_000:g} min" if ms % 60_000 == 0 else f"{ms / 1000:g} s"


def people(broker: "Broker") -> dict[int, Account]:
    """The humans, or where there are none, those who manage members; each by its number."""
    found = broker.directory.subscribers(USERS) or broker.directory.managers
    return dict(list(found.items())[:_HUMANS_MAX])


def slowed(broker: "Broker", conversation: str, reason: str) -> None:
    """Tell people that agents go on answering each other, and what to do about it."""
    first, last = duration(broker.limits.space_ms_min), duration(broker.limits.space_ms_max)
    body = (
        f"{reason}. From now on its messages come {first} to {last} apart; nothing is lost. To stop it: "
        f"{command('pause', conversation)}. If it is work: {command('allow', conversation)}"
    )
    data = {"event": "slowed", "conversation": conversation}
    tell(broker, people(broker).values(), "conversation slowed", body, data)


def held(
    broker: "Broker", conversation: str, reason: str, speakers: tuple[str, str], recipients: Collection[Account]
) -> None:
    """Tell people, and the agents concerned, that a conversation is held and how it goes on."""
    # In a channel the others have no part in it.
    told = {account.number: account for account in recipients if len(recipients) == 1}
    for account in map(broker.directory.find, speakers):
        if account is not None:
            told[account.number] = account
    body = (
        f"{reason}. What agents say there is accepted and kept, and one message passes every "
        f"{duration(broker.limits.pause_ms)}. To deliver all of it: {command('resume', conversation)}. "
        f"If it is work: {command('allow', conversation)}"
    )
    data = {"event": "held", "conversation": conversation, "by": speakers[0]}
    tell(broker, (told | people(broker)).values(), "conversation held", body, data)


def doomed(broker: "Broker", account: Account, ranges: Sequence[tuple[int, int]]) -> list[Message]:
    """The messages of deliveries that are about to be given up."""
    keys = (key for first, last in ranges for key in range(first, last + 1))
    offsets = [account.inbox.offset(key) for key, _ in zip(keys, range(_LETTERS_MAX), strict=False)]
    known = [offset for offset in offsets if offset is not None]
    found, _ = broker.store.messages(known, broker.limits.page_bytes_max)
    return list(found.values())


def given_up(broker: "Broker", account: Account, messages: Iterable[Message], reason: str) -> None:
    """Tell the senders of these messages that a recipient will never have them."""
    for message in messages:
        sender = broker.directory.find(message.sender)
        if sender is not None:
            body = f"{account.name} cannot be given your message {message.id}: {reason}"
            data = {"event": "dead", "message": message.id, "member": account.name, "reason": reason}
            tell(broker, (sender,), "message not delivered", body, data)
