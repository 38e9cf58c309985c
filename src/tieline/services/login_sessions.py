"""Login sessions of browsers, opened by a code, a token, a login link or the link of a first start.

Used by: the console's login, and protocols with their own logins, whose cookies hold the same sessions. Uses: `logins`,
which has the rules for codes and sessions; the file of logins; and the hub. The id of a login session is a token of the
member, and the hub treats it like any other token. So a session has the rights of its member. The session ends when the
member is removed, when the member's tokens are replaced, or when the token is revoked in the list of tokens. A session
lasts seven days after its last use, and thirty days at most, because the hub does not extend tokens.

The hub also has a token for each authenticator app of a member. This token is in the list of tokens, in the audit log,
and can be revoked. If the tokens of a member are replaced, the app is removed. Nobody ever sees this token: it is
computed from the app's secret. A login with a code uses this token to open a session with the hub. So a code of a
removed app is refused, no matter how the app was removed.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByToken, MemberKind, TokenView
from tieline.contract.permission import OWNER_PERMISSIONS
from tieline.contract.refusal import Code, Refusal
from tieline.services.document import Document
from tieline.services.logins import (
    INVALID_CODE,
    SESSION_MS,
    Denied,
    Logins,
    LoginSession,
    SignedIn,
    app_token,
)
from tieline.services.operator import Operator
from tieline.wire.sessions import Make, ask_all

LOGINS_FILE = "logins.json"
LABEL = "console"
"""Label of the token of a login session that was not opened by a code."""
LINK_LABEL = "login link"
"""Label of a token that can be used for only one login."""
APP_LABEL = "authenticator app"
"""Label of the token of an authenticator app."""

Ask = Callable[[Make], Awaitable[Sequence[r.Reply]]]
"""Type of a function that submits commands to the hub and returns the replies. The commands run in the session of the
member who makes the request."""

_TOKEN_MS = 30 * 24 * 3600 * 1000
_LABEL_DIGITS = 12
_LABEL_OF_CODE = re.compile(r"login [0-9a-f]{12}")
"""Form of the label of a login session's token, if a code of an authenticator app opened the session. No other token
has a label of this form."""
_FIRST_CODE_MS = 15 * 60 * 1000
_PROTOCOL = "console"
_EXCERPT = 140
"""Maximum number of characters that an error message repeats from the text of a request. Every valid name is
shorter."""


class UnreadableLogins(ValueError):
    """Raised if the file of logins is damaged. The text describes the error."""


class Opened(Struct, frozen=True):
    """Result of a successful login: the new session, its id for the browser's cookie, and the id of its token."""

    id: str
    """Id of the session, for the browser's cookie. The hub does not store this id."""
    token_id: str
    """Id of the session's token at the hub."""
    session: LoginSession


class _FirstCode(Struct, frozen=True):
    """Login code for the owner of a hub, made at the hub's first start.

    The person who enters this code is logged in as the member `name`. The hub creates the member at that moment.
    """

    secret: str
    name: MemberName
    until_ms: int


class LoginSessions:
    """Service for the login sessions and authenticator apps of a hub.

    It issues and revokes their tokens at the hub, and writes the file of logins.
    """

    def __init__(
        self,
        hub: Hub,
        operator: Operator,
        document: Document,
        now_ms: Callable[[], int],
        randomness: Callable[[int], bytes],
    ) -> None:
        self._hub = hub
        self._operator = operator
        self._document = document
        self._now_ms = now_ms
        self._logins = _load(document, randomness)
        self._saving = asyncio.Lock()
        # Held while the token of an app and its secret may differ.
        self._changing_apps = asyncio.Lock()
        self._first: _FirstCode | None = None

    # Login with a code of an authenticator app.

    async def enrol(self, member: MemberName, ask: Ask) -> str | Refusal:
        """Give a member a new secret for its authenticator app, and return the secret.

        The old secret becomes invalid, and all login sessions that were opened by a code end. `ask` submits commands
        for the member who makes the request. This is the member itself, or a member with `members.manage`.
        """
        async with self._changing_apps:
            secret = self._logins.new_secret()
            old = self._logins.app(member)
            revoked = old.token_id if old is not None else ""

            def commands(session: SessionId) -> Sequence[c.Command]:
                issue = c.IssueToken(session, name=member, label=APP_LABEL, token=app_token(secret))
                # First, so that a member with as many tokens as it may have can replace its app.
                return (c.RevokeToken(session, name=member, token_id=revoked), issue) if revoked else (issue,)

            match (await ask(commands))[-1]:
                case r.TokenIssued(_, _, view):
                    self._logins.enrol(member, secret, self._now_ms(), view.id)
                case Refusal(Code.UNKNOWN_MEMBER):
                    return Refusal(Code.UNKNOWN_MEMBER, f"no such member: {member[:_EXCERPT]}")
                case refusal:
                    assert isinstance(refusal, Refusal), "a new token is answered by these"
                    return refusal
            await self._save()
        await self._revoke_ended(member)
        return secret

    async def sign_in(self, code: str, member: str | None, attempt: str | None = None) -> Opened | Denied:
        """Log in with a code of an authenticator app. Return the new login session, or the refusal.

        `member` may be `None`. Then the code must match exactly one member. `attempt` is the id in the browser's
        cookie, if the answer to an earlier code was "too many failed attempts".
        """
        result = self._logins.sign_in(code, member, self._now_ms(), attempt)
        if isinstance(result, Denied):
            return result
        # Save before the login succeeds, because a code must be valid only once, whatever happens next.
        await self._save()
        await self._revoke_ended(MemberName(result.session.member))
        issued = await self._issue(result)
        if isinstance(issued, r.TokenIssued):
            return Opened(result.id, issued.view.id, result.session)
        await self.drop(result.id)
        if issued.code is Code.TOO_MANY_TOKENS:
            return Denied(409, issued.message)
        # The app or the member was removed.
        return Denied(401, INVALID_CODE)

    async def _issue(self, signed: SignedIn) -> r.TokenIssued | Refusal:
        """Issue the token of a login session that was opened by a code of an authenticator app. Return the hub's reply.

        The token of the app opens the hub session for this command. So the hub refuses a code of a removed app.
        """
        name = MemberName(signed.session.member)
        async with self._attached(signed.app_token) as attached:
            if isinstance(attached, Refusal):
                return attached
            until = self._now_ms() + _TOKEN_MS
            label = _label(signed.session.digest)
            return await self._hub.ask(
                c.IssueToken(attached.session, name=name, label=label, expires_at_ms=until, token=signed.id)
            )

    @asynccontextmanager
    async def _attached(self, token: str) -> AsyncIterator[r.Attached | Refusal]:
        """Open a hub session with a token and yield the hub's reply. Close the session after the `with` block.

        The reply is a refusal if the token is not valid.
        """
        attached = await self._hub.ask(c.Attach(protocol=_PROTOCOL, credential=ByToken(token)))
        try:
            yield attached
        finally:
            if isinstance(attached, r.Attached):
                self._hub.submit((c.Detach(attached.session),))

    # Login with a token, a login link, or the link of a first start.

    def first_code(self, name: MemberName) -> str:
        """Make and return a code with which one person can log in at the first start of the hub.

        When this person logs in, the hub creates a new member with the name `name` and all permissions.
        """
        code = secrets.token_urlsafe(24)
        self._first = _FirstCode(code, name, self._now_ms() + _FIRST_CODE_MS)
        return code

    async def enter(self, shown: str) -> Opened | Refusal:
        """Log in with `shown`, which is a token or the login code of the first start. Return the new login session.

        With the login code of the first start, create the first member and log in as this member. Return a refusal if
        `shown` is not valid.
        """
        first = await self._first_member(shown)
        if isinstance(first, Refusal):
            return first
        async with self._attached(first or shown) as attached:
            if isinstance(attached, Refusal):
                return attached
            assert attached.member is not None, "a token belongs to a member"
            issued = await self._issue_from(attached.session, attached.member)
        if isinstance(issued, Refusal):
            return issued
        session = self._logins.open(attached.member, issued.token, self._now_ms(), issued.view.id)
        await self._save()
        await self._revoke_ended(attached.member)
        return Opened(issued.token, issued.view.id, session)

    async def _issue_from(self, session: SessionId, member: MemberName) -> r.TokenIssued | Refusal:
        """Issue the token of a new login session, and revoke all login links of the member in the same batch.

        Return the hub's reply with the token, which becomes the browser's cookie. `session` is the hub session that the
        person's token or link opened. Revoking a link ends the hub sessions that were opened with it. So if two people
        use the same link, the second one is refused.
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
        """If `shown` is the login code of the first start, create the first member and return its token.

        Otherwise return `None`.
        """
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
        """Return the login session whose id is in a browser's cookie; `None` if it has ended.

        Also extend the session.
        """
        session, changed = self._logins.find(session_id, self._now_ms())
        if changed:
            await self._save()
            if session is None:
                await self._revoke_ended()
        return session

    async def drop(self, session_id: str) -> None:
        """End a login session, because the hub does not know its token any more."""
        if self._logins.sign_out(session_id):
            await self._save()
            await self._revoke_ended()

    async def sign_out(self, session_id: str, member: MemberName, token_id: str = "") -> None:
        """Log out: end the login session and revoke its token.

        `token_id` is the id of the session's token, if the cookie contains this id. Sessions that an older version of
        the hub opened are found only by this id.
        """
        if self._logins.sign_out(session_id):
            await self._save()
        await self._revoke_ended(member, token_id=token_id)

    async def forget(self, member: str) -> None:
        """Delete the login sessions and the authenticator app of a removed member."""
        if self._logins.forget(member):
            await self._save()

    async def reconcile(self, since_ms: Mapping[str, int]) -> None:
        """Delete the logins of members that were removed while the hub was down.

        `since_ms` has the creation time of every current member, by name.
        """
        if self._logins.reconcile(since_ms):
            await self._save()

    async def check(self) -> None:
        """End login sessions that nobody used for too long, and remove authenticator apps whose tokens were revoked.

        The hub knows when each token was last used, on any route. So this function also extends sessions that are in
        use.
        """
        changed = False
        async with self._changing_apps:
            names = [MemberName(name) for name in self._logins.members()]
            for name, tokens in (await self._tokens_of(names)).items():
                changed |= await self._check_app(name, tokens)
                used = {token.label: token.last_used_ms for token in tokens if token.last_used_ms is not None}
                for session in self._logins.sessions_of(name):
                    label = _label(session.digest)
                    changed |= label in used and self._logins.extend(session.digest, used[label])
            changed |= self._logins.expire(self._now_ms())
            if changed:
                await self._save()
        await self._revoke_ended()

    async def _check_app(self, member: MemberName, tokens: Sequence[TokenView]) -> bool:
        """Remove a member's authenticator app if the app's token was revoked.

        If an older version of the hub made the app without a token, issue the token. `tokens` are the member's tokens
        at the hub. Return true if the data in the file of logins changed.
        """
        app = self._logins.app(member)
        if app is None or any(token.id == app.token_id for token in tokens):
            return False
        if app.token_id:
            return self._logins.remove_app(member)
        match await self._operator.ask(
            lambda session: (c.IssueToken(session, name=member, label=APP_LABEL, token=app_token(app.secret)),)
        ):
            case (r.TokenIssued(_, _, view),):
                self._logins.register_app(member, view.id)
                return True
            case _:
                return False

    async def _tokens_of(self, members: Sequence[MemberName]) -> dict[MemberName, tuple[TokenView, ...]]:
        """Return the tokens of these members at the hub, by member. A member that the hub does not know is left out."""
        if not members:
            return {}
        replies = await self._operator.ask(lambda session: [c.ListTokens(session, name=name) for name in members])
        return {name: one.tokens for name, one in zip(members, replies, strict=False) if isinstance(one, r.Tokens)}

    async def _revoke_ended(self, *members: MemberName, token_id: str = "") -> None:
        """Revoke the tokens of all login sessions that have ended, for any reason.

        Also look for ended sessions among the tokens of `members`, and revoke the token `token_id`, if given.
        """
        ended = self._logins.take_ended()
        ids = {token_id, *(one.token_id for one in ended)} - {""}
        names = {*members, *(MemberName(one.member) for one in ended)}
        over: list[tuple[MemberName, str]] = []
        for name, tokens in (await self._tokens_of(sorted(names))).items():
            # After the hub has answered: another login may have opened a session meanwhile.
            good = {_label(session.digest) for session in self._logins.sessions_of(name)}
            codes = {token.id for token in tokens if _LABEL_OF_CODE.fullmatch(token.label) and token.label not in good}
            over += [(name, token.id) for token in tokens if token.id in ids | codes]
        if over:
            await self._operator.ask(
                lambda session: [c.RevokeToken(session, name=name, token_id=one) for name, one in over]
            )

    async def _save(self) -> None:
        """Write the logins to their file.

        Only one write runs at a time, so the file always has the latest data at the end.
        """
        async with self._saving:
            await asyncio.to_thread(self._document.write, self._logins.encode())


def _load(document: Document, randomness: Callable[[int], bytes]) -> Logins:
    content = document.read()
    if content is None:
        return Logins(randomness)
    try:
        return Logins(randomness, content)
    except msgspec.MsgspecError as error:
        raise UnreadableLogins(f"{document.name}: {error}") from error


def _label(digest: str) -> str:
    return f"login {digest[:_LABEL_DIGITS]}"
