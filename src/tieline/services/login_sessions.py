"""Login sessions of browsers, opened by a code, a token, a login link or the link of a first start.

Above: the console's entrance, and protocols with their own logins; their cookies carry the same sessions. Below:
`logins`, which knows codes and the life of a session; the file of logins; and the hub. The id of a session is a token
of the member, which the hub knows like any other token. So a session has the rights of its member. It ends when the
member is removed, when the member's tokens are replaced, or when the token is revoked in the list of tokens. A session
lasts seven days after its last use, and thirty days at most, because the hub does not extend tokens.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByToken, Member, MemberKind
from tieline.contract.permission import MEMBERS_MANAGE, OWNER_PERMISSIONS
from tieline.contract.refusal import Code, Refusal
from tieline.services.logins import INVALID_CODE, SESSION_MS, Denied, Logins, LoginSession, digest_of
from tieline.services.operator import Operator
from tieline.wire.home import write_private
from tieline.wire.sessions import ask_all

LOGINS_FILE = "logins.json"
LABEL = "console"
"""Label of a session's token, unless a code opened the session."""
LINK_LABEL = "login link"
"""Label of a token that is valid for one login."""

_TOKEN_MS = 30 * 24 * 3600 * 1000
_LABEL_OF_CODE = "login "
_LABEL_DIGITS = 12
_FIRST_CODE_MS = 15 * 60 * 1000
_PROTOCOL = "console"
_EXCERPT = 140
"""Longest text that an error repeats. Every name is shorter."""


class UnreadableLogins(ValueError):
    """The file of logins is damaged. The text says how."""


class Opened(Struct, frozen=True):
    """A session that was opened."""

    id: str
    """Id for the cookie. It is stored nowhere else."""
    token_id: str
    """Id of the session's token at the hub."""
    session: LoginSession


class _FirstCode(Struct, frozen=True):
    """Login code of a first start. The person who shows it becomes this member, who is created then."""

    secret: str
    name: MemberName
    until_ms: int


class LoginSessions:
    """The login sessions of a hub."""

    def __init__(
        self,
        hub: Hub,
        operator: Operator,
        folder: Path,
        now_ms: Callable[[], int],
        randomness: Callable[[int], bytes],
    ) -> None:
        self._hub = hub
        self._operator = operator
        self._path = folder / LOGINS_FILE
        self._now_ms = now_ms
        self._logins = _load(self._path, randomness)
        self._saving = asyncio.Lock()
        self._first: _FirstCode | None = None

    # Login with a code of an authenticator app.

    async def enrol(self, member: MemberName, asker: Member) -> str | Refusal:
        """Give a member a new secret for its app. This ends the old secret and all sessions opened by a code.

        A member can do this for itself, or for others with `members.manage`.
        """
        if member != asker.name and MEMBERS_MANAGE not in asker.permissions:
            return Refusal(Code.FORBIDDEN, f"{asker.name} lacks the permission {MEMBERS_MANAGE}")
        if not await self._operator.members(member):
            return Refusal(Code.UNKNOWN_MEMBER, f"no such member: {member[:_EXCERPT]}")
        secret = self._logins.enrol(member, self._now_ms())
        await self._save()
        await self._tidy(member)
        return secret

    async def sign_in(self, code: str, member: str | None, attempt: str | None = None) -> Opened | Denied:
        """Open a session for the member whose code it is."""
        result = self._logins.sign_in(code, member, self._now_ms(), attempt)
        if isinstance(result, Denied):
            return result
        # Before the login succeeds: a code is valid only once, whatever happens next.
        await self._save()
        name = MemberName(result.session.member)
        await self._tidy(name)
        replies = await self._operator.ask(lambda session: (self._issue(session, name, result.id),))
        match replies[0]:
            case r.TokenIssued(_, _, kept):
                return Opened(result.id, kept.id, result.session)
            case Refusal(Code.TOO_MANY_TOKENS) as refusal:
                await self.drop(result.id)
                return Denied(409, refusal.message)
            case _:
                # The member was removed at this moment.
                await self.drop(result.id)
                return Denied(401, INVALID_CODE)

    def _issue(self, session: SessionId, name: MemberName, token: str) -> c.IssueToken:
        return c.IssueToken(
            session, name=name, label=_label(digest_of(token)), expires_at_ms=self._now_ms() + _TOKEN_MS, token=token
        )

    # Login with a token, a login link, or the link of a first start.

    def first_code(self, name: MemberName) -> str:
        """Make a code with which one person can log in, as a new member of this name with all permissions."""
        code = secrets.token_urlsafe(24)
        self._first = _FirstCode(code, name, self._now_ms() + _FIRST_CODE_MS)
        return code

    async def enter(self, shown: str) -> Opened | Refusal:
        """Open a session for the member of a token, or for the first member if `shown` is the first code."""
        first = await self._first_member(shown)
        if isinstance(first, Refusal):
            return first
        attached = await self._hub.ask(c.Attach(protocol=_PROTOCOL, credential=ByToken(first or shown)))
        if not isinstance(attached, r.Attached):
            assert isinstance(attached, Refusal), "an attach is answered by these"
            return attached
        assert attached.member is not None, "a token belongs to a member"
        try:
            issued = await self._issue_from(attached.session, attached.member)
        finally:
            self._hub.submit((c.Detach(attached.session),))
        if isinstance(issued, Refusal):
            return issued
        session = self._logins.open(attached.member, issued.token, self._now_ms(), issued.view.id)
        await self._save()
        await self._tidy(attached.member)
        return Opened(issued.token, issued.view.id, session)

    async def _issue_from(self, session: SessionId, member: MemberName) -> r.TokenIssued | Refusal:
        """Make a token for the cookie, and revoke every login link in the same batch.

        That ends the sessions opened with a link. So if two people show the same link, the second one is refused.
        """
        (known,) = await ask_all(self._hub, [c.ListTokens(session, name=member)])
        links = [view.id for view in known.tokens if view.label == LINK_LABEL] if isinstance(known, r.Tokens) else []
        issue = c.IssueToken(session, name=member, label=LABEL, expires_at_ms=self._now_ms() + SESSION_MS)
        issued, *_ = await ask_all(
            self._hub, [issue, *(c.RevokeToken(session, name=member, token_id=link) for link in links)]
        )
        match issued:
            case r.TokenIssued():
                return issued
            case Refusal(code) if links or code is Code.UNKNOWN_SESSION:
                return Refusal(Code.UNAUTHORIZED, "this login link was used already")
            case _:
                assert isinstance(issued, Refusal), "a new token is answered by these"
                return issued

    async def _first_member(self, shown: str) -> str | Refusal | None:
        """Create the member of the first code and return its token. `None` if `shown` is not that code."""
        code = self._first
        if code is None or not secrets.compare_digest(shown.encode(), code.secret.encode()):
            return None
        if self._now_ms() > code.until_ms:
            way = f"`tieline login {code.name}` on the hub's machine prints another"
            return Refusal(Code.UNAUTHORIZED, f"the link of the first start was good for 15 minutes; {way}")
        # Before the first await: if two people show the code at the same time, only one gets in.
        self._first = None
        name = code.name
        replies = await self._operator.ask(
            lambda session: (c.AddMember(session, name=name, kind=MemberKind.HUMAN, permissions=OWNER_PERMISSIONS),)
        )
        made = replies[0]
        if isinstance(made, r.Issued):
            return made.token
        assert isinstance(made, Refusal), "a new member is answered by these"
        if made.code is not Code.NAME_TAKEN:
            # Perhaps the disk is full: the link can be used again.
            self._first = code
            return made
        way = f"`tieline login {name}` on the hub's machine prints a link to log in as that member"
        return Refusal(Code.NAME_TAKEN, f"{name} became a member before this link was opened; {way}")

    # For all sessions.

    async def find(self, session_id: str) -> LoginSession | None:
        """Return the session of a cookie, if it is still valid. This extends the session."""
        session, changed = self._logins.find(session_id, self._now_ms())
        if changed:
            await self._save()
        return session

    async def drop(self, session_id: str) -> None:
        """Drop a session that the hub does not know any more."""
        if self._logins.sign_out(session_id):
            await self._save()

    async def sign_out(self, session_id: str, member: MemberName, token_id: str = "") -> None:
        """End a session. `token_id` is its token's id, if the cookie has it: old sessions are only in the cookie."""
        await self.drop(session_id)
        await self._tidy(member, [token_id] if token_id else [])

    async def forget(self, member: str) -> None:
        """Forget the logins of a removed member."""
        if self._logins.forget(member):
            # The member's tokens were removed with the member.
            self._logins.take_ended()
            await self._save()

    async def reconcile(self, since_ms: Mapping[str, int]) -> None:
        """Forget members that were removed while the hub was down. `since_ms`: all members, each since when."""
        if self._logins.reconcile(since_ms):
            self._logins.take_ended()
            await self._save()

    async def _tidy(self, member: MemberName, also: Sequence[str] = ()) -> None:
        """Revoke the tokens of sessions that have ended for any reason."""
        over = [(MemberName(one.member), one.token_id) for one in self._logins.take_ended() if one.token_id]
        over += [(member, token_id) for token_id in also]
        good = {_label(session.digest) for session in self._logins.sessions_of(member)}
        match await self._operator.ask(lambda session: (c.ListTokens(session, name=member),)):
            case (r.Tokens(tokens),):
                codes = [token for token in tokens if token.label.startswith(_LABEL_OF_CODE)]
                over += [(member, token.id) for token in codes if token.label not in good]
            case _:
                pass
        if over:
            await self._operator.ask(
                lambda session: [c.RevokeToken(session, name=name, token_id=token_id) for name, token_id in over]
            )

    async def _save(self) -> None:
        """Write the current state to disk. Writes happen one after the other, so the last state wins."""
        async with self._saving:
            await asyncio.to_thread(write_private, self._path, self._logins.encode())


def _load(path: Path, randomness: Callable[[int], bytes]) -> Logins:
    if not path.exists():
        return Logins(randomness)
    try:
        return Logins(randomness, path.read_bytes())
    except msgspec.MsgspecError as error:
        raise UnreadableLogins(f"{path}: {error}") from error


def _label(digest: str) -> str:
    return _LABEL_OF_CODE + digest[:_LABEL_DIGITS]
