"""Rules of who may be whom: sessions, members, tokens, subscriptions."""

import hmac
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec import structs

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Registered, Removed, TakenOver
from tieline.contract.hub import MemberAppeared, MemberVanished
from tieline.contract.identifiers import GENERAL, USERS, MemberName, SessionId, parse_channel_name, parse_member_name
from tieline.contract.member import ByHomeKey, ByPlace, ByShared, ByToken, ByUser, Member, MemberKind, Origin, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Done, Issued, Pauses, Reply
from tieline.core import channels, team, tokens
from tieline.core.directory import Account, Session, token_digest
from tieline.core.loops import find_conversation
from tieline.core.outcome import Followed
from tieline.core.store import Grant, MemberRow

if TYPE_CHECKING:
    from tieline.core.broker import Broker

MANAGE = "members.manage"


def attach(broker: "Broker", command: c.Attach) -> Reply:
    """Open a session for whom the credential proves, or take up one that it had."""
    who = _prove(broker, command)
    if isinstance(who, Refusal):
        return who
    account, speaker, operator = who
    grant = _resumed(broker, command, account)
    if isinstance(grant, Refusal):
        return grant
    session = Session(broker.nature.session_id(), command.protocol, speaker, account=account)
    session.acknowledges = command.acknowledges
    session.operator = operator
    session.by_token = isinstance(command.credential, ByToken)
    if isinstance(command.credential, ByToken):
        session.token = token_digest(command.credential.token)
        broker.directory.note_use(session.token, broker.now_ms)
    session.by_user = isinstance(command.credential, ByUser)
    if account is None:
        _open(broker, session)
        return Attached(session.id, None, speaker)
    if command.resumable:
        session.resume_id = grant.id if grant else broker.nature.session_id()
    _take_over(broker, command, account, session)
    account.touch(broker.now_ms)
    if account.inbox.held and account.name in broker.custodians:
        broker.holds.recheck(account)
    _open(broker, session)
    token = _grant(broker, account, session.resume_id) if session.resume_id is not None else None
    return Attached(
        session.id, account.name, speaker, account.inbox.next_key, session.resume_id, token, grant is not None
    )


def _open(broker: "Broker", session: Session) -> None:
    broker.directory.open(session)
    broker.undo.append(partial(broker.directory.end, session))


def _resumed(broker: "Broker", command: c.Attach, account: Account | None) -> Grant | Refusal | None:
    """The grant of the session to be taken up, if any is named."""
    if account is None:
        return None
    token, resume_id = command.resume_token, command.resume_id
    if token is None:
        return None if resume_id is None else broker.resumption.of_id(resume_id, account.number, broker.now_ms)
    grant = broker.resumption.of_token(token_digest(token), account.number, broker.now_ms)
    if isinstance(grant, Grant) and resume_id not in (None, grant.id):
        return Refusal(Code.RESUME_REFUSED, "the resume token belongs to another session")
    return grant


def _take_over(broker: "Broker", command: c.Attach, account: Account, session: Session) -> None:
    """End the sessions whose place the new one takes: the one it takes up, and if it is exclusive, its siblings."""
    why = Refusal(Code.TAKEN_OVER, f"a newer connection of {account.member.name} took over")
    for old in list(account.sessions):
        taken_up = session.resume_id is not None and old.resume_id == session.resume_id
        if taken_up or (command.exclusive and old.protocol == command.protocol):
            end_session(broker, old)
            broker.outcome.ended.append((old.id, why))
            broker.record(TakenOver(account.member.name, old.id, session.id))


def replaced(broker: "Broker", command: c.Attach) -> list[SessionId]:
    """The sessions that may end when this one opens; none if its credential proves nothing."""
    resumes = command.resume_token is not None or command.resume_id is not None
    if not (resumes or command.exclusive):
        return []
    if command.member is not None and broker.directory.find_any_case(command.member) is None:
        # To prove who it is would make the member.
        return []
    who = _prove(broker, command)
    if isinstance(who, Refusal) or who[0] is None:
        return []
    return [
        old.id
        for old in who[0].sessions
        if (command.exclusive and old.protocol == command.protocol) or (resumes and old.resume_id is not None)
    ]


def _grant(broker: "Broker", account: Account, resume_id: str) -> str:
    broker.changed = True
    token = broker.nature.token()
    expires_at_ms = broker.now_ms + broker.limits.resume_ms
    grant = broker.resumption.issue(resume_id, account.number, token_digest(token), expires_at_ms)
    broker.store.save_grant(grant)
    broker.dirty = broker.outcome.urgent = True
    return token


def confirm(broker: "Broker", command: c.Confirm) -> Reply:
    """The client has its new token: a replay of the one before is refused from now on."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    broker.changed = session.resume_id is not None
    grant = broker.resumption.confirm(session.resume_id) if session.resume_id is not None else None
    if grant is not None:
        broker.save_grant(grant)
    return Done()


def _prove(broker: "Broker", command: c.Attach) -> tuple[Account | None, str, bool] | Refusal:
    """The member that the credential stands for, the name to speak under, and whether it is an operator."""
    credential = command.credential
    match credential:
        case ByToken(token):
            account = broker.directory.owner_of(token, broker.now_ms)
            if account is None:
                return Refusal(Code.UNAUTHORIZED, "the token is unknown, revoked or expired")
            if command.member is not None and command.member != account.member.name:
                if command.member.casefold() == account.member.name.casefold():
                    return _misspelt(command.member, account)
                return Refusal(Code.UNAUTHORIZED, f"the token does not belong to {command.member}")
            return account, account.member.name, False
        case ByHomeKey(key):
            if broker.home_key is None or not hmac.compare_digest(token_digest(key), broker.home_key):
                return Refusal(Code.UNAUTHORIZED, "the key is not the key of this hub's home")
            if command.member is None:
                return None, "operator", True
            return _named(broker, command.member, operator=True)
        case ByShared(token):
            return _shared(broker, command, token_digest(token))
        case ByUser():
            return _local(broker, command)
        case ByPlace():
            if command.member is None:
                return Refusal(Code.INVALID_REQUEST, "a place stands for one member")
            return _named(broker, command.member, operator=False)
        case Unnamed(label, place):
            return None, f"{label}@{place}", False
        case _:
            assert_never(credential)


def _named(broker: "Broker", name: MemberName, *, operator: bool) -> tuple[Account, str, bool] | Refusal:
    account = broker.directory.find(name)
    if account is None:
        return broker.directory.unknown_member(name)
    return account, account.member.name, operator


def _local(broker: "Broker", command: c.Attach) -> tuple[Account, str, bool] | Refusal:
    """A member that a local session made, or makes now; never one that belongs to a token."""
    if command.member is None:
        return Refusal(Code.INVALID_REQUEST, "a session needs a name")
    account = broker.directory.find_any_case(command.member)
    if account is None:
        name = parse_member_name(command.member)
        if isinstance(name, Refusal):
            return name
        account = _make(broker, Member(name, command.kind, (), Origin.LOCAL, broker.now_ms), command.protocol)
    elif account.member.name != command.member or account.member.origin is not Origin.LOCAL:
        return Refusal(Code.NAME_TAKEN, f"the name {command.member!r} belongs to a member; show its token")
    return account, account.member.name, False


def _shared(broker: "Broker", command: c.Attach, digest: bytes) -> tuple[Account, str, bool] | Refusal:
    """A member that a session under the same token made, or makes now."""
    if command.member is None:
        return Refusal(Code.INVALID_REQUEST, "a session needs a name")
    account = broker.directory.find_any_case(command.member)
    if account is None:
        name = parse_member_name(command.member)
        if isinstance(name, Refusal):
            return name
        if _is_kept(broker, name):
            return _kept(name)
        account = _make(broker, Member(name, command.kind, (), Origin.SHARED, broker.now_ms), command.protocol)
        account.owner = digest
        broker.store.save_owner(account.number, digest)
    elif account.owner is None or not hmac.compare_digest(account.owner, digest):
        return Refusal(Code.NAME_TAKEN, f"the name {command.member!r} belongs to another token")
    elif account.name != command.member:
        return _misspelt(command.member, account)
    return account, account.name, False


def _is_kept(broker: "Broker", name: str) -> bool:
    return name.casefold() == broker.kept_name.casefold()


def _kept(name: str) -> Refusal:
    """Whoever shares a token cannot be the person who runs the hub."""
    return Refusal(Code.NAME_TAKEN, f"the name {name!r} is kept for the person who runs this hub; use another")


def _misspelt(name: str, account: Account) -> Refusal:
    """The token is right and the name is not: two that differ only in case are never two members."""
    return Refusal(Code.INVALID_NAME, f"the name {name!r} differs only in case from {account.name!r}; use that")


def _make(broker: "Broker", member: Member, protocol: str) -> Account:
    """Enter a member that comes to be with its first session."""
    broker.changed = True
    row = broker.directory.add(member, broker.ledger.end)
    broker.store.save_member(row)
    broker.outcome.changes.append(MemberAppeared(member.name))
    broker.record(Registered(member.name, protocol, f"{member.origin} member"))
    return broker.directory.accounts[row.number]


def detach(broker: "Broker", command: c.Detach) -> Reply:
    """End a session; its deliveries stay with the member."""
    session = broker.directory.sessions.get(command.session)
    if session is not None:
        if session.account is not None:
            session.account.touch(broker.now_ms)
        end_session(broker, session)
    return Done()


def end_session(broker: "Broker", session: Session) -> None:
    """Strike a session out, and with it what it follows."""
    broker.directory.end(session)
    broker.undo.append(partial(broker.directory.open, session))
    for offset in [offset for offset, follow in broker.followers.items() if session.id in follow.sessions]:
        follow = broker.followers[offset]
        follow.sessions.remove(session.id)
        broker.undo.append(partial(_follow_again, broker, offset, follow, session.id))
        if not follow.sessions:
            del broker.followers[offset]


def _follow_again(broker: "Broker", offset: int, follow: Followed, session: SessionId) -> None:
    follow.sessions.add(session)
    broker.followers[offset] = follow


def add(broker: "Broker", command: c.AddMember) -> Reply:
    """Make a member with a token."""
    session = manager(broker, command.session)
    if isinstance(session, Refusal):
        return session
    name = parse_member_name(command.name)
    if isinstance(name, Refusal):
        return name
    taken = broker.directory.find_any_case(name)
    if taken is not None:
        return Refusal(Code.NAME_TAKEN, f"the name {name!r} is taken by {taken.member.name!r}")
    if command.self_named and _is_kept(broker, name):
        return _kept(name)
    refusal = tokens.check_chosen(broker, command.token) or team.check_member(
        broker, command.permissions, (command.title, command.description, command.instructions)
    )
    if refusal is not None:
        return refusal
    permissions = tuple(sorted(set(command.permissions)))
    about = (command.title, command.description, command.instructions)
    member = Member(name, command.kind, permissions, Origin.TOKEN, broker.now_ms, *about)
    row = broker.directory.add(member, broker.ledger.end)
    broker.store.save_member(row)
    broker.outcome.changes.append(MemberAppeared(name))
    return _issue(broker, broker.directory.accounts[row.number], session, command.token, "member")


def _ownerless(broker: "Broker", account: Account) -> bool:
    """Whether the name is anybody's who can open a local socket."""
    return account.member.origin is Origin.LOCAL and not broker.directory.has_token(account)


def _adopt(broker: "Broker", account: Account, session: Session) -> Issued:
    """Let a local name belong to a token. Sessions that showed none end, as no new one of theirs could begin."""
    account.member = structs.replace(account.member, origin=Origin.TOKEN)
    broker.store.save_member(MemberRow(account.number, account.member, account.since))
    why = Refusal(Code.NAME_TAKEN, f"the name {account.name!r} belongs to a token now; show it")
    for open_session in [other for other in account.sessions if other.by_user and other is not session]:
        end_session(broker, open_session)
        broker.outcome.ended.append((open_session.id, why))
    return _issue(broker, account, session, None, "token for a local member")


def rotate(broker: "Broker", command: c.RotateToken) -> Reply:
    """Give a member a new token; the old ones die at once."""
    session = manager(broker, command.session, itself=command.name)
    if isinstance(session, Refusal):
        return session
    account = broker.directory.find(command.name)
    if account is None:
        return broker.directory.unknown_member(command.name)
    if _ownerless(broker, account):
        return _adopt(broker, account, session)
    why = Refusal(Code.UNAUTHORIZED, f"the token of {account.name} was replaced")
    for open_session in [other for other in account.sessions if other.by_token and other is not session]:
        end_session(broker, open_session)
        broker.outcome.ended.append((open_session.id, why))
    return _issue(broker, account, session, None, "token")


def _issue(broker: "Broker", account: Account, session: Session, token: str | None, what: str) -> Issued:
    """Make a token the only one of its member."""
    for old in broker.directory.tokens_of(account):
        tokens.drop(broker, old)
    token = token or broker.nature.token()
    tokens.add(broker, account, token, session.speaker)
    broker.record(Registered(account.member.name, session.speaker, what))
    return Issued(account.member.name, token)


def remove(broker: "Broker", command: c.RemoveMember) -> Reply:
    """Remove a member: nothing can reach it any more, so what waits for it is dead."""
    session = manager(broker, command.session)
    if isinstance(session, Refusal):
        return session
    account = broker.directory.find(command.name)
    if account is None:
        return broker.directory.unknown_member(command.name)
    if not session.operator and team.is_last_manager(broker, account):
        return team.last_manager(account)
    inbox = account.inbox
    broker.move(account, ((inbox.first_unsettled, inbox.next_key - 1),), State.DEAD, evidence="member removed")
    why = Refusal(Code.UNAUTHORIZED, f"{account.member.name} was removed")
    for open_session in list(account.sessions):
        end_session(broker, open_session)
        broker.outcome.ended.append((open_session.id, why))
    channels.leave_all(broker, account)
    broker.escalation.forget(broker, account)
    broker.directory.remove(account)
    broker.resumption.drop_member(account.number)
    broker.store.drop_member(account.number, broker.now_ms)
    broker.outcome.changes.append(MemberVanished(account.member.name))
    broker.record(Removed(account.member.name, session.speaker))
    return Done()


def manager(broker: "Broker", session_id: SessionId, *, itself: str | None = None) -> Session | Refusal:
    """The session, if it may manage members, or this member and is it."""
    session = broker.session(session_id)
    if isinstance(session, Refusal) or session.may(MANAGE):
        return session
    if itself is not None and session.speaker == itself and session.account is not None:
        return session
    return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {MANAGE}")


def subscribe(broker: "Broker", command: c.Subscribe) -> Reply:
    """Join a channel."""
    account = _subscriber(broker, command.session, command.member)
    if isinstance(account, Refusal):
        return account
    channel = parse_channel_name(command.channel)
    if isinstance(channel, Refusal):
        return channel
    if channel in (GENERAL, USERS):
        there = channel == GENERAL or account.member.kind is MemberKind.HUMAN
        return Done() if there else Refusal(Code.FORBIDDEN, "#users holds the human members; no other can join it")
    return channels.join(broker, channel, account)


def unsubscribe(broker: "Broker", command: c.Unsubscribe) -> Reply:
    """Leave a channel."""
    account = _subscriber(broker, command.session, command.member)
    if isinstance(account, Refusal):
        return account
    if command.channel in (GENERAL, USERS):
        whom = "every" if command.channel == GENERAL else "every human"
        return Refusal(Code.FORBIDDEN, f"#{command.channel} holds {whom} member; nobody can leave it")
    channels.leave(broker, command.channel, account)
    return Done()


def _subscriber(broker: "Broker", session_id: SessionId, other: MemberName | None) -> Account | Refusal:
    session = broker.session(session_id) if other is None else manager(broker, session_id, itself=other)
    if isinstance(session, Refusal):
        return session
    if other is not None:
        return broker.directory.find(other) or broker.directory.unknown_member(other)
    return session.account or Refusal(Code.INVALID_REQUEST, "only a member can subscribe")


def resume_thread(broker: "Broker", command: c.ResumeThread) -> Reply:
    """End the pause of a conversation; for humans and those who manage members."""
    session = _steward(broker, command.session)
    if isinstance(session, Refusal):
        return session
    name = find_conversation(command.thread)
    if isinstance(name, Refusal):
        return name
    broker.holds.resume(broker, name, session.speaker)
    return Done()


def pause_thread(broker: "Broker", command: c.PauseThread) -> Reply:
    """Pause a conversation; for the same."""
    session = _steward(broker, command.session)
    if isinstance(session, Refusal):
        return session
    name = find_conversation(command.thread)
    if isinstance(name, Refusal):
        return name
    broker.holds.pause(broker, name, session.speaker)
    return Done()


def allow_thread(broker: "Broker", command: c.AllowThread) -> Reply:
    """Lift the limits of a conversation; for the same."""
    session = _steward(broker, command.session)
    if isinstance(session, Refusal):
        return session
    name = find_conversation(command.thread)
    if isinstance(name, Refusal):
        return name
    for_ms = broker.limits.allow_ms if command.for_ms is None else command.for_ms
    if not 0 < for_ms <= broker.limits.ttl_ms_max:
        return Refusal(Code.INVALID_REQUEST, f"limits are lifted for 1 to {broker.limits.ttl_ms_max} milliseconds")
    broker.holds.allow(broker, name, session.speaker, broker.now_ms + for_ms)
    return Done()


def pauses(broker: "Broker", command: c.ListPauses) -> Reply:
    """Conversations that are paused; for the same."""
    session = _steward(broker, command.session)
    return session if isinstance(session, Refusal) else Pauses(broker.holds.list(broker.now_ms))


def _steward(broker: "Broker", session_id: SessionId) -> Session | Refusal:
    session = broker.session(session_id)
    if isinstance(session, Refusal):
        return session
    human = session.account is not None and session.account.member.kind is MemberKind.HUMAN
    if not human and not session.may(MANAGE):
        return Refusal(Code.FORBIDDEN, "paused conversations are for a human or a member with members.manage")
    return session
