"""Evidence: what shows that a delivery was handled, although its wire has no acknowledgement.

A reply that names a message says that its sender has read it. Where the delivery went out on a wire that cannot
acknowledge, nothing better will ever come, so the reply is the acknowledgement. Only recent messages count, those that
the loop rule remembers: looking further back would cost every reply a read.
"""

from typing import TYPE_CHECKING

from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId
from tieline.core.directory import Session

if TYPE_CHECKING:
    from tieline.core.broker import Broker

REPLY = "reply"


def replied(broker: "Broker", session: Session, message_id: MessageId) -> None:
    """A session answers this message."""
    account, offset = session.account, broker.loops.offset_of(message_id)
    key = account.inbox.find(offset) if account is not None and offset is not None else None
    if account is not None and key is not None and account.inbox.is_muted(key):
        broker.move(account, ((key, key),), State.ACKED, session=session, evidence=REPLY)
