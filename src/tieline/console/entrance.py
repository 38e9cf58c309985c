"""The way into the console, and out: `/api/session`, and `/api/session/code` for a code of an authenticator app.

Above: the page. Below: the hub's login sessions. Whoever shows a token gets another one, of its own, in a cookie that
no script can read and no other site can make a browser send; so a console's session is listed, expires and is revoked
like any token, and the hub keeps only its hash. A *login link* is a token that is good for one entry.
"""

from http import HTTPMethod
from typing import Annotated, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.services.login_sessions import LoginSessions, Opened
from tieline.services.logins import ATTEMPT_MS, SESSION_MS, Denied
from tieline.wire.http import (
    LOGIN_COOKIE,
    SESSION_COOKIE,
    Answer,
    Bodies,
    answer,
    clear,
    cookie,
    decode,
    failure,
    foreign,
    header,
    respond,
    session_token,
    set_cookie,
)
from tieline.wire.route import later
from tieline.wire.sessions import Held, Sessions
from tieline.wire.unfinished import Unfinished

PATH = "/api/session"
CODE_PATH = "/api/session/code"
ATTEMPT_COOKIE = "tieline_attempt"

_PROTOCOL = "console"
_BODY_BYTES_MAX = 4096  # a name and a code or token
_STATUS = {Code.UNAUTHORIZED: 401, Code.FORBIDDEN: 403, Code.NAME_TAKEN: 409}
_METHODS = (HTTPMethod.GET, HTTPMethod.POST, HTTPMethod.DELETE)


_Shape = TypeVar("_Shape")


class _Entry(Struct, frozen=True):
    """A token, a login link's token, or the code of a first start."""

    token: str


class _Code(Struct, frozen=True):
    """A code of an authenticator app; without a name it must be right for exactly one member."""

    code: Annotated[str, Meta(pattern=r"^[0-9]{6}$")]
    member: str | None = None


class Visitor(Struct, frozen=True):
    """The member that is logged in."""

    member: str
    kind: str
    permissions: tuple[str, ...]
    version: str


class Entrance:
    """The sessions of people with a browser."""

    def __init__(self, hub: Hub, logins: LoginSessions, version: str) -> None:
        self._hub = hub
        self._logins = logins
        self._version = version
        self._sessions = Sessions(hub, _PROTOCOL)
        # No body here is large enough to be counted.
        self._bodies = Bodies(Unfinished(hub.limits))

    def serves(self, scope: Scope) -> bool:
        """True if this request is for it."""
        return bool(scope["type"] == "http" and scope["path"] in (PATH, CODE_PATH))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await respond(send, await self._answer(scope, receive))

    def close(self) -> None:
        """The hub stops."""
        self._sessions.close()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        if foreign(scope):
            return failure(403, "this request comes from a page of another site")
        if scope["path"] == CODE_PATH:
            return await self._enter_by_code(scope, receive)
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
        entry = await self._form(scope, receive, _Entry)
        if isinstance(entry, Answer):
            return entry
        opened = await self._logins.enter(entry.token)
        return _refused(opened) if isinstance(opened, Refusal) else await self._admit(scope, opened)

    async def _enter_by_code(self, scope: Scope, receive: Receive) -> Answer:
        if scope["method"] != "POST":
            return Answer(405, failure(405, "only POST is answered here").body, headers=((b"allow", b"POST"),))
        entry = await self._form(scope, receive, _Code)
        if isinstance(entry, Answer):
            return entry
        opened = await self._logins.sign_in(entry.code, entry.member, cookie(scope, ATTEMPT_COOKIE))
        if isinstance(opened, Opened):
            return await self._admit(scope, opened)
        self._hub.submit((c.RecordRefusal(protocol=_PROTOCOL, code=Code.UNAUTHORIZED, what="log in"),))
        return _denied(scope, opened)

    async def _form(self, scope: Scope, receive: Receive, shape: type[_Shape]) -> _Shape | Answer:
        if not (header(scope, b"content-type") or "").startswith("application/json"):
            return failure(415, "send JSON, with content-type application/json")
        body = await self._bodies.read(scope, receive, _BODY_BYTES_MAX)
        return body if isinstance(body, Answer) else decode(body, shape)

    async def _admit(self, scope: Scope, opened: Opened) -> Answer:
        fresh = await self._sessions.of(opened.id)
        if isinstance(fresh, Refusal):
            return _refused(fresh)
        # The browser forgets the sessions that it had, so nobody shall have them.
        await self._void(scope)
        visitor = await self._visitor(opened.id, fresh)
        if isinstance(visitor, Refusal):
            return _refused(visitor)
        cookies = [set_cookie(scope, SESSION_COOKIE, f"{opened.token_id}.{opened.id}", SESSION_MS // 1000)]
        return Answer(200, answer(visitor).body, headers=(*cookies, *_cleared(scope)))

    async def _leave(self, scope: Scope) -> Answer:
        await self._void(scope)
        return Answer(204, b"", headers=(clear(scope, SESSION_COOKIE), *_cleared(scope)))

    async def _void(self, scope: Scope) -> None:
        """End the sessions in the cookies: a session has one of two names."""
        token_id, _, token = (cookie(scope, SESSION_COOKIE) or "").partition(".")
        for session, known in ((token, token_id), (cookie(scope, LOGIN_COOKIE) or "", "")):
            held = await self._sessions.of(session) if session else None
            if isinstance(held, Held):
                await self._logins.sign_out(session, held.member, known)

    async def _visitor(self, token: str, held: Held) -> Visitor | Refusal:
        # The session may end in this moment, with its token or without.
        (roster,) = await self._sessions.ask(token, held, lambda session: [c.ListMembers(session, name=held.member)])
        if isinstance(roster, Refusal):
            return roster
        assert isinstance(roster, r.Roster), "asked for"
        member = roster.members[0].member
        return Visitor(member.name, member.kind.value, member.permissions, self._version)


def _cleared(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """The header that takes the other name of a session away, where a browser has it."""
    return (clear(scope, LOGIN_COOKIE),) if cookie(scope, LOGIN_COOKIE) is not None else ()


def _denied(scope: Scope, denied: Denied) -> Answer:
    if denied.attempt is None:
        return failure(denied.status, denied.error)
    said = later(denied.error, denied.retry_after)
    return replace(said, headers=(*said.headers, set_cookie(scope, ATTEMPT_COOKIE, denied.attempt, ATTEMPT_MS // 1000)))


def _refused(why: Refusal) -> Answer:
    return failure(_STATUS.get(why.code, 503), why.message)
