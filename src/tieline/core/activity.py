"""Activity: who may report and read it, and the journal that keeps it.

The broker decides whether something may be asked, which takes it no time, and leaves an errand. The journal carries
errands out, on a thread of its own with storage of its own, so that heavy traces never make a message wait. An upload
is kept whole or not at all, and without its secrets.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.message import nested_deeper
from tieline.contract.permission import ACTIVITY_READ
from tieline.contract.redaction import redact
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Activity, Done, LogRows, Recorded, Reply
from tieline.core import ledger
from tieline.core.directory import Account, Session
from tieline.core.store import ActivityEntry, ActivityQuery, ActivityStore

if TYPE_CHECKING:
    from tieline.core.broker import Broker

PRUNE_MAX = 500
"""Rows forgotten at once: a few milliseconds, though each may be large."""
_BREATH_BYTES = 16 * 1024
"""Events that are taken in before others get their turn: well under a millisecond."""
_KIND_CHARS_MAX = 64
_NUMBER_MAX = 2**63 - 1


# What the broker leaves to the journal.


class Record(Struct, frozen=True):
    """Keep what a member did."""

    number: int
    member: MemberName
    at_ms: int
    events: tuple[dict[str, Any], ...]
    size: int


class Select(Struct, frozen=True):
    """Look up what a member did."""

    member: MemberName
    query: ActivityQuery


class ReadRows(Struct, frozen=True):
    """Read the activity log from an offset on."""

    start: int
    limit: int


class Prune(Struct, frozen=True):
    """Forget a little of what is older than retention says. Left by the hub itself."""

    at_ms: int


Errand = Record | Select | ReadRows | Prune

_DONE = Done()


def decide(broker: "Broker", command: c.RecordActivity | c.ReadActivity | c.FollowActivity) -> Reply:
    """Decide whether a command about activity may be carried out; an errand has its own reply later."""
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


def leave(broker: "Broker", errand: Errand) -> Reply:
    """Leave an errand in the outcome, in place of the reply that is being made."""
    broker.outcome.errands[len(broker.outcome.replies)] = errand
    return _DONE


def _record(broker: "Broker", command: c.RecordActivity) -> Reply:
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    account = session.account
    if account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member's session can report activity")
    if not 0 < len(command.events) <= broker.limits.activity_events_max:
        return Refusal(Code.INVALID_REQUEST, f"an upload has 1 to {broker.limits.activity_events_max} events")
    return leave(broker, Record(account.number, account.name, broker.now_ms, command.events, command.size))


def _select(broker: "Broker", command: c.ReadActivity) -> Reply:
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
    return leave(broker, Select(account.name, query))


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


# What the journal does with it.


class Journal:
    """The activity log over its own store. Not thread-safe: one caller at a time."""

    def __init__(self, store: ActivityStore, limits: Limits, breathe: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._limits = limits
        # Called now and then between two events, so that other threads get their turn.
        self._breathe = breathe
        self._end = store.restore()

    def carry_out(self, errand: Errand) -> tuple[Reply, Sequence[ActivityRow]]:
        """The reply, to be given only after `commit`, and what others should hear of then."""
        match errand:
            case Record():
                return self._record(errand)
            case Select(member, query):
                rows = tuple(_row(member, entry) for entry in self._store.select(query))
                return Activity(rows), ()
            case ReadRows(start, limit):
                found, end = self._store.read_log(start, limit, self._limits.page_bytes_max)
                return LogRows(tuple(found), end), ()
            case Prune(at_ms):
                # The answer says how many, so that whoever asked knows whether there may be more.
                return Recorded(self._store.prune(at_ms - self._limits.activity_retention_ms, PRUNE_MAX)), ()
            case _:
                assert_never(errand)

    def commit(self) -> None:
        """Make everything carried out so far durable."""
        self._store.commit()

    def retry(self) -> None:
        """Find out whether the store can write again."""
        self._store.retry()

    def restore(self) -> None:
        """Go back to what is committed."""
        self._end = self._store.restore()

    def close(self) -> None:
        """Release the store."""
        self._store.close()

    def _record(self, errand: Record) -> tuple[Reply, Sequence[ActivityRow]]:
        entries: list[ActivityEntry] = []
        held = 0
        for event in errand.events:
            made = self._entry(event, errand, self._end + len(entries))
            if isinstance(made, Refusal):
                return made, ()
            entries.append(made)
            held += len(made.event)
            if held >= _BREATH_BYTES:
                held = 0
                self._breathe()
        self._store.append(entries)
        self._end += len(entries)
        return Recorded(len(entries)), [_row(errand.member, entry) for entry in entries]

    def _entry(self, event: dict[str, Any], errand: Record, offset: int) -> ActivityEntry | Refusal:
        if nested_deeper(event, self._limits.nesting_max):
            return Refusal(Code.INVALID_REQUEST, f"an event is nested deeper than {self._limits.nesting_max} levels")
        try:
            encoded = ledger.encode_activity(redact(event))
            kind = str(event.get("kind", ""))[:_KIND_CHARS_MAX]
            kind.encode()
        except (UnicodeEncodeError, TypeError, RecursionError, OverflowError) as error:
            return Refusal(Code.INVALID_REQUEST, f"an event cannot be written down: {error}")
        most = self._limits.activity_event_bytes_max
        if len(encoded) > most:
            return Refusal(Code.MESSAGE_TOO_LARGE, f"an event is larger than {most} bytes")
        return ActivityEntry(offset, errand.at_ms, errand.number, kind, _time(event, errand.at_ms), encoded)


def _time(event: dict[str, Any], at_ms: int) -> int:
    """When an event happened: as it says, if that is a time."""
    ts = event.get("ts")
    return ts if isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= _NUMBER_MAX else at_ms


def _row(member: MemberName, entry: ActivityEntry) -> ActivityRow:
    return ActivityRow(entry.offset, member, entry.kind, entry.ts_ms, entry.at_ms, entry.event)
