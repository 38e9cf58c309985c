"""Rules of who may read what: inboxes, receipts, history, the logs."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.delivery import HELD, REMEDY, SLOWED, Delivery, Receipt, State, Step
from tieline.contract.identifiers import GENERAL, ChannelName, MessageId, SessionId
from tieline.contract.member import Presence
from tieline.contract.message import Message
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Channels, Fetched, History, LogRows, Receipts, Reply, Roster
from tieline.core.channels import IMPLICIT
from tieline.core.directory import Account, Session
from tieline.core.escalation import way_of
from tieline.core.inbox import Entry, Inbox
from tieline.core.journal import ReadRows
from tieline.core.objectives import thread
from tieline.core.outcome import Deferred, Followed
from tieline.core.store import ACTIVITY, INTEGER_MAX, MAIN, Chronicle, Route, Span

if TYPE_CHECKING:
    from tieline.core.broker import Broker

READ_LOG = "log.read"


def fetch(broker: "Broker", command: c.Fetch) -> Reply:
    """Unsettled deliveries of the session's member."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if session.account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member has an inbox")
    limit = max(1, min(command.limit, broker.limits.read_max))
    inbox = session.account.inbox
    entries, through = _entries(inbox, command, limit)
    if command.replay:
        again = [
            Entry(item.key, item.offset, item.stream_seq, State.ACKED)
            for item in command.replay
            if command.after < item.key <= through
        ]
        entries = sorted([*entries, *again], key=lambda entry: entry.key)
        if len(entries) > limit:
            through = entries[limit].key - 1
            del entries[limit:]
    offsets = [entry.offset for entry in entries]
    messages, considered = broker.store.messages(offsets, broker.limits.page_bytes_max)
    if considered < len(entries):
        through = entries[considered - 1].key if command.keys else entries[considered].key - 1
    deliveries = tuple(
        Delivery(entry.key, entry.stream_seq, entry.state, messages[entry.offset])
        for entry in entries
        if entry.offset in messages and messages[entry.offset].reaches(session.protocol)
    )
    held_in = broker.holds.names_of(session.account) if inbox.held else ()
    return Fetched(deliveries, through, through + 1 >= inbox.next_key, inbox.held, held_in)


def _entries(inbox: Inbox, command: c.Fetch, limit: int) -> tuple[list[Entry], int]:
    """The deliveries that are asked for, by their keys or by a place to start from."""
    if not command.keys:
        return inbox.read(command.after, limit, unoffered_until=command.unoffered_until, unseen=command.unseen)
    some = command.keys[:limit]
    found = (inbox.entry(key) for key in some if not inbox.is_held(key))
    return [entry for entry in found if entry is not None], some[-1]


def unsettled_delivery(broker: "Broker", account: Account, message_id: MessageId) -> Delivery | None:
    """The unsettled delivery of a message to a member, unless it is held."""
    found = broker.store.find_message(message_id)
    if found is None:
        return None
    message, _ = found
    key = account.inbox.find(message.offset)
    entry = account.inbox.entry(key) if key is not None and not account.inbox.is_held(key) else None
    return Delivery(entry.key, entry.stream_seq, entry.state, message) if entry else None


def follow(broker: "Broker", command: c.Follow) -> Reply:
    """Receipts now, and every later step as it happens."""
    found = _visible(broker, command.session, command.message_id)
    if isinstance(found, Refusal):
        return found
    session, message, route = found
    for number, key in zip(route.numbers, route.keys, strict=True):
        account = broker.directory.accounts.get(number)
        if account is None or not account.sessions or account.inbox.entry(key) is None or command.until < State.SEEN:
            continue
        if number in broker.escalation.reaches:
            # A wire that cannot acknowledge is one way of several.
            continue
        if not any(open_session.acknowledges for open_session in account.sessions):
            return Refusal(
                Code.NEVER_ACKNOWLEDGED,
                f"{account.member.name} is connected only through {account.sessions[0].protocol}, whose wire has no "
                f"acknowledgement: the delivery will stay at 'offered'",
            )
    unsettled = {
        number
        for number, key in zip(route.numbers, route.keys, strict=True)
        if number in broker.directory.accounts and broker.directory.accounts[number].inbox.entry(key) is not None
    }
    if unsettled:
        own = sum(session.id in other.sessions for other in broker.followers.values())
        if own >= broker.limits.session_follows_max:
            return Refusal(Code.TOO_MANY_FOLLOWED, f"this session follows {own} unsettled messages already")
        if len(broker.followers) >= broker.limits.follows_max and message.offset not in broker.followers:
            return Refusal(
                Code.TOO_MANY_FOLLOWED, f"{broker.limits.follows_max} unsettled messages are followed already"
            )
        followed = broker.followers.setdefault(message.offset, Followed(message.id, set(), unsettled))
        if session.id not in followed.sessions:
            followed.sessions.add(session.id)
            broker.undo.append(partial(_unfollow, broker, message.offset, session.id))
    return _receipts(broker, message, route)


def _unfollow(broker: "Broker", offset: int, session: SessionId) -> None:
    followed = broker.followers.get(offset)
    if followed is not None:
        followed.sessions.discard(session)
        if not followed.sessions:
            del broker.followers[offset]


def receipts(broker: "Broker", command: c.ReadReceipts) -> Reply:
    """What became of a message."""
    found = _visible(broker, command.session, command.message_id)
    if isinstance(found, Refusal):
        return found
    return _receipts(broker, found[1], found[2], command.after, command.members)


def _visible(
    broker: "Broker", session_id: SessionId, message_id: MessageId
) -> tuple[Session, Message, Route] | Refusal:
    """A message that the session sent or received, or finds in the log; others learn nothing of it."""
    session = broker.session(session_id)
    if isinstance(session, Refusal):
        return session
    found = broker.store.find_message(message_id)
    if found is not None:
        message, route = found
        account = session.account
        received = account is not None and account.number in route.numbers
        if session.may(READ_LOG) or received or said(session, message):
            return session, message, route
    return Refusal(Code.UNKNOWN_MESSAGE, f"no message {message_id!r} was sent by or to {session.speaker}")


def said(session: Session, message: Message) -> bool:
    """Whether this session's member sent it; a former member of the same name is another."""
    return message.sender == session.speaker and (session.account is None or message.offset >= session.account.since)


def _receipts(
    broker: "Broker", message: Message, route: Route, after: str = "", members: Collection[str] = ()
) -> Receipts:
    # What a session has just settled may still wait for its row in the log.
    broker.write_moves()
    accounts = broker.directory.accounts
    names: dict[int, str] = {number: accounts[number].name for number in route.numbers if number in accounts}
    names |= broker.store.names([number for number in route.numbers if number not in names])
    wanted = sorted(
        (names[number], number, key)
        for number, key in zip(route.numbers, route.keys, strict=True)
        if names[number] > after and (not members or names[number] in members)
    )
    page = wanted[: broker.limits.receipts_max]
    signature = (f"signature {message.signature}",) if message.signature else ()
    evidence = "; ".join((*signature, *message.content.notes))
    pending = Step(State.PENDING, message.sent_at_ms, protocol=message.protocol, evidence=evidence)
    made = []
    for name, number, key in page:
        steps = [pending, *broker.store.steps(number, key)]
        state = steps[-1].state
        fallen = ""
        for fall in broker.store.falls(number, key, key):
            fallen = fall.way
            # Nothing falls that was seen, so whatever shows that comes after it, be it in the same millisecond.
            place = sum(step.state < State.SEEN and step.at_ms <= fall.at_ms for step in steps)
            evidence = f"no evidence by {fall.after}"
            steps.insert(place, Step(steps[place - 1].state, fall.at_ms, evidence=evidence, way=fall.way))
        way = way_of(broker, number, key, fallen)
        held = _hold_of(broker, number, key, steps)
        made.append(Receipt(name, key, state, tuple(steps if held else map(_held_no_more, steps)), way, held))
    return Receipts(message.id, tuple(made), len(page) < len(wanted))


def _hold_of(broker: "Broker", number: int, key: int, steps: Sequence[Step]) -> str:
    """Why a delivery is held, if it is."""
    account = broker.directory.accounts.get(number)
    if account is None or not account.inbox.is_held(key):
        return ""
    return next((step.evidence for step in reversed(steps) if step.state is State.PENDING), "")


def _held_no_more(step: Step) -> Step:
    """A step of a delivery that is not held: if it was, no command is needed any more to end that."""
    if step.state is not State.PENDING or not step.evidence.startswith((HELD, SLOWED)):
        return step
    return replace(step, evidence=f"was {step.evidence.partition(REMEDY)[0]}")


def members(broker: "Broker", command: c.ListMembers) -> Reply:
    """All members."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    roster = broker.directory.roster(command.name, broker.now_ms)
    if session.may(MEMBERS_MANAGE):
        return Roster(roster)
    return Roster(tuple(_without_instructions(presence, session) for presence in roster))


def _without_instructions(presence: Presence, session: Session) -> Presence:
    """A member as others see it: what it is told to do is between it and those who manage members."""
    member = presence.member
    if not member.instructions or member.name == session.speaker:
        return presence
    return replace(presence, member=replace(member, instructions=""))


def channels(broker: "Broker", command: c.ListChannels) -> Reply:
    """All channels."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    names = sorted({GENERAL, *broker.directory.channels}) if command.channel is None else [command.channel]
    return Channels(tuple(map(broker.channels.describe, names)))


def history(broker: "Broker", command: c.ReadHistory) -> Reply:
    """Messages that the session's member may see."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    account = session.account
    if command.everything and not session.may(READ_LOG):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {READ_LOG}")
    if account is None and not session.operator:
        return Refusal(Code.FORBIDDEN, "history is for members")
    if command.everything:
        account = None
    seen = view_of(broker, account, None if command.forward else command.peer, command.limit)
    # No message has a higher offset, and a number may be larger than any store can look for.
    end = broker.ledger.end
    since = max(min(command.after, end) + 1, seen.since)
    before = None if command.before is None else max(0, min(command.before, end))
    chronicle = replace(seen, since=since, before=before, forward=command.forward)
    # An operator that speaks as a member sees what that member sees.
    return History(tuple(_past(broker, session, chronicle, everything=account is None)))


def view_of(broker: "Broker", account: Account | None, peer: str | None, limit: int) -> Chronicle:
    """All that a member may see, or that there is, with a peer or at a place."""
    places = None if peer is None or _is_name(peer) else _places(broker, account, peer)
    return Chronicle(
        reader=account.member.name if account else None,
        since=account.since if account else 0,
        spans=(Span("*"), Span(f"@{account.name}"), *broker.channels.spans_of(account)) if account else (),
        threads=account.number if account else None,
        all_threads=account is not None and MEMBERS_MANAGE in account.member.permissions,
        places=places,
        peer=peer if places is None else None,
        before=None,
        limit=max(1, min(limit, broker.limits.read_max)),
        bytes_max=broker.limits.page_bytes_max,
    )


_PAGES_MAX = 16
"""Pages read for one answer, when what others may not see fills them."""


def _past(broker: "Broker", session: Session, chronicle: Chronicle, *, everything: bool) -> list[Message]:
    """A page without what is signed badly, but for its own sender and who sees all, and sessions of its protocol."""
    found: list[Message] = []
    for _ in range(_PAGES_MAX):
        page = broker.store.history(chronicle)
        shown = [one for one in page if everything or one.reaches(session.protocol) or said(session, one)]
        found += shown
        if len(shown) == len(page):
            break
        limit, last = max(1, chronicle.limit - len(shown)), page[-1].offset
        if chronicle.forward:
            chronicle = replace(chronicle, since=last + 1, limit=limit)
        else:
            chronicle = replace(chronicle, before=last, limit=limit)
    return found


def _is_name(peer: str) -> bool:
    return not peer.startswith(("#", "chan:", "obj:"))


def _places(broker: "Broker", account: Account | None, peer: str) -> Sequence[Span]:
    """Where what was said in a channel or thread stands; nowhere, if the reader is not in it."""
    if peer.startswith("obj:"):
        row = broker.objectives.find(peer.removeprefix("obj:"))
        seen = row is not None and (account is None or account.number in thread(row, broker.directory))
        return (Span(peer),) if seen else ()
    name = ChannelName(peer.removeprefix("#").removeprefix("chan:"))
    if account is None and peer.startswith("#"):
        return (Span("*"), Span(peer)) if name == GENERAL else (Span(peer),)
    if name in IMPLICIT:
        spans = [span for span in broker.channels.spans_of(account) if span.target == f"#{name}"] if account else []
        # Everybody is in it, so what is said to everybody is said there.
        return [Span("*"), *spans] if spans and name == GENERAL else spans
    channel = broker.channels.named(name) if peer.startswith("#") else broker.channels.find(name)
    if channel is None or not (account is None or account.number in channel.subscriptions):
        return ()
    return channel.row.spans


def log(broker: "Broker", command: c.ReadLog) -> Reply | Deferred:
    """Committed rows of a log."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if not session.may(READ_LOG):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {READ_LOG}")
    if command.log not in (MAIN, ACTIVITY):
        return Refusal(Code.UNKNOWN_LOG, f"there is no log {command.log!r}; there are {MAIN} and {ACTIVITY}")
    start, limit = max(0, min(command.start, INTEGER_MAX)), max(1, min(command.limit, broker.limits.read_max))
    if command.log == ACTIVITY:
        return Deferred(ReadRows(start, limit))
    rows, end = broker.store.read_log(start, limit)
    return LogRows(tuple(rows), end)
