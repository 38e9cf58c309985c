"""Notices: what the hub itself has to tell members, as messages in their inboxes.

They are events, so the loop rule leaves them alone and they cause nothing; and they come from a name that no member can
have. Each is bounded by what provokes it: a conversation is paused once in a while, a delivery dies once.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tieline.contract.identifiers import USERS, SessionId
from tieline.contract.message import Content, Kind, Message
from tieline.contract.target import to_member
from tieline.core.directory import Account, Session
from tieline.core.loops import Loop

if TYPE_CHECKING:
    from tieline.core.broker import Broker

SPEAKER = "hub@notices"
"""Who speaks. No member's name has an `@`."""

_PROTOCOL = "tieline"
_HUMANS_MAX = 16
"""Humans who are told of a loop: one of them will look."""
_LETTERS_MAX = 64
"""Deliveries given up at once whose senders are told."""


def tell(broker: "Broker", accounts: Iterable[Account], title: str, body: str, data: dict[str, Any]) -> None:
    """Tell each of these members the same; one whose inbox is full is not told."""
    session = Session(SessionId(""), _PROTOCOL, SPEAKER, account=None)
    for account in accounts:
        if account.inbox.backlog < broker.limits.backlog_max:
            content = Content(target=to_member(account.name), body=body, title=title, kind=Kind.EVENT, data=data)
            broker.post(session, content, (account,))


def paused(broker: "Broker", loop: Loop, sender: Session, recipients: Collection[Account]) -> None:
    """Tell those who looped, and the humans, that a conversation is paused and what to do about it."""
    # In a channel the others have no part in it.
    told = {account.number: account for account in recipients if len(recipients) == 1}
    for account in (sender.account, broker.directory.find(loop.last)):
        if account is not None:
            told[account.number] = account
    humans = broker.directory.subscribers(USERS) or {}
    told |= dict(zip(list(humans)[:_HUMANS_MAX], humans.values(), strict=False))
    minutes = broker.limits.pause_ms // 60_000
    body = (
        f"{loop.conversation} is paused: agents answered each other there without end. It resumes in {minutes} "
        f"minutes, or when a human runs: tieline resume '{loop.conversation}'"
    )
    data = {"event": "paused", "conversation": loop.conversation, "refused": sender.speaker}
    tell(broker, told.values(), "conversation paused", body, data)


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
