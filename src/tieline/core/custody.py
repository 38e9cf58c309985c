"""Custody: deliveries that somebody outside the hub can take as well, and whoever is first has them.

A local agent's unread messages are files that any of its processes may claim. Before the hub settles such a delivery,
for whatever reason and session, the member's custodian must win it; what it lost was taken, which acknowledges it. Won
deliveries are let go after the commit, so that a crash in between finds them and can give them back; if the commit
fails, they are given back at once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tieline.contract.delivery import State
from tieline.contract.hub import Custodian
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.core.directory import Account, Session
from tieline.core.outcome import Fault

if TYPE_CHECKING:
    from tieline.core.broker import Broker
    from tieline.core.memory import Memory

EVIDENCE = "taken outside the hub"

_PAGE = 256
"""Deliveries whose messages are read at once."""

Ranges = Sequence[tuple[int, int]]


def win(broker: "Broker", account: Account, ranges: Ranges, session: Session | None) -> Ranges:
    """Those of the deliveries that the hub may settle; the ones that were taken outside are acknowledged here."""
    custodian = broker.custodians.get(account.name)
    if custodian is None or (session is not None and session.id == custodian.session):
        return ranges
    # A held delivery was not put outside yet.
    held = [(key, key) for first, last in ranges for key in _held(account, first, last)]
    won: list[tuple[int, int]] = held
    taken: list[tuple[int, int]] = []
    for key, message in _unsettled(broker, account, ranges):
        # A rename outside cannot be undone by forgetting it.
        broker.changed = True
        outcome = custodian.win(message, key)
        if outcome:
            won.append((key, key))
            broker.won.append((account.name, key))
        elif outcome is not None:
            taken.append((key, key))
    if taken:
        keeper = broker.directory.sessions.get(custodian.session)
        broker.climb(account, taken, State.ACKED, session=keeper, evidence=EVIDENCE)
    return won


def _held(account: Account, first: int, last: int) -> Iterator[int]:
    if account.inbox.held:
        yield from (entry.key for entry in account.inbox.held_entries() if first <= entry.key <= last)


def _unsettled(broker: "Broker", account: Account, ranges: Ranges) -> Iterator[tuple[int, Message]]:
    """The unsettled deliveries in these ranges, with their messages."""
    for first, last in ranges:
        after = first - 1
        while after < last:
            entries, through = account.inbox.read(after, _PAGE)
            entries = [entry for entry in entries if entry.key <= last]
            offsets = [entry.offset for entry in entries]
            messages, considered = broker.store.messages(offsets, broker.limits.page_bytes_max)
            for entry in entries[:considered]:
                if entry.offset in messages:
                    yield entry.key, messages[entry.offset]
            if considered < len(entries):
                through = entries[considered].key - 1
            elif through + 1 >= account.inbox.next_key:
                break
            after = through


def finish(memory: "Memory") -> None:
    """What was won is durably settled: the custodians may let go of it."""
    won, memory.won = memory.won, []
    _tell(memory, won, lambda custodian, keys: custodian.finish(keys))


def give_back(memory: "Memory", won: Sequence[tuple[MemberName, int]]) -> None:
    """What was won is not settled after all: whoever is first may have it again."""
    _tell(memory, won, lambda custodian, keys: custodian.give_back(keys))


def _tell(
    memory: "Memory", won: Sequence[tuple[MemberName, int]], tell: Callable[[Custodian, Sequence[int]], None]
) -> None:
    """A custodian that fails must not undo what is committed, nor keep the others from hearing."""
    keys: dict[MemberName, list[int]] = {}
    for name, key in won:
        keys.setdefault(name, []).append(key)
    for name, theirs in keys.items():
        custodian = memory.custodians.get(name)
        if custodian is None:
            continue
        try:
            tell(custodian, theirs)
        except Exception as error:  # noqa: BLE001 - see above
            refusal = Refusal(Code.INTERNAL_ERROR, "a custodian failed")
            memory.faults.append(Fault(0, f"the custodian of {name}", error, refusal))
