"""Reading: the rules for reading inboxes, receipts, history, members and channels."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.delivery import HELD, REMEDY, SLOWED, Delivery, Receipt, State, Step
from tieline.contract.identifiers import GENERAL, ChannelName, MessageId
from tieline.contract.keys import join_keys
from tieline.contract.member import Presence
from tieline.contract.message import Message
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Channels as ChannelList
from tieline.contract.reply import Fetched, History, Receipts, Reply, Roster
from tieline.core.batch import Batch
from tieline.core.channels import IMPLICIT, Channels
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Directory, Session
from tieline.core.escalation import Escalation
from tieline.core.followers import Followers
from tieline.core.holds import Holds
from tieline.core.inbox import Entry, Inbox
from tieline.core.objectives import Objectives, thread
from tieline.core.rules import Rules, decides
from tieline.core.store import DeliveryRoute, HistoryQuery, Span

READ_LOG = "log.read"


class ReadingRules(Rules):
    """Rules for the commands that read inboxes, receipts, history, members and channels."""

    def __init__(
        self,
        batch: Batch,
        directory: Directory,
        channels: Channels,
        objectives: Objectives,
        escalation: Escalation,
        followers: Followers,
        holds: Holds,
        deliveries: Deliveries,
    ) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._channels = channels
        self._objectives = objectives
        self._escalation = escalation
        self._followers = followers
        self._holds = holds
        self._deliveries = deliveries

    @decides(c.Fetch)
    def fetch(self, session: Session, command: c.Fetch) -> Reply:
        """Reply with a page of the inbox of the session's member.

        The page has deliveries that are not settled, that is, not acked, expired or dead.
        """
        if session.account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member has an inbox")
        limit = max(1, min(command.limit, self._limits.read_max))
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
        bytes_max = self._limits.page_bytes_max
        if command.bytes_max is not None:
            bytes_max = min(bytes_max, command.bytes_max)
        messages, considered = self._store.messages(offsets, bytes_max)
        if considered < len(entries):
            through = entries[considered - 1].key if command.keys else entries[considered].key - 1
        deliveries = tuple(
            Delivery(entry.key, entry.stream_seq, entry.state, messages[entry.offset])
            for entry in entries
            if entry.offset in messages and messages[entry.offset].reaches(session.protocol)
        )
        held_in = self._holds.names_of(session.account) if inbox.held else ()
        return Fetched(
            deliveries=deliveries,
            through=through,
            complete=through + 1 >= inbox.next_key,
            held=inbox.held,
            held_in=held_in,
        )

    @decides(c.Follow)
    def follow(self, session: Session, command: c.Follow) -> Reply:
        """Reply with the receipts of a message, and from now on inform the session about every status change."""
        found = self._visible(session, command.message_id)
        if isinstance(found, Refusal):
            return found
        message, route = found
        for number, key in zip(route.numbers, route.keys, strict=True):
            account = self._directory.accounts.get(number)
            if (
                account is None
                or not account.sessions
                or account.inbox.entry(key) is None
                or command.until < State.SEEN
            ):
                continue
            if number in self._escalation.reaches:
                # This member has escalation ways, so a wire without acknowledgement is only one of its ways.
                continue
            if not any(open_session.acknowledges for open_session in account.sessions):
                return Refusal(
                    Code.NEVER_ACKNOWLEDGED,
                    f"{account.name} is connected only through {account.sessions[0].protocol}, whose wire has no "
                    f"acknowledgement: the delivery will stay at 'offered'",
                )
        unsettled = {
            number
            for number, key in zip(route.numbers, route.keys, strict=True)
            if number in self._directory.accounts and self._directory.accounts[number].inbox.entry(key) is not None
        }
        if unsettled:
            refusal = self._followers.follow(session, message, unsettled)
            if refusal is not None:
                return refusal
        return self._receipts(message, route)

    @decides(c.ReadReceipts)
    def receipts(self, session: Session, command: c.ReadReceipts) -> Reply:
        """Reply with the receipts of a message: the state and all status changes of each delivery."""
        found = self._visible(session, command.message_id)
        if isinstance(found, Refusal):
            return found
        return self._receipts(*found, command.after, command.members)

    def _visible(self, session: Session, message_id: MessageId) -> tuple[Message, DeliveryRoute] | Refusal:
        """Return a message and its deliveries (route), if the session may see the message; otherwise a refusal.

        The session's member must have sent or received the message, or must have the permission `log.read`. The refusal
        says that the message is unknown.
        """
        found = self._store.find_message(message_id)
        if found is not None:
            message, route = found
            account = session.account
            received = account is not None and account.number in route.numbers
            if session.may(READ_LOG) or received or session.said(message):
                return message, route
        return Refusal(Code.UNKNOWN_MESSAGE, f"no message {message_id!r} was sent by or to {session.speaker}")

    def _receipts(
        self, message: Message, route: DeliveryRoute, after: str = "", members: Collection[str] = ()
    ) -> Receipts:
        # Moves of this batch may not be in the log yet, so write them first.
        self._batch.write_moves()
        accounts = self._directory.accounts
        names: dict[int, str] = {number: accounts[number].name for number in route.numbers if number in accounts}
        names |= self._store.names([number for number in route.numbers if number not in names])
        wanted = sorted(
            (names[number], number, key)
            for number, key in zip(route.numbers, route.keys, strict=True)
            if names[number] > after and (not members or names[number] in members)
        )
        page = wanted[: self._limits.receipts_max]
        signature = (f"signature {message.signature}",) if message.signature else ()
        evidence = "; ".join((*signature, *message.content.notes))
        pending = Step(State.PENDING, message.sent_at_ms, protocol=message.protocol, evidence=evidence)
        made = []
        for name, number, key in page:
            steps = [pending, *self._store.steps(number, key)]
            state = steps[-1].state
            fallen = ""
            for fall in self._store.falls(number, key, key):
                fallen = fall.way
                # Escalations precede `seen`: sort them before it, even within one millisecond.
                place = sum(step.state < State.SEEN and step.at_ms <= fall.at_ms for step in steps)
                evidence = f"no evidence by {fall.after}"
                steps.insert(place, Step(steps[place - 1].state, fall.at_ms, evidence=evidence, way=fall.way))
            way = self._escalation.way_of(number, key, fallen)
            held = self._hold_of(number, key, steps)
            made.append(Receipt(name, key, state, tuple(steps if held else map(_held_no_more, steps)), way, held))
        return Receipts(message.id, tuple(made), len(page) < len(wanted))

    def _hold_of(self, number: int, key: int, steps: Sequence[Step]) -> str:
        """Return the reason why a delivery is held (not delivered yet), or an empty string if it is not held."""
        account = self._directory.accounts.get(number)
        if account is None or not account.inbox.is_held(key):
            return ""
        return next((step.evidence for step in reversed(steps) if step.state is State.PENDING), "")

    @decides(c.ListMembers)
    def members(self, session: Session, command: c.ListMembers) -> Reply:
        """Reply with all members, or with the member that the command names."""
        roster = self._directory.roster(command.name, self._batch.now_ms)
        if session.may(MEMBERS_MANAGE):
            return Roster(roster)
        return Roster(tuple(_without_instructions(presence, session) for presence in roster))

    @decides(c.ListChannels)
    def channels(self, session: Session, command: c.ListChannels) -> Reply:
        """Reply with all channels, or with the channel that the command names."""
        names = sorted({GENERAL, *self._directory.channels}) if command.channel is None else [command.channel]
        return ChannelList(tuple(map(self._channels.describe, names)))

    @decides(c.ReadHistory)
    def history(self, session: Session, command: c.ReadHistory) -> Reply:
        """Reply with a page of past messages that the session's member may see."""
        account = session.account
        refusal = session.refuse_without(READ_LOG) if command.everything else None
        if refusal is not None:
            return refusal
        if account is None and not session.operator:
            return Refusal(Code.FORBIDDEN, "history is for members")
        if command.everything:
            account = None
        after = command.after
        if command.after_id is not None:
            known = self._store.find_message(command.after_id)
            if known is None:
                return Refusal(Code.UNKNOWN_MESSAGE, f"there is no message {command.after_id!r} any more")
            after = known[0].offset
        seen: HistoryQuery | Refusal
        if command.member is not None:
            seen = self._about(command)
        else:
            seen = self.view_of(account, None if command.forward else command.peer, command.limit)
        if isinstance(seen, Refusal):
            return seen
        # Clamp to the end of the log, because a client may give a number that is too large for the store.
        end = self._batch.ledger.end
        since = max(min(after, end) + 1, seen.since)
        before = None if command.before is None else max(0, min(command.before, end))
        history_query = replace(seen, since=since, before=before, forward=command.forward)
        offered_to = account if command.offers else None
        # An operator that acts as a member sees only the messages that this member may see.
        found = self._past(session, history_query, everything=account is None, offered_to=offered_to)
        if offered_to is not None:
            self._offer(session, offered_to, found)
        return History(tuple(found))

    def _offer(self, session: Session, account: Account, messages: Sequence[Message]) -> None:
        """Mark a member's deliveries of these messages as offered, because the messages are sent to the session."""
        keys = [key for one in messages if (key := account.inbox.find(one.offset)) is not None]
        if keys:
            self._deliveries.move(account, join_keys(keys), State.OFFERED, session=session)

    def _about(self, command: c.ReadHistory) -> HistoryQuery | Refusal:
        """Return the query for the messages of the member that the command names.

        These are the messages that it sent, that were sent to it alone, and that are in the threads of its objectives.
        """
        if not command.everything:
            return Refusal(Code.INVALID_REQUEST, "the messages of a member need 'everything'")
        name = command.member or ""
        account = self._directory.find(name)
        if account is None:
            return self._directory.unknown_member(name)
        nothing = self.view_of(None, None, command.limit)
        return replace(nothing, reader=account.name, spans=(Span(f"@{account.name}"),), threads=account.number)

    def view_of(self, account: Account | None, peer: str | None, limit: int) -> HistoryQuery:
        """Return the query for the messages that a member may see. Without a member, it is for all messages.

        `peer` limits the query to messages with one other member, in one channel, or about one objective.
        """
        places = None if peer is None or _is_name(peer) else self._places(account, peer)
        return HistoryQuery(
            reader=account.member.name if account else None,
            since=account.since if account else 0,
            spans=(Span("*"), Span(f"@{account.name}"), *self._channels.spans_of(account)) if account else (),
            threads=account.number if account else None,
            all_threads=account is not None and MEMBERS_MANAGE in account.member.permissions,
            places=places,
            peer=peer.removeprefix("@") if peer is not None and places is None else None,
            before=None,
            limit=max(1, min(limit, self._limits.read_max)),
            bytes_max=self._limits.page_bytes_max,
        )

    def _past(
        self, session: Session, history_query: HistoryQuery, *, everything: bool, offered_to: Account | None
    ) -> list[Message]:
        """Return a page of past messages, without messages that the session may not get.

        A message with a bad signature is left out, unless `everything` is set, or the session's member sent the
        message, or the message came through the protocol of the session. A message is also left out if its delivery to
        the member `offered_to` is held (not to be delivered yet).
        """
        found: list[Message] = []
        for _ in range(_PAGES_MAX):
            page = self._store.history(history_query)
            shown = [
                one
                for one in page
                if (everything or one.reaches(session.protocol) or session.said(one))
                and not (offered_to is not None and offered_to.inbox.is_held_at(one.offset))
            ]
            found += shown
            if len(shown) == len(page):
                break
            limit, last = max(1, history_query.limit - len(shown)), page[-1].offset
            if history_query.forward:
                history_query = replace(history_query, since=last + 1, limit=limit)
            else:
                history_query = replace(history_query, before=last, limit=limit)
        return found

    def _places(self, account: Account | None, peer: str) -> Sequence[Span]:
        """Return the spans (parts of the log) with the messages of the channel or thread `peer`.

        The result is empty if the member is not in the channel or thread.
        """
        if peer.startswith("obj:"):
            row = self._objectives.find(peer.removeprefix("obj:"))
            seen = row is not None and (account is None or account.number in thread(row, self._directory))
            return (Span(peer),) if seen else ()
        name = ChannelName(peer.removeprefix("#").removeprefix("chan:"))
        if account is None and peer.startswith("#"):
            return (Span("*"), Span(peer)) if name == GENERAL else (Span(peer),)
        if name in IMPLICIT:
            spans = [span for span in self._channels.spans_of(account) if span.target == f"#{name}"] if account else []
            # Everybody is in #general, so messages to everybody belong to #general too.
            return [Span("*"), *spans] if spans and name == GENERAL else spans
        channel = self._channels.named(name) if peer.startswith("#") else self._channels.find(name)
        if channel is None or not (account is None or account.number in channel.subscriptions):
            return ()
        return channel.row.spans


def _entries(inbox: Inbox, command: c.Fetch, limit: int) -> tuple[list[Entry], int]:
    """Return the deliveries that the command asks for, and the last key that was considered.

    The command lists keys, or asks for all deliveries after a key.
    """
    if not command.keys:
        return inbox.read(command.after, limit, unoffered_until=command.unoffered_until, unseen=command.unseen)
    some = command.keys[:limit]
    found = (inbox.entry(key) for key in some if not inbox.is_held(key))
    return [entry for entry in found if entry is not None], some[-1]


def _held_no_more(step: Step) -> Step:
    """Return the step with a new reason text, if the step says that a delivery is held.

    Use this for a delivery that is no longer held. The new text says "was held", and does not name the command that
    releases the delivery.
    """
    if step.state is not State.PENDING or not step.evidence.startswith((HELD, SLOWED)):
        return step
    return replace(step, evidence=f"was {step.evidence.partition(REMEDY)[0]}")


def _without_instructions(presence: Presence, session: Session) -> Presence:
    """Return the member without its instructions, unless the session belongs to this member."""
    member = presence.member
    if not member.instructions or member.name == session.speaker:
        return presence
    return replace(presence, member=replace(member, instructions=""))


_PAGES_MAX = 16
"""Largest number of pages that are read for one answer.

If messages of a page are left out, the next page is read to fill the answer.
"""


def _is_name(peer: str) -> bool:
    return not peer.startswith(("#", "chan:", "obj:"))
