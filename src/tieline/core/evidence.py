"""Evidence: proof that a delivery was written to a wire, read or handled.

A session reports that deliveries of its own member were offered, seen, acknowledged, given up or claimed. Some
protocols have no acknowledgements. If a delivery went out by such a protocol, a reply to its message counts as an
acknowledgement, because the sender of the reply has read the message. This works only for recent messages, which the
loop rule remembers. For older messages, every reply would cost a read from the store.
"""

from tieline.contract import command as c
from tieline.contract.delivery import Delivery, State
from tieline.contract.identifiers import MessageId
from tieline.contract.keys import one_key
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Claimed, Done, Reply
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Session
from tieline.core.hub_messages import HubMessages
from tieline.core.loops import Loops
from tieline.core.rules import Rules, decides

REPLY = "reply"

_DONE = Done()


class EvidenceRules(Rules):
    """Rules for a session's reports about deliveries of its member.

    The reports say that deliveries were offered, seen, acknowledged, given up or claimed.
    """

    def __init__(self, batch: Batch, deliveries: Deliveries, loops: Loops, hub_messages: HubMessages) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._store = batch.store
        self._deliveries = deliveries
        self._loops = loops
        self._hub_messages = hub_messages

    @decides(c.Offered)
    def offer(self, session: Session, command: c.Offered) -> Reply:
        """Mark deliveries as `offered`: they were written to the session's wire."""
        if session.account is not None:
            ranges = ((command.first, command.last),)
            self._deliveries.move(session.account, ranges, State.OFFERED, session=session, ackless=command.ackless)
        return _DONE

    @decides(c.Advance)
    def advance(self, session: Session, command: c.Advance) -> Reply:
        """Move deliveries to the state that the session reports: seen, acked or dead.

        Dead means that the session gives up the deliveries. They do not become dead while another session of the member
        may still acknowledge them.
        """
        account, limits = session.account, self._limits
        if account is None or command.state not in (State.SEEN, State.ACKED, State.DEAD):
            return Refusal(Code.INVALID_REQUEST, "only a member's session can see, acknowledge or give up a delivery")
        if len(command.ranges) > limits.ranges_max:
            return Refusal(Code.INVALID_REQUEST, f"one command moves at most {limits.ranges_max} ranges")
        if len(command.evidence) > limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"evidence has at most {limits.text_bytes_max} characters")
        if command.state is State.DEAD and any(
            other.acknowledges and other is not session for other in account.sessions
        ):
            # A message that does not fit this wire may fit another wire of the member.
            return _DONE
        given_up = self._hub_messages.first_messages(account, command.ranges) if command.state is State.DEAD else ()
        moved = self._deliveries.move(
            account, command.ranges, command.state, session=session, evidence=command.evidence
        )
        if moved and given_up:
            self._hub_messages.given_up(account, given_up, command.evidence)
        account.touch(self._batch.now_ms)
        return _DONE

    @decides(c.Claim)
    def claim(self, session: Session, command: c.Claim) -> Reply:
        """Claim one delivery, so that no other session can claim it, and reply with the delivery.

        The claim also acknowledges the delivery.
        """
        account = session.account
        if account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member's session can claim a delivery")
        account.touch(self._batch.now_ms)
        delivery = self.find_unsettled(account, command.message_id)
        if delivery is None or not delivery.message.reaches(session.protocol):
            return Claimed(None)
        keys = one_key(delivery.key)
        if not self._deliveries.move(account, keys, State.ACKED, session=session, evidence="claim", claimed=True):
            return Claimed(None)
        self._batch.outcome.urgent = True
        return Claimed(Delivery(delivery.key, delivery.stream_seq, State.ACKED, delivery.message))

    def find_unsettled(self, account: Account, message_id: MessageId) -> Delivery | None:
        """Return the delivery of a message to a member, if it is not settled yet (not acked, expired or dead).

        Return `None` if there is no such delivery, or if the delivery is held (not to be delivered yet).
        """
        found = self._store.find_message(message_id)
        if found is None:
            return None
        message, _ = found
        key = account.inbox.find(message.offset)
        entry = account.inbox.entry(key) if key is not None and not account.inbox.is_held(key) else None
        return Delivery(entry.key, entry.stream_seq, entry.state, message) if entry else None

    def reply(self, session: Session, message_id: MessageId) -> None:
        """Acknowledge the message that a session replies to, if it was delivered on a wire without acknowledgement."""
        account = session.account
        key = self.find_answered(account, message_id) if account is not None else None
        if account is not None and key is not None:
            self._deliveries.move(account, one_key(key), State.ACKED, session=session, evidence=REPLY)

    def find_answered(self, account: Account, message_id: MessageId) -> int | None:
        """Return the key of the delivery that this member acknowledges when it replies to this message.

        Return `None` if the reply acknowledges no delivery.
        """
        offset = self._loops.offset_of(message_id)
        key = account.inbox.find(offset) if offset is not None else None
        return key if key is not None and account.inbox.is_ackless(key) else None
