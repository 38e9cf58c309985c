"""Membership: the rules to add members, replace their tokens, and remove them."""

from msgspec import structs

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Registered, Removed
from tieline.contract.hub import MemberAppeared, MemberVanished
from tieline.contract.identifiers import parse_member_name
from tieline.contract.member import Member, Origin
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Issued, Reply
from tieline.core.batch import Batch
from tieline.core.channels import ChannelRules
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Account, Directory, Session
from tieline.core.escalation import Escalation
from tieline.core.invitations import InvitationBook
from tieline.core.rules import Rules, decides
from tieline.core.sessions import Sessions
from tieline.core.team import TeamRules, last_manager
from tieline.core.tokens import TokenRules


class MembershipRules(Rules):
    """Rules for the commands that add and remove members, and replace their tokens."""

    def __init__(  # noqa: PLR0913, PLR0917 - everything that ends with a member
        self,
        batch: Batch,
        directory: Directory,
        channels: ChannelRules,
        deliveries: Deliveries,
        escalation: Escalation,
        sessions: Sessions,
        team: TeamRules,
        tokens: TokenRules,
        invitations: InvitationBook,
    ) -> None:
        self._batch = batch
        self._store = batch.store
        self._clock_and_ids = batch.clock_and_ids
        self._directory = directory
        self._channels = channels
        self._deliveries = deliveries
        self._escalation = escalation
        self._sessions = sessions
        self._team = team
        self._tokens = tokens
        self._invitations = invitations

    @decides(c.AddMember)
    def add(self, session: Session, command: c.AddMember) -> Reply:
        """Create a member, and reply with the member's first token."""
        refusal = session.refuse_without(MEMBERS_MANAGE)
        if refusal is not None:
            return refusal
        name = parse_member_name(command.name)
        if isinstance(name, Refusal):
            return name
        taken = self._directory.find_any_case(name)
        if taken is not None:
            return Refusal(Code.NAME_TAKEN, f"the name {name!r} is taken by {taken.member.name!r}")
        # A member who manages members may use an alias as a new name. Messages then go to the member with that name.
        refusal = self._sessions.refuse_kept(name) or self._directory.refuse_alias(name) if command.self_named else None
        refusal = (
            refusal
            or self._tokens.check_chosen(command.token)
            or self._team.check_member(command.permissions, (command.title, command.description, command.instructions))
        )
        if refusal is not None:
            return refusal
        permissions = tuple(sorted(set(command.permissions)))
        about = (command.title, command.description, command.instructions)
        member = Member(name, command.kind, permissions, Origin.TOKEN, self._batch.now_ms, *about)
        row = self._directory.add(member, self._batch.ledger.end)
        self._store.save_member(row)
        self._batch.outcome.changes.append(MemberAppeared(name))
        return self._issue(self._directory.accounts[row.number], session, command.token, "member")

    def _ownerless(self, account: Account) -> bool:
        """True if the member has no token. Then any client that can open a local socket may use the member's name."""
        return account.member.origin is Origin.LOCAL and not self._directory.has_token(account)

    def _adopt(self, account: Account, session: Session) -> Issued:
        """Issue the first token for a local member. From now on, a client needs a token to use the member's name.

        Sessions that were opened without a token end, except `session`.
        """
        account.member = structs.replace(account.member, origin=Origin.TOKEN)
        self._store.save_member(account.row())
        why = Refusal(Code.NAME_TAKEN, f"the name {account.name!r} belongs to a token now; show it")
        self._sessions.end_all([other for other in account.sessions if other.by_user and other is not session], why)
        return self._issue(account, session, None, "token for a local member")

    @decides(c.RotateToken)
    def rotate(self, session: Session, command: c.RotateToken) -> Reply:
        """Issue a new token for a member, and reply with it. All old tokens of the member become invalid at once."""
        account = self._directory.find_for(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        if self._ownerless(account):
            return self._adopt(account, session)
        why = Refusal(Code.UNAUTHORIZED, f"the token of {account.name} was replaced")
        self._sessions.end_all([other for other in account.sessions if other.by_token and other is not session], why)
        return self._issue(account, session, None, "token")

    def _issue(self, account: Account, session: Session, token: str | None, what: str) -> Issued:
        """Issue a token, and delete all other tokens of the member. Return the reply with the token.

        Without `token`, create a random one. `what` describes the change in the log.
        """
        for old in self._directory.tokens_of(account):
            self._tokens.drop(old)
        token = token or self._clock_and_ids.token()
        self._tokens.add(account, token, session.speaker)
        self._batch.record(Registered(account.member.name, session.speaker, what))
        return Issued(account.member.name, token)

    @decides(c.RemoveMember)
    def remove(self, session: Session, command: c.RemoveMember) -> Reply:
        """Remove a member, with the invitations that it made or may know.

        Its deliveries that are not acked or expired become dead, because nothing can reach the member.
        """
        account = self._directory.find_managed(session, MEMBERS_MANAGE, command.name)
        if isinstance(account, Refusal):
            return account
        if not session.operator and self._team.is_last_manager(account):
            return last_manager(account)
        inbox = account.inbox
        waiting = ((inbox.first_unsettled, inbox.next_key - 1),)
        self._deliveries.move(account, waiting, State.DEAD, evidence="member removed")
        why = Refusal(Code.UNAUTHORIZED, f"{account.member.name} was removed")
        self._sessions.end_all(account.sessions, why)
        self._channels.leave_all(account)
        self._escalation.forget(account)
        self._directory.remove(account)
        self._sessions.forget_grants(account)
        self._invitations.end_with(account, session.speaker)
        self._store.drop_member(account.number, self._batch.now_ms)
        self._batch.outcome.changes.append(MemberVanished(account.member.name))
        self._batch.record(Removed(account.member.name, session.speaker))
        return Done()
