"""Settlement: finds the deliveries that a command will settle, so that an external inbox can win them first.

Above: the caller of the broker, which asks external inboxes (see `core.external_inboxes`). Below: the rules that settle
deliveries. Each rule finds the deliveries that a command names.
"""

from collections.abc import Iterator, Sequence

from tieline.contract import command as c
from tieline.contract.delivery import SETTLED
from tieline.contract.identifiers import MemberName
from tieline.contract.keys import Ranges, one_key
from tieline.contract.message import Message
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Directory, Session
from tieline.core.evidence import EvidenceRules
from tieline.core.external_inboxes import PAGE, Answers, ExternalInboxes, each_unsettled
from tieline.core.staleness import StalenessRules
from tieline.core.wire_ids import WireIdRules

Wanted = tuple[MemberName, list[tuple[int, Message]]]
"""A member, and its deliveries to win, as pairs of key and message."""

_Settled = tuple[Account, Ranges, Session | None]
"""Deliveries of a member that a command may settle, and the session that settles them, if any."""


class SettlementRules:
    """Finds the deliveries to win before a command, and decides `Settle`."""

    def __init__(
        self,
        batch: Batch,
        directory: Directory,
        external_inboxes: ExternalInboxes,
        deliveries: Deliveries,
        *,
        evidence: EvidenceRules,
        staleness: StalenessRules,
        wire_ids: WireIdRules,
    ) -> None:
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._external_inboxes = external_inboxes
        self._deliveries = deliveries
        self._evidence = evidence
        self._staleness = staleness
        self._wire_ids = wire_ids

    def needs(self, commands: Sequence[c.Command], answers: Answers) -> Wanted | None:
        """Deliveries of one member to win before these commands are decided: at most one page."""
        for command in commands:
            if isinstance(command, c.Send) and command.content.reply_to is None and command.content.supersedes is None:
                continue
            for account, ranges, session in self._settled_by(command):
                if self._external_inboxes.session_to_ask(account, session) is not None:
                    wanted = self._unanswered(account, ranges, answers)
                    if wanted:
                        return account.name, wanted
        return None

    def settle(self, command: c.Settle) -> Reply:
        """Settle a delivery after its external inbox has answered."""
        account = self._directory.find(command.member)
        if account is not None and (account.name, command.key) in self._external_inboxes.answers:
            self._deliveries.move(account, one_key(command.key), command.state, evidence=command.evidence)
        return Done()

    def unused(self, answers: Answers) -> list[tuple[MemberName, int]]:
        """Deliveries that were won but not settled. Their external inboxes get them back."""
        found = []
        for (name, key), answer in answers.items():
            account = self._directory.find(name)
            if answer and account is not None and account.inbox.entry(key) is not None:
                found.append((name, key))
        return found

    def _settled_by(self, command: c.Command) -> Iterator[_Settled]:
        if isinstance(command, c.Settle):
            account = self._directory.find(command.member)
            if account is not None:
                yield account, one_key(command.key), None
            return
        if not isinstance(command, c.Advance | c.Discard | c.AcknowledgeIds | c.Claim | c.Send | c.RemoveMember):
            return
        session = self._directory.sessions.get(command.session)
        if session is None:
            return
        if isinstance(command, c.Send):
            yield from self._settled_by_sending(session, command)
        elif isinstance(command, c.RemoveMember):
            account = self._directory.find(command.name)
            if account is not None and session.refuse_without(MEMBERS_MANAGE) is None:
                yield account, ((account.inbox.first_unsettled, account.inbox.next_key - 1),), None
        elif (
            session.account is not None and self._external_inboxes.session_to_ask(session.account, session) is not None
        ):
            yield session.account, self._settled_by_asking(session, session.account, command), session

    def _settled_by_asking(
        self, session: Session, account: Account, command: c.Advance | c.Discard | c.AcknowledgeIds | c.Claim
    ) -> Ranges:
        match command:
            case c.Advance():
                return command.ranges[: self._limits.ranges_max] if command.state in SETTLED else ()
            case c.Discard():
                return command.ranges[: self._limits.ranges_max]
            case c.AcknowledgeIds():
                return self._wire_ids.find_deliveries(session, account, command)
            case c.Claim():
                delivery = self._evidence.find_unsettled(account, command.message_id)
                return () if delivery is None else one_key(delivery.key)

    def _settled_by_sending(self, session: Session, command: c.Send) -> Iterator[_Settled]:
        """A reply may acknowledge the message it answers. A correction expires the message it supersedes."""
        content, account = command.content, session.account
        if content.reply_to is not None and account is not None:
            key = self._evidence.find_answered(account, content.reply_to)
            if key is not None:
                yield account, one_key(key), session
        if content.supersedes is not None:
            route = self._staleness.find_superseded(content.supersedes, session)
            if not isinstance(route, Refusal):
                for number, key in zip(route.numbers, route.keys, strict=True):
                    recipient = self._directory.accounts.get(number)
                    if recipient is not None:
                        yield recipient, one_key(key), None

    def _unanswered(self, account: Account, ranges: Ranges, answers: Answers) -> list[tuple[int, Message]]:
        """One page of unsettled deliveries in these ranges that have no answer yet, with their messages."""
        offsets: dict[int, int] = {}
        for key in each_unsettled(account, ranges):
            offset = account.inbox.offset(key)
            if (account.name, key) not in answers and offset is not None:
                offsets[key] = offset
                if len(offsets) == PAGE:
                    break
        messages, considered = self._store.messages(list(offsets.values()), self._limits.page_bytes_max)
        return [(key, messages[offset]) for key, offset in list(offsets.items())[:considered] if offset in messages]
