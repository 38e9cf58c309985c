"""How a person gets into the console, and out: `/api/session`.

Above: the page. Below: the Hub port. Whoever shows a token gets another one, of its own, in a cookie that no script can
read and no other site can make a browser send; so a console's session is listed, expires and is revoked like any token,
and the hub keeps only its hash. A *login link* is a token that is good for one entry.
"""

import secrets
from collections.abc import Callable
from http import HTTPMethod

from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Credential, MemberKind
from tieline.contract.permission import OWNER_PERMISSIONS
from tieline.contract.refusal import Code, Refusal
from tieline.wire.http import (
    LOGIN_COOKIE,
    SESSION_COOKIE,
    Answer,
    Bodies,
    answer,
    cookie,
    decode,
    failure,
    foreign,
    header,
    respond,
    session_token,
)
from tieline.wire.sessions import Held, Sessions, ask_all
from tieline.wire.unfinished import Unfinished

PATH = "/api/session"
LABEL = "console"
LINK_LABEL = "login link"

SESSION_MS = 7 * 24 * 3600 * 1000
_CODE_MS = 15 * 60 * 1000
_BODY_BYTES_MAX = 4096
_STATUS = {Code.UNAUTHORIZED: 401, Code.FORBIDDEN: 403, Code.NAME_TAKEN: 409}
_METHODS = (HTTPMethod.GET, HTTPMethod.POST, HTTPMethod.DELETE)


class _Entry(Struct, frozen=True):
    """What a person shows."""

    token: str


class Visitor(Struct, frozen=True):
    """Who is in."""

    member: str
    kind: str
    permissions: tuple[str, ...]
    version: str


class _Code(Struct, frozen=True):
    """The way in at a first start: whoever has it becomes this member, who is made then."""

    secret: str
    name: MemberName
    until_ms: int


class Entrance:
    """The sessions of people with a browser."""

    def __init__(self, hub: Hub, operator: Credential, now_ms: Callable[[], int], version: str) -> None:
        self._hub = hub
        # Makes the first member.
        self._operator = operator
        self._now_ms = now_ms
        self._version = version
        self._sessions = Sessions(hub, "console")
        # No body here is large enough to be counted.
        self._bodies = Bodies(Unfinished(hub.limits))
        self._code: _Code | None = None

    def first_code(self, name: MemberName) -> str:
        """A code by which one person can get in, as a member of this name who may do everything."""
        code = secrets.token_urlsafe(24)
        self._code = _Code(code, name, self._now_ms() + _CODE_MS)
        return code

    def serves(self, scope: Scope) -> bool:
        """Whether this request is for it."""
        return bool(scope["type"] == "http" and scope["path"] == PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await respond(send, await self._answer(scope, receive))

    def close(self) -> None:
        """The hub stops."""
        self._sessions.close()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        if foreign(scope):
            return failure(403, "this request comes from a page of another site")
        match scope["method"]:
            case "GET":
                return await self._look(scope)
            case "POST":
                return await self._enter(scope, receive)
            case "DELETE":
                return await self._leave(scope)
            case _:
                allow = ", ".join(_METHODS).encode()
                return Answer(405, failure(405, "GET, POST or DELETE").body, headers=((b"allow", allow),))

    async def _look(self, scope: Scope) -> Answer:
        token = session_token(scope)
        if not token:
            return failure(401, "nobody is logged in")
        held = await self._sessions.of(token)
        if isinstance(held, Refusal):
            return _refused(held)
        visitor = await self._visitor(token, held)
        return _refused(visitor) if isinstance(visitor, Refusal) else answer(visitor)

    async def _enter(self, scope: Scope, receive: Receive) -> Answer:
        if not (header(scope, b"content-type") or "").startswith("application/json"):
            return failure(415, "send JSON, with content-type application/json")
        body = await self._bodies.read(scope, receive, _BODY_BYTES_MAX)
        if isinstance(body, Answer):
            return body
        entry = decode(body, _Entry)
        if isinstance(entry, Answer):
            return entry
        first = await self._first_member(entry.token)
        if isinstance(first, Refusal):
            return _refused(first)
        held = await self._sessions.of(first or entry.token)
        if isinstance(held, Refusal):
            return _refused(held)
        issued = await self._issue(held)
        if isinstance(issued, Refusal):
            return _refused(issued)
        fresh = await self._sessions.of(issued.token)
        if isinstance(fresh, Refusal):
            return _refused(fresh)
        # The browser forgets the session that it had, so nobody shall have it.
        await self._void(scope)
        visitor = await self._visitor(issued.token, fresh)
        if isinstance(visitor, Refusal):
            return _refused(visitor)
        cookies = [_cookie(scope, SESSION_COOKIE, f"{issued.view.id}.{issued.token}", SESSION_MS // 1000)]
        if cookie(scope, LOGIN_COOKIE) is not None:
            # Nor shall it have a login of somebody else beside this one.
            cookies.append(_cookie(scope, LOGIN_COOKIE, "", 0))
        return Answer(200, answer(visitor).body, headers=tuple(cookies))

    async def _issue(self, held: Held) -> r.TokenIssued | Refusal:
        """A token for the cookie. In the same moment every login link is void, which ends the sessions that one opened:
        of two who show the same link, the second has no session to ask from.
        """
        session, member = held.session, held.member
        (known,) = await ask_all(self._hub, [c.ListTokens(session, member)])
        links = [view.id for view in known.tokens if view.label == LINK_LABEL] if isinstance(known, r.Tokens) else []
        issue = c.IssueToken(session, member, LABEL, self._now_ms() + SESSION_MS)
        issued, *_ = await ask_all(self._hub, [issue, *(c.RevokeToken(session, member, link) for link in links)])
        if isinstance(issued, Refusal):
            return Refusal(Code.UNAUTHORIZED, "this login link was used already") if links else issued
        assert isinstance(issued, r.TokenIssued), "asked for"
        return issued

    async def _first_member(self, shown: str) -> str | Refusal | None:
        """The token of the member that a first start's code makes; none if this is no such code."""
        code = self._code
        if code is None or not secrets.compare_digest(shown.encode(), code.secret.encode()):
            return None
        if self._now_ms() > code.until_ms:
            way = f"`tieline login {code.name}` on the hub's machine prints another"
            return Refusal(Code.UNAUTHORIZED, f"the link of the first start was good for 15 minutes; {way}")
        # At once, so that of two who show it together only one gets in.
        self._code = None
        made = await self._make(code.name)
        if isinstance(made, r.Issued):
            return made.token
        if made.code is not Code.NAME_TAKEN:
            # A full disk, perhaps: the link is good for another try.
            self._code = code
            return made
        way = f"`tieline login {code.name}` on the hub's machine prints a link to log in as that member"
        return Refusal(Code.NAME_TAKEN, f"{code.name} became a member before this link was opened; {way}")

    async def _make(self, name: MemberName) -> r.Issued | Refusal:
        attached = await self._hub.ask(c.Attach(protocol="console", credential=self._operator))
        if not isinstance(attached, r.Attached):
            assert isinstance(attached, Refusal), "an attach is answered by these"
            return attached
        made = await self._hub.ask(c.AddMember(attached.session, name, MemberKind.HUMAN, OWNER_PERMISSIONS))
        self._hub.submit((c.Detach(attached.session),))
        assert isinstance(made, r.Issued | Refusal), "a new member is answered by these"
        return made

    async def _leave(self, scope: Scope) -> Answer:
        await self._void(scope)
        return Answer(204, b"", headers=(_cookie(scope, SESSION_COOKIE, "", 0),))

    async def _void(self, scope: Scope) -> None:
        """Revoke the token in the cookie, if there is one."""
        token_id, _, token = (cookie(scope, SESSION_COOKIE) or "").partition(".")
        held = await self._sessions.of(token) if token else None
        if isinstance(held, Held):
            await ask_all(self._hub, [c.RevokeToken(held.session, held.member, token_id)])

    async def _visitor(self, token: str, held: Held) -> Visitor | Refusal:
        # The session may end in this moment, with its token or without.
        (roster,) = await self._sessions.ask(token, held, lambda session: [c.ListMembers(session, held.member)])
        if isinstance(roster, Refusal):
            return roster
        assert isinstance(roster, r.Roster), "asked for"
        member = roster.members[0].member
        return Visitor(member.name, member.kind.value, member.permissions, self._version)


def _cookie(scope: Scope, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if scope.get("scheme") in {"https", "wss"} else ""
    text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()


def _refused(why: Refusal) -> Answer:
    return failure(_STATUS.get(why.code, 503), why.message)
