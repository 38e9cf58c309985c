"""Settlement: finds the deliveries that a command will settle, that is, acknowledge, expire or give up.

Some of these deliveries are also in an external inbox, which must first reserve them for the hub (see
`core.external_inboxes`). The caller of the broker uses this module, and asks the external inboxes. To find the
deliveries of a command, this module uses the rules that settle deliveries.
"""

from collections.abc import Iterable, Iterator, Sequence

from tieline.contract import command as c
from tieline.contract.delivery import SETTLED
from tieline.contract.identifiers import MemberName
from tieline.contract.keys import Range, Ranges, each_key, join_keys, one_key
from tieline.contract.message import Message
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Directory, Session
from tieline.core.evidence import EvidenceRules
from tieline.core.external_inboxes import PAGE, Answers, ExternalInboxes, Reserved, each_unsettled
from tieline.core.staleness import StalenessRules
from tieline.core.wire_ids import WireIdRules

Wanted = tuple[MemberName, list[tuple[int, Message]]]
"""A member, and the deliveries that its external inbox must reserve, as pairs of key and message."""

_Settled = tuple[Account, Ranges, Session | None]
"""A member, its deliveries that a command may settle, and the session that settles them; `None` for the hub itself."""


class SettlementRules:
    """Finds the deliveries that an external inbox must reserve for the hub before a command is handled.

    It also carries out the command `Settle`.
    """

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
        """Return deliveries that an external inbox must reserve before these commands are handled, or `None`.

        The result has one member and at most one page of its deliveries. `answers` has the answers that came so far.
        This method also notes in `answers` the last delivery that it has returned.
        """
        found: dict[MemberName, tuple[Account, list[Range]]] = {}
        for command in commands:
            if isinstance(command, c.Send) and command.content.reply_to is None and command.content.supersedes is None:
                continue
            for account, ranges, session in self._settled_by(command):
                if self._external_inboxes.session_to_ask(account, session) is not None:
                    found.setdefault(account.name, (account, []))[1].extend(ranges)
        for name, (account, theirs) in found.items():
            wanted = self._next_page(account, theirs, answers)
            if wanted:
                return name, wanted
        return None

    def settle(self, command: c.Settle) -> Reply:
        """Settle (acknowledge or end) deliveries after their external inbox has answered, or was removed.

        A delivery without an answer stays as it is. Otherwise the hub could ask the same question again and again while
        the store fails.
        """
        account = self._directory.find(command.member)
        if account is not None:
            ranges = command.ranges
            if self._external_inboxes.session_to_ask(account, None) is not None:
                answers = self._external_inboxes.answers.by_delivery
                ranges = join_keys([key for key in each_key(ranges) if (account.name, key) in answers])
            self._deliveries.move(account, ranges, command.state, evidence=command.evidence)
        return Done()

    def unused(self, reserved: Iterable[Reserved]) -> list[Reserved]:
        """Return the deliveries in `reserved` that no command settled (acknowledged or ended).

        The caller tells the external inbox that these deliveries are free again.
        """
        found = []
        for name, key in reserved:
            account = self._directory.find(name)
            if account is not None and account.inbox.entry(key) is not None:
                found.append((name, key))
        return found

    def _settled_by(self, command: c.Command) -> Iterator[_Settled]:
        if isinstance(command, c.Settle):
            account = self._directory.find(command.member)
            if account is not None:
                yield account, command.ranges, None
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
        """Yield the deliveries that a new message may settle (acknowledge or end).

        A reply may acknowledge the message that it answers. A correction expires the message that it supersedes.
        """
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

    def _next_page(self, account: Account, ranges: Ranges, answers: Answers) -> list[tuple[int, Message]]:
        """Return the next page of deliveries in these ranges that are not acked, expired or dead, with their messages.

        The hub must ask the external inbox to reserve these deliveries. `answers` says how far the hub has asked
        already.
        """
        name, ranges = account.name, sorted(ranges)
        while True:
            after = answers.asked_through.get(name, 0)
            left = [(max(first, after + 1), last) for first, last in ranges if last > after]
            # Ranges may overlap. This dictionary has each key only once.
            offsets: dict[int, int] = {}
            for entry in each_unsettled(account, left):
                offsets[entry.key] = entry.offset
                if len(offsets) == PAGE:
                    break
            if not offsets:
                return []
            messages, considered = self._store.messages(list(offsets.values()), self._limits.page_bytes_max)
            page = list(offsets.items())[:considered]
            answers.asked_through[name] = page[-1][0]
            for key, offset in page:
                if offset not in messages:
                    # Retention has deleted the message, so no external inbox can be asked for it.
                    answers.by_delivery[name, key] = True
            wanted = [(key, messages[offset]) for key, offset in page if offset in messages]
            if wanted:
                return wanted
