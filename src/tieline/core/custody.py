"""Custody: deliveries that somebody outside the hub can take as well, and whoever is first has them.

A local agent's unread messages are files that any of its processes may claim. Before the hub settles such a delivery,
for whatever reason and session, the member's custodian must win it. `needs` finds what has to be won before a command
is decided; whoever drives the broker asks for that, and puts the answers into `Broker.answers`. What was won may then
be settled; what was lost was taken, which acknowledges it. The custodian lets go of what it won after the commit, so
that a crash in between finds it and can give it back. What was won and is not settled after all is given back.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract.delivery import SETTLED, State
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.core import evidence, membership, reading, staleness, wire_ids
from tieline.core.directory import Account, Session

if TYPE_CHECKING:
    from tieline.core.broker import Broker

EVIDENCE = "taken outside the hub"

_PAGE = 256
"""Deliveries that are asked for at once."""

Ranges = Sequence[tuple[int, int]]

Answers = dict[tuple[MemberName, int], bool | None]
"""By member and key: true for what was won, false for what was taken, `None` where that cannot be told."""


Wanted = tuple[MemberName, list[tuple[int, Message]]]
"""A member, and deliveries of it that have to be won, by key."""


def needs(broker: "Broker", commands: Sequence[c.Command], answers: Answers) -> Wanted | None:
    """Deliveries of one member that have to be won before these commands are decided, a page of them at most."""
    for command in commands:
        if isinstance(command, c.Send) and command.content.reply_to is None and command.content.supersedes is None:
            continue
        for account, ranges, session in _settles(broker, command):
            if _is_kept(broker, account, session):
                wanted = _unanswered(broker, account, ranges, answers)
                if wanted:
                    return account.name, wanted
    return None


def win(broker: "Broker", account: Account, ranges: Ranges, state: State, session: Session | None, why: str) -> Ranges:
    """Those of the deliveries that the hub may settle; the ones that were taken outside are acknowledged here."""
    if not _is_kept(broker, account, session):
        return ranges
    # A held delivery was not put outside yet.
    won = [(key, key) for first, last in ranges for key in _held(account, first, last)]
    taken: list[tuple[int, int]] = []
    for key in _unsettled(account, ranges):
        if (account.name, key) not in broker.answers:
            if session is None:
                # A chore, or what came between the question and now: it is done when the custodian has answered.
                broker.outcome.unsettled.append(c.Settle(account.name, key, state, why))
            continue
        answer = broker.answers[account.name, key]
        if answer:
            won.append((key, key))
            broker.won.append((account.name, key))
        elif answer is not None:
            taken.append((key, key))
    if taken:
        keeper = broker.directory.sessions.get(broker.custodians[account.name])
        broker.climb(account, taken, State.ACKED, session=keeper, evidence=EVIDENCE)
    return won


def settle(broker: "Broker", command: c.Settle) -> None:
    """Do now what had to wait for the custodian."""
    account = broker.directory.find(command.member)
    if account is not None and (account.name, command.key) in broker.answers:
        broker.move(account, ((command.key, command.key),), command.state, evidence=command.evidence)


def unused(broker: "Broker", answers: Answers) -> list[tuple[MemberName, int]]:
    """What was won and not settled: whoever is first may have it again."""
    found = []
    for (name, key), answer in answers.items():
        account = broker.directory.find(name)
        if answer and account is not None and account.inbox.entry(key) is not None:
            found.append((name, key))
    return found


def _is_kept(broker: "Broker", account: Account, session: Session | None) -> bool:
    """True if a custodian must be asked: there is one, and it is not itself who settles."""
    keeper = broker.custodians.get(account.name)
    return keeper is not None and (session is None or session.id != keeper)


def _settles(broker: "Broker", command: c.Command) -> Iterator[tuple[Account, Ranges, Session | None]]:
    """The deliveries that a command may settle, and for which session."""
    if isinstance(command, c.Settle):
        account = broker.directory.find(command.member)
        if account is not None:
            yield account, ((command.key, command.key),), None
        return
    if isinstance(command, c.RemoveMember):
        account = broker.directory.find(command.name)
        if account is not None and not isinstance(membership.manager(broker, command.session), Refusal):
            yield account, ((account.inbox.first_unsettled, account.inbox.next_key - 1),), None
        return
    if not isinstance(command, c.Advance | c.Discard | c.AcknowledgeIds | c.Claim | c.Send):
        return
    session = broker.directory.sessions.get(command.session)
    if session is None:
        return
    if isinstance(command, c.Send):
        yield from _settled_by_sending(broker, command, session)
    elif session.account is not None and _is_kept(broker, session.account, session):
        yield session.account, _settled_by_asking(broker, command, session, session.account), session


def _settled_by_asking(
    broker: "Broker", command: c.Advance | c.Discard | c.AcknowledgeIds | c.Claim, session: Session, account: Account
) -> Ranges:
    match command:
        case c.Advance():
            return command.ranges[: broker.limits.ranges_max] if command.state in SETTLED else ()
        case c.Discard():
            return command.ranges[: broker.limits.ranges_max]
        case c.AcknowledgeIds():
            return wire_ids.deliveries(broker, command, session, account)
        case c.Claim():
            delivery = reading.unsettled_delivery(broker, account, command.message_id)
            return () if delivery is None else ((delivery.key, delivery.key),)


def _settled_by_sending(
    broker: "Broker", command: c.Send, session: Session
) -> Iterator[tuple[Account, Ranges, Session | None]]:
    """A reply may acknowledge what it answers; a correction ends what it takes the place of."""
    content, account = command.content, session.account
    if content.reply_to is not None and account is not None:
        key = evidence.answered(broker, account, content.reply_to)
        if key is not None:
            yield account, ((key, key),), session
    if content.supersedes is not None:
        route = staleness.find_superseded(broker, content.supersedes, session)
        if not isinstance(route, Refusal):
            for number, key in zip(route.numbers, route.keys, strict=True):
                recipient = broker.directory.accounts.get(number)
                if recipient is not None:
                    yield recipient, ((key, key),), None


def _held(account: Account, first: int, last: int) -> Iterator[int]:
    if account.inbox.held:
        yield from (entry.key for entry in account.inbox.held_entries() if first <= entry.key <= last)


def _unsettled(account: Account, ranges: Ranges) -> Iterator[int]:
    """Keys of the unsettled deliveries in these ranges that are not held."""
    for first, last in ranges:
        after = first - 1
        while after < last:
            entries, through = account.inbox.read(after, _PAGE)
            yield from (entry.key for entry in entries if entry.key <= last)
            if through + 1 >= account.inbox.next_key:
                break
            after = through


def _unanswered(broker: "Broker", account: Account, ranges: Ranges, answers: Answers) -> list[tuple[int, Message]]:
    """A page of the unsettled deliveries in these ranges that were not asked for yet, with their messages."""
    offsets: dict[int, int] = {}
    for key in _unsettled(account, ranges):
        offset = account.inbox.offset(key)
        if (account.name, key) not in answers and offset is not None:
            offsets[key] = offset
            if len(offsets) == _PAGE:
                break
    messages, considered = broker.store.messages(list(offsets.values()), broker.limits.page_bytes_max)
    return [(key, messages[offset]) for key, offset in list(offsets.items())[:considered] if offset in messages]
