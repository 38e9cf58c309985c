"""Wire ids: ids that senders give to their messages. In some protocols, recipients name deliveries by wire id."""

from collections.abc import Mapping, Sequence

from tieline.contract import chain
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import SessionId
from tieline.contract.keys import Ranges
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Done, Reply
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Session
from tieline.core.rules import Rules, decides
from tieline.core.store import Store


class WireIds:
    """Finds messages by their wire ids (the ids that senders give to messages).

    So a message that is sent again is not stored twice.
    """

    __slots__ = ("_limits", "_store")

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits

    def known(self, owner: str, protocol: str, wire_id: str, encoded: bytes) -> Reply | None:
        """Return a reply if a wire id (the sender's id of a message) is invalid or was used before; otherwise `None`.

        `owner` is the sender. It is empty for a shared id, which is unique among all senders. If the id was used before
        with the same content (`encoded`), the reply accepts the message as a duplicate. Otherwise the reply is a
        refusal.
        """
        if not wire_id or len(wire_id.encode()) > self._limits.text_bytes_max:
            return Refusal(Code.INVALID_MESSAGE, f"a wire id has 1 to {self._limits.text_bytes_max} bytes")
        known = self._store.find_wire_id(owner, protocol, wire_id)
        if known is None:
            return None
        if known.digest != chain.digest(encoded):
            return Refusal(Code.WIRE_ID_REUSED, f"the id {wire_id!r} was used before for another message")
        return Accepted(message_id=known.message_id, offset=known.offset, recipients=known.recipients, duplicate=True)

    def prefetch(self, commands: Sequence[c.Command], sessions: Mapping[SessionId, Session]) -> None:
        """Tell the store which wire ids (senders' ids of messages) a batch will ask for.

        Then the store can read all of them at once.
        """
        keys = []
        for command in commands:
            if isinstance(command, c.Send) and command.wire_id and len(command.wire_id) <= self._limits.text_bytes_max:
                session = sessions.get(command.session)
                if session is not None:
                    keys.append(("" if command.shared_id else session.speaker, session.protocol, command.wire_id))
        if len(keys) > 1:
            self._store.prefetch(keys)


class WireIdRules(Rules):
    """Rule for the command `AcknowledgeIds`, which acknowledges deliveries by the ids of their messages."""

    def __init__(self, batch: Batch, deliveries: Deliveries) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._deliveries = deliveries

    @decides(c.AcknowledgeIds)
    def acknowledge(self, session: Session, command: c.AcknowledgeIds) -> Reply:
        """Acknowledge deliveries of the session's own member.

        The client names the deliveries by message ids, or by wire ids (the ids that senders gave).
        """
        account = session.account
        if account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member's session can acknowledge a delivery")
        if len(command.evidence) > self._limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"evidence has at most {self._limits.text_bytes_max} characters")
        ranges = self.find_deliveries(session, account, command)
        self._deliveries.move(account, ranges, State.ACKED, session=session, evidence=command.evidence)
        account.touch(self._batch.now_ms)
        return Done()

    def find_deliveries(self, session: Session, account: Account, command: c.AcknowledgeIds) -> Ranges:
        """Return, as ranges, the keys of the member's deliveries that have the ids in the command.

        Deliveries that are acked, expired or dead are left out.
        """
        store = self._store
        known = (store.find_wire_id("", session.protocol, wire_id) for wire_id in command.wire_ids)
        found = (store.find_message(message_id) for message_id in command.message_ids)
        offsets = [*(one.offset for one in known if one), *(one[0].offset for one in found if one)]
        keys = (account.inbox.find(offset) for offset in offsets)
        return [(key, key) for key in keys if key is not None]
