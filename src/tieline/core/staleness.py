"""Staleness: a sender or a recipient says that a message no longer needs to be handled.

The delivery becomes `expired`, with evidence that names who did it. The delivery is not `acked`, because nobody
handled it. The delivery is not `dead`, because nothing prevented the hub from delivering the message.
"""

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId
from tieline.contract.keys import one_key
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Directory, Session
from tieline.core.outcome import Post
from tieline.core.rules import Rules, decides
from tieline.core.store import DeliveryRoute


class StalenessRules(Rules):
    """Marks deliveries as expired that nobody needs to handle any more.

    The sender superseded them, or the recipient discarded them.
    """

    def __init__(self, batch: Batch, directory: Directory, deliveries: Deliveries) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._deliveries = deliveries

    def find_superseded(self, message_id: MessageId, session: Session) -> DeliveryRoute | Refusal:
        """Return the deliveries of the earlier message `message_id`, which a new message of this session supersedes.

        Return a refusal if the session's member did not send `message_id`.
        """
        found = self._store.find_message(message_id)
        if found is None or not session.said(found[0]):
            return Refusal(Code.UNKNOWN_MESSAGE, f"no message {message_id!r} was sent by {session.speaker}")
        return found[1]

    def supersede(self, route: DeliveryRoute, post: Post) -> None:
        """Mark the deliveries of the old message (`route`) as expired for each recipient of the new message (`post`).

        Other recipients keep the old message.
        """
        evidence = f"superseded by {post.message.id}"
        reached = set(post.numbers)
        for number, key in zip(route.numbers, route.keys, strict=True):
            account = self._directory.accounts.get(number)
            if account is not None and number in reached:
                self._deliveries.move(account, one_key(key), State.EXPIRED, evidence=evidence)

    @decides(c.Discard)
    def discard(self, session: Session, command: c.Discard) -> Reply:
        """Mark deliveries as expired that the session's member will not handle.

        The evidence of these deliveries has the member's reason.
        """
        account = session.account
        if account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member's session can discard a delivery")
        if len(command.ranges) > self._limits.ranges_max:
            return Refusal(Code.INVALID_REQUEST, f"one command moves at most {self._limits.ranges_max} ranges")
        if not 0 < len(command.reason) <= self._limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"say why, in at most {self._limits.text_bytes_max} characters")
        evidence = f"discarded by {session.speaker}: {command.reason}"
        self._deliveries.move(account, command.ranges, State.EXPIRED, session=session, evidence=evidence)
        account.touch(self._batch.now_ms)
        self._batch.outcome.urgent = True
        return Done()
