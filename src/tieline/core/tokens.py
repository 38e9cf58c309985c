"""Tokens: a member may have several, one for each place it works at, and each can be revoked alone."""

from typing import TYPE_CHECKING, assert_never

from tieline.contract import command as c
from tieline.contract.event import Registered
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import TokenView
from tieline.contract.permission import MEMBERS_MANAGE
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply, TokenIssued, Tokens
from tieline.core.directory import Account, Session, token_digest
from tieline.core.store import INTEGER_MAX, TokenRow

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_CHARS_MIN = 16
"""A chosen token shorter than this could be guessed."""


def check_chosen(broker: "Broker", token: str | None) -> Refusal | None:
    """Why a token of somebody's choice cannot be one, if so."""
    if token is None:
        return None
    if len(token) < _CHARS_MIN:
        return Refusal(Code.INVALID_REQUEST, f"a token has at least {_CHARS_MIN} characters")
    if broker.directory.token_known(token_digest(token)):
        return Refusal(Code.INVALID_REQUEST, "this token belongs to a member already")
    return None


def add(
    broker: "Broker", account: Account, token: str, by: str, label: str = "", expires_at_ms: int | None = None
) -> TokenRow:
    """Keep a token beside the others that a member has."""
    made = broker.nature.message_id(broker.now_ms)
    row = TokenRow(token_digest(token), account.number, broker.now_ms, expires_at_ms, made, label, by)
    broker.directory.add_token(row)
    broker.store.save_token(row)
    return row


def drop(broker: "Broker", row: TokenRow) -> None:
    """Void a token."""
    broker.directory.drop_token(row)
    broker.store.drop_token(row.digest)
    broker.dirty = True


def decide(broker: "Broker", command: c.IssueToken | c.ListTokens | c.RevokeToken) -> Reply:
    """Decide a command about tokens."""
    match command:
        case c.IssueToken():
            return issue(broker, command)
        case c.ListTokens():
            return select(broker, command)
        case c.RevokeToken():
            return revoke(broker, command)
        case _:
            assert_never(command)


def issue(broker: "Broker", command: c.IssueToken) -> Reply:
    """Give a member one more token."""
    found = _asked(broker, command.session, command.name)
    if isinstance(found, Refusal):
        return found
    session, account = found
    refusal = check_chosen(broker, command.token) or _check(broker, account, command)
    if refusal is not None:
        return refusal
    token = command.token or broker.nature.token()
    row = add(broker, account, token, session.speaker, command.label, command.expires_at_ms)
    broker.record(Registered(account.name, session.speaker, "one more token"))
    return TokenIssued(account.name, token, _view(broker, row))


def _check(broker: "Broker", account: Account, command: c.IssueToken) -> Refusal | None:
    if len(command.label) > broker.limits.text_bytes_max:
        return Refusal(Code.INVALID_REQUEST, f"a label has at most {broker.limits.text_bytes_max} characters")
    if command.expires_at_ms is not None and not broker.now_ms < command.expires_at_ms <= INTEGER_MAX:
        return Refusal(Code.INVALID_REQUEST, "the token would have expired already, or never would")
    for row in broker.directory.tokens_of(account):
        if _expired(broker, row):
            drop(broker, row)
    if len(broker.directory.tokens_of(account)) >= broker.limits.tokens_max:
        return Refusal(Code.TOO_MANY_TOKENS, f"{account.name} has {broker.limits.tokens_max} tokens already")
    return None


def select(broker: "Broker", command: c.ListTokens) -> Reply:
    """A member's tokens that are still good."""
    found = _asked(broker, command.session, command.name)
    if isinstance(found, Refusal):
        return found
    rows = broker.directory.tokens_of(found[1])
    good = sorted((row for row in rows if not _expired(broker, row)), key=lambda row: (row.created_at_ms, row.id))
    return Tokens(tuple(_view(broker, row) for row in good))


def revoke(broker: "Broker", command: c.RevokeToken) -> Reply:
    """Void one token of a member, and end the sessions that it opened."""
    found = _asked(broker, command.session, command.name)
    if isinstance(found, Refusal):
        return found
    session, account = found
    row = next((row for row in broker.directory.tokens_of(account) if row.id == command.token_id), None)
    if row is None:
        return Refusal(Code.UNKNOWN_TOKEN, f"{account.name} has no token {command.token_id[:140]!r}")
    drop(broker, row)
    broker.end_sessions(
        [other for other in account.sessions if other.token == row.digest],
        Refusal(Code.UNAUTHORIZED, f"the token of {account.name} was revoked"),
    )
    broker.record(Registered(account.name, session.speaker, "one token less"))
    return Done()


def expire(broker: "Broker") -> None:
    """Void tokens that have expired, and end the sessions that they opened."""
    for row in broker.directory.take_expired(broker.now_ms):
        account = broker.directory.accounts[row.number]
        drop(broker, row)
        broker.end_sessions(
            [session for session in account.sessions if session.token == row.digest],
            Refusal(Code.UNAUTHORIZED, f"the token of {account.name} has expired"),
        )
        broker.record(Registered(account.name, "hub", "one token less"))


def _asked(broker: "Broker", session_id: SessionId, name: MemberName) -> tuple[Session, Account] | Refusal:
    """Who asks, and whose tokens it is about: one's own, unless one manages members."""
    session = broker.session(session_id)
    if isinstance(session, Refusal):
        return session
    if not session.may(MEMBERS_MANAGE) and (session.account is None or session.account.name != name):
        return Refusal(Code.FORBIDDEN, f"{session.speaker} lacks the permission {MEMBERS_MANAGE}")
    account = broker.directory.find(name)
    return (session, account) if account is not None else broker.directory.unknown_member(name)


def _expired(broker: "Broker", row: TokenRow) -> bool:
    return row.expires_at_ms is not None and row.expires_at_ms <= broker.now_ms


def _view(broker: "Broker", row: TokenRow) -> TokenView:
    used = broker.directory.last_use(row.digest)
    return TokenView(row.id, row.label, row.created_by, row.created_at_ms, row.expires_at_ms, used)
