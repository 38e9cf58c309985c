"""Evidence: what shows that a delivery was handled, although its wire has no acknowledgement.

A reply that names a message says that its sender has read it. Where the delivery went out on a wire that cannot
acknowledge, nothing better will ever come, so the reply is the acknowledgement. Only recent messages count, those that
the loop rule remembers: looking further back would cost every reply a read.
"""

from typing import TYPE_CHECKING

from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId
from tieline.core.directory import Account, Session

if TYPE_CHECKING:
    from tieline.core.broker import Broker

REPLY = "reply"


def replied(broker: "Broker", session: Session, message_id: MessageId) -> None:
    """A session answers this message."""
    account = session.account
    key = answered(broker, account, message_id) if account is not None else None
    if account is not None and key is not None:
        broker.move(account, ((key, key),), State.ACKED, session=session, evidence=REPLY)


def answered(broker: "Broker", account: Account, message_id: MessageId) -> int | None:
    """The key of the delivery that a member's answer to this message acknowledges, if there is one."""
    offset = broker.loops.offset_of(message_id)
    key = account.inbox.find(offset) if offset is not None else None
    return key if key is not None and account.inbox.is_muted(key) else None
