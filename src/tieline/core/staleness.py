"""Staleness: what need not be handled any more, because its sender or its recipient says so.

Both make a delivery `expired`, with the evidence of who did it: nobody handled it, so it is not acknowledged, and
nothing kept it from being delivered, so it is not dead.
"""

from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core import reading
from tieline.core.directory import Session
from tieline.core.outcome import Post
from tieline.core.store import Route

if TYPE_CHECKING:
    from tieline.core.broker import Broker


def find_superseded(broker: "Broker", message_id: MessageId, session: Session) -> Route | Refusal:
    """Where the message went that another takes the place of; only its own sender may say so."""
    found = broker.store.find_message(message_id)
    if found is None or not reading.said(session, found[0]):
        return Refusal(Code.UNKNOWN_MESSAGE, f"no message {message_id!r} was sent by {session.speaker}")
    return found[1]


def supersede(broker: "Broker", route: Route, post: Post) -> None:
    """Whoever has the new message need not handle the old one; whoever has not keeps what it has."""
    evidence = f"superseded by {post.message.id}"
    reached = set(post.numbers)
    for number, key in zip(route.numbers, route.keys, strict=True):
        account = broker.directory.accounts.get(number)
        if account is not None and number in reached:
            broker.move(account, ((key, key),), State.EXPIRED, evidence=evidence)


def discard(broker: "Broker", command: c.Discard) -> Reply:
    """A member says that it will not handle deliveries, and why."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    account = session.account
    if account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member's session can discard a delivery")
    if len(command.ranges) > broker.limits.ranges_max:
        return Refusal(Code.INVALID_REQUEST, f"one command moves at most {broker.limits.ranges_max} ranges")
    if not 0 < len(command.reason) <= broker.limits.text_bytes_max:
        return Refusal(Code.INVALID_REQUEST, f"say why, in at most {broker.limits.text_bytes_max} characters")
    evidence = f"discarded by {session.speaker}: {command.reason}"
    broker.move(account, command.ranges, State.EXPIRED, session=session, evidence=evidence)
    account.touch(broker.now_ms)
    broker.outcome.urgent = True
    return Done()
