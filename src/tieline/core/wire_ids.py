"""Wire ids: the ids that senders give on their wires. Recipients of some protocols name deliveries by them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.directory import Account, Session

if TYPE_CHECKING:
    from tieline.core.broker import Broker


def acknowledge(broker: "Broker", command: c.AcknowledgeIds) -> Reply:
    """Settle deliveries of the session's own member by the ids that its wire knows them by."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    account = session.account
    if account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member's session can acknowledge a delivery")
    if len(command.evidence) > broker.limits.text_bytes_max:
        return Refusal(Code.INVALID_REQUEST, f"evidence has at most {broker.limits.text_bytes_max} characters")
    ranges = deliveries(broker, command, session, account)
    broker.move(account, ranges, State.ACKED, session=session, evidence=command.evidence)
    account.touch(broker.now_ms)
    return Done()


def deliveries(
    broker: "Broker", command: c.AcknowledgeIds, session: Session, account: Account
) -> list[tuple[int, int]]:
    """The unsettled deliveries of the member that these ids name."""
    store = broker.store
    known = (store.find_wire_id("", session.protocol, wire_id) for wire_id in command.wire_ids)
    found = (store.find_message(message_id) for message_id in command.message_ids)
    offsets = [*(one.offset for one in known if one), *(one[0].offset for one in found if one)]
    keys = (account.inbox.find(offset) for offset in offsets)
    return [(key, key) for key in keys if key is not None]


def foresee(broker: "Broker", commands: Sequence[c.Command]) -> None:
    """Tell the store which wire ids a batch will ask for, so that it can look for all of them at once."""
    keys = []
    sessions = broker.directory.sessions
    for command in commands:
        if isinstance(command, c.Send) and command.wire_id and len(command.wire_id) <= broker.limits.text_bytes_max:
            session = sessions.get(command.session)
            if session is not None:
                keys.append(("" if command.shared_id else session.speaker, session.protocol, command.wire_id))
    if len(keys) > 1:
        broker.store.foresee(keys)
