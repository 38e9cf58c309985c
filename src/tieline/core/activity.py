"""Activity: who may report and read it.

The broker only decides whether something may be asked, which takes it no time. The journal does the work, and its reply
comes later.
"""

from typing import TYPE_CHECKING, assert_never

from tieline.contract import command as c
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.permission import ACTIVITY_READ
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.directory import Account, Session
from tieline.core.journal import Record, Select
from tieline.core.outcome import Deferred
from tieline.core.store import ActivityQuery

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_DONE = Done()


def decide(broker: "Broker", command: c.RecordActivity | c.ReadActivity | c.FollowActivity) -> Reply | Deferred:
    """Decide whether a command about activity is allowed; the journal makes the reply."""
    match command:
        case c.RecordActivity():
            return _record(broker, command)
        case c.ReadActivity():
            return _select(broker, command)
        case c.FollowActivity():
            found = _readable(broker, command.session, command.member)
            if isinstance(found, Refusal):
                return found
            session, account = found
            session.follows_others |= session.account is not account
            return _DONE
        case _:
            assert_never(command)


def _record(broker: "Broker", command: c.RecordActivity) -> Reply | Deferred:
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    account = session.account
    if account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member's session can report activity")
    if not 0 < len(command.events) <= broker.limits.activity_events_max:
        return Refusal(Code.INVALID_REQUEST, f"an upload has 1 to {broker.limits.activity_events_max} events")
    return Deferred(Record(account.number, account.name, broker.now_ms, command.events, command.size))


def _select(broker: "Broker", command: c.ReadActivity) -> Reply | Deferred:
    found = _readable(broker, command.session, command.member)
    if isinstance(found, Refusal):
        return found
    _, account = found
    limits = broker.limits
    query = ActivityQuery(
        number=account.number,
        from_ms=command.from_ms,
        to_ms=command.to_ms,
        kinds=command.kinds,
        limit=max(1, min(command.limit, limits.read_max)),
        bytes_max=limits.page_bytes_max,
    )
    return Deferred(Select(account.name, query))


def _readable(broker: "Broker", session_id: SessionId, name: MemberName) -> tuple[Session, Account] | Refusal:
    """The member whose activity is asked for, if this session may know of it."""
    session = broker.session(session_id)
    if isinstance(session, Refusal):
        return session
    own = session.account is not None and session.account.name == name
    if not own and not session.may(ACTIVITY_READ):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {ACTIVITY_READ}")
    account = broker.directory.find(name)
    return (session, account) if account is not None else broker.directory.unknown_member(name)
