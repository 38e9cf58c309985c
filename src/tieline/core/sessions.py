"""Sessions: opens, resumes and ends them.

The broker calls this module, and so do rules that end sessions whose right was withdrawn. The open sessions are in the
directory, and the rights to resume a session are in `core.resumption`. Sessions are kept in memory only. If a batch
fails, the sessions that it opened are closed again, and the sessions that it ended are open again.
"""

import hmac
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, assert_never

from tieline.contract import command as c
from tieline.contract.event import Registered, TakenOver
from tieline.contract.hub import MemberAppeared
from tieline.contract.identifiers import MemberName, SessionId, parse_member_name
from tieline.contract.member import ByHomeKey, ByPlace, ByShared, ByToken, ByUser, Member, Origin, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Done, Reply
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory, Session, token_digest
from tieline.core.followers import Followers
from tieline.core.holds import Holds
from tieline.core.resumption import Resumption
from tieline.core.rules import Rules, decides
from tieline.core.store import Grant

if TYPE_CHECKING:
    from tieline.core.shared_tokens import SharedTokens


class Sessions:
    """Opens and ends sessions. If the batch fails, each opening and ending is undone."""

    def __init__(
        self, batch: Batch, directory: Directory, followers: Followers, resumption: Resumption, kept_name: str
    ) -> None:
        self._batch = batch
        self._directory = directory
        self._followers = followers
        self._resumption = resumption
        # The name of the person who runs the hub. Nobody else may create a member with this name. Empty for none.
        self._kept_name = kept_name

    def refuse_kept(self, name: str) -> Refusal | None:
        """Return a refusal if the name is reserved for the person who runs the hub; otherwise `None`."""
        if name.casefold() != self._kept_name.casefold():
            return None
        return Refusal(Code.NAME_TAKEN, f"the name {name!r} is kept for the person who runs this hub; use another")

    def open(self, session: Session) -> None:
        """Add a session to the open sessions."""
        self._directory.open(session)
        self._batch.undo.append(partial(self._directory.end, session))

    def end(self, session: Session) -> None:
        """Remove a session from the open sessions, and drop the messages that it follows."""
        self._directory.end(session)
        self._batch.undo.append(partial(self._directory.open, session))
        self._followers.drop(session)

    def forget_grants(self, account: Account) -> None:
        """Delete all grants (rights to resume a session) of a member, so that it cannot resume any session."""
        self._resumption.drop_member(account.number)

    def end_all(self, sessions: Iterable[Session], why: Refusal) -> None:
        """End these sessions. Each session gets `why` as the reason."""
        for session in list(sessions):
            self.end(session)
            self._batch.outcome.ended.append((session.id, why))


class SessionRules(Rules):
    """Rules for the commands that open, confirm and end sessions. They say who may open a session for which member."""

    def __init__(
        self,
        batch: Batch,
        directory: Directory,
        external_inbox_sessions: Mapping[MemberName, SessionId],
        holds: Holds,
        resumption: Resumption,
        sessions: Sessions,
        shared_tokens: "SharedTokens",
        home_key: bytes | None,
    ) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._clock_and_ids = batch.clock_and_ids
        self._directory = directory
        self._external_inbox_sessions = external_inbox_sessions
        self._holds = holds
        self._resumption = resumption
        self._sessions = sessions
        self._shared_tokens = shared_tokens
        # Digest of the key that makes a session an operator.
        self._home_key = home_key

    def attach(self, command: c.Attach) -> Reply:
        """Open a session for the member that the credential proves, or resume an earlier session of that member."""
        who = self._prove(command)
        if isinstance(who, Refusal):
            return who
        account, speaker, operator = who
        grant = self._resumed(command, account)
        if isinstance(grant, Refusal):
            return grant
        session = Session(self._clock_and_ids.session_id(), command.protocol, speaker, account=account)
        session.acknowledges = command.acknowledges
        session.operator = operator
        session.by_token = isinstance(command.credential, ByToken)
        if isinstance(command.credential, ByToken):
            session.token = token_digest(command.credential.token)
            self._directory.note_use(session.token, self._batch.now_ms)
        elif isinstance(command.credential, ByShared) and account is not None:
            session.token = token_digest(command.credential.token)
            self._shared_tokens.note_opened(account, session.token, command.protocol)
        session.by_user = isinstance(command.credential, ByUser)
        if account is None:
            self._sessions.open(session)
            return Attached(session=session.id, member=None, speaker=speaker)
        if command.resumable:
            session.resume_id = grant.id if grant else self._clock_and_ids.session_id()
        self._take_over(command, account, session)
        account.touch(self._batch.now_ms)
        if account.inbox.held and account.name in self._external_inbox_sessions:
            self._holds.recheck(account)
        self._sessions.open(session)
        token = self._grant(account, session.resume_id) if session.resume_id is not None else None
        return Attached(
            session=session.id,
            member=account.name,
            speaker=speaker,
            next_key=account.inbox.next_key,
            resume_id=session.resume_id,
            resume_token=token,
            resumed=grant is not None,
        )

    def _resumed(self, command: c.Attach, account: Account | None) -> Grant | Refusal | None:
        """Return the grant (the right to resume a session) for the session that the command names, or a refusal.

        Return `None` if the command names no session.
        """
        if account is None:
            return None
        token, resume_id = command.resume_token, command.resume_id
        if token is None:
            return None if resume_id is None else self._resumption.of_id(resume_id, account.number, self._batch.now_ms)
        grant = self._resumption.of_token(token_digest(token), account.number, self._batch.now_ms)
        if isinstance(grant, Grant) and resume_id not in (None, grant.id):
            return Refusal(Code.RESUME_REFUSED, "the resume token belongs to another session")
        return grant

    def _take_over(self, command: c.Attach, account: Account, session: Session) -> None:
        """End the old session that the new `session` resumes.

        If the command is exclusive, also end all other sessions of the member through the same protocol.
        """
        why = Refusal(Code.TAKEN_OVER, f"a newer connection of {account.member.name} took over")
        for old in list(account.sessions):
            taken_up = session.resume_id is not None and old.resume_id == session.resume_id
            if taken_up or (command.exclusive and old.protocol == command.protocol):
                self._sessions.end_all((old,), why)
                self._batch.record(TakenOver(account.member.name, old.id, session.id))

    def replaced(self, command: c.Attach) -> list[SessionId]:
        """Return the sessions that may end when `command` opens a new session. Empty if its credential is not valid.

        The broker must handle the earlier commands of these sessions before it handles `command`.
        """
        resumes = command.resume_token is not None or command.resume_id is not None
        if not (resumes or command.exclusive):
            return []
        if command.member is not None and self._directory.find_any_case(command.member) is None:
            # The check of the credential would create the member.
            return []
        who = self._prove(command)
        if isinstance(who, Refusal) or who[0] is None:
            return []
        return [
            old.id
            for old in who[0].sessions
            if (command.exclusive and old.protocol == command.protocol) or (resumes and old.resume_id is not None)
        ]

    def _grant(self, account: Account, resume_id: str) -> str:
        self._batch.changed = True
        token = self._clock_and_ids.token()
        expires_at_ms = self._batch.now_ms + self._limits.resume_ms
        grant = self._resumption.issue(resume_id, account.number, token_digest(token), expires_at_ms)
        self._store.save_grant(grant)
        self._batch.dirty = self._batch.outcome.urgent = True
        return token

    @decides(c.Confirm)
    def confirm(self, session: Session, _: c.Confirm) -> Reply:
        """Note that the client has its new resume token. The previous resume token is refused from now on."""
        self._batch.changed = session.resume_id is not None
        grant = self._resumption.confirm(session.resume_id) if session.resume_id is not None else None
        if grant is not None:
            self._batch.keep_grant(grant)
        return Done()

    def _prove(self, command: c.Attach) -> tuple[Account | None, str, bool] | Refusal:
        """Check the credential of a command. Return a refusal if it is not valid.

        Otherwise return the member of the credential, and the sender name for messages of the session. The third value
        is true if the credential is the key of the hub's home, which gives all permissions.
        """
        credential = command.credential
        match credential:
            case ByToken(token):
                account = self._directory.owner_of(token, self._batch.now_ms)
                if account is None:
                    return Refusal(Code.UNAUTHORIZED, "the token is unknown, revoked or expired")
                if command.member is not None and command.member != account.member.name:
                    if command.member.casefold() == account.member.name.casefold():
                        return refuse_wrong_case(command.member, account)
                    return Refusal(Code.UNAUTHORIZED, f"the token does not belong to {command.member}")
                return account, account.member.name, False
            case ByHomeKey(key):
                if self._home_key is None or not hmac.compare_digest(token_digest(key), self._home_key):
                    return Refusal(Code.UNAUTHORIZED, "the key is not the key of this hub's home")
                if command.member is None:
                    return None, "operator", True
                return self._named(command.member, operator=True)
            case ByShared(token):
                return self._shared(command, token_digest(token))
            case ByUser():
                return self._local(command)
            case ByPlace():
                if command.member is None:
                    return Refusal(Code.INVALID_REQUEST, "a place stands for one member")
                return self._named(command.member, operator=False)
            case Unnamed(label, place):
                return None, f"{label}@{place}", False
            case _:
                assert_never(credential)

    def _named(self, name: MemberName, *, operator: bool) -> tuple[Account, str, bool] | Refusal:
        account = self._directory.find(name)
        if account is None:
            return self._directory.unknown_member(name)
        return account, account.member.name, operator

    def _free_name(self, text: str) -> MemberName | Refusal:
        """Return the text as the name of a new member, or a refusal if it is no valid name or is an alias."""
        name = parse_member_name(text)
        return name if isinstance(name, Refusal) else self._directory.refuse_alias(name) or name

    def _local(self, command: c.Attach) -> tuple[Account, str, bool] | Refusal:
        """Return the local member that the command names. Create the member if the name is free.

        Return a refusal if the member is not local, because such a member needs a token. The other values are the
        member's name, and false.
        """
        if command.member is None:
            return Refusal(Code.INVALID_REQUEST, "a session needs a name")
        account = self._directory.find_any_case(command.member)
        if account is None:
            name = self._free_name(command.member)
            if isinstance(name, Refusal):
                return name
            account = self._make(Member(name, command.kind, (), Origin.LOCAL, self._batch.now_ms), command.protocol)
        elif account.member.name != command.member or account.member.origin is not Origin.LOCAL:
            return Refusal(Code.NAME_TAKEN, f"the name {command.member!r} belongs to a member; show its token")
        return account, account.member.name, False

    def _shared(self, command: c.Attach, digest: bytes) -> tuple[Account, str, bool] | Refusal:
        """Return the member that the command names. Create the member if the name is free.

        Return a refusal if the shared token (a token of several members, with the hash `digest`) may not use the name.
        The other values are the member's name, and false.
        """
        if command.member is None:
            return Refusal(Code.INVALID_REQUEST, "a session needs a name")
        account = self._directory.find_any_case(command.member)
        if account is None:
            name = self._free_name(command.member)
            if not isinstance(name, Refusal):
                name = self._sessions.refuse_kept(name) or name
            if isinstance(name, Refusal):
                return name
            account = self._make(Member(name, command.kind, (), Origin.SHARED, self._batch.now_ms), command.protocol)
            account.owner = digest
            self._store.save_owner(account.number, digest)
        else:
            refusal = self._shared_tokens.refuse(account, command.member, digest)
            if refusal is not None:
                return refusal
        return account, account.name, False

    def _make(self, member: Member, protocol: str) -> Account:
        """Create a member for its first session, and return it."""
        self._batch.changed = True
        row = self._directory.add(member, self._batch.ledger.end)
        self._store.save_member(row)
        self._batch.outcome.changes.append(MemberAppeared(member.name))
        self._batch.record(Registered(member.name, protocol, f"{member.origin} member"))
        return self._directory.accounts[row.number]

    @decides(c.Detach)
    def detach(self, session: Session, _: c.Detach) -> Reply:
        """End a session. The deliveries stay with its member."""
        if session.account is not None:
            session.account.touch(self._batch.now_ms)
        self._sessions.end(session)
        return Done()


def refuse_wrong_case(name: str, account: Account) -> Refusal:
    """Return the refusal for a valid token with a name that differs from the member's name only in case.

    Two members never have names that differ only in case.
    """
    return Refusal(Code.INVALID_NAME, f"the name {name!r} differs only in case from {account.name!r}; use that")
