"""Login and logout of the console: `/api/session`, and `/api/session/code` for a code of an authenticator app.

Used by: the console's web page. Uses: the hub's login sessions. A visitor who logs in with a token gets a new token, in
a cookie. No script can read the cookie, and pages of other sites cannot make a browser send the cookie. The hub lists
the new token like any other token, and stores only its hash. The token expires and can be revoked. A *login link*
contains a token that can be used for only one login.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.types import Scope

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.services.login_sessions import LoginSessions, Opened
from tieline.services.logins import ATTEMPT_MS, SESSION_MS, Denied
from tieline.wire.http import (
    SESSION_COOKIE,
    Answer,
    Bodies,
    answer,
    clear,
    cookie,
    failure,
    foreign,
    header,
    logins,
    session_token,
    set_cookie,
)
from tieline.wire.route import NO_CONTENT, Call, Errors, Refused, Route, later
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import CachedSession, Sessions
from tieline.wire.unfinished import Unfinished

PATH = "/api/session"
CODE_PATH = "/api/session/code"
ATTEMPT_COOKIE = "tieline_attempt"

_PROTOCOL = "console"
_BODY_BYTES_MAX = 4096  # a name and a code or token
_STATUS = {Code.UNAUTHORIZED: 401, Code.FORBIDDEN: 403, Code.NAME_TAKEN: 409}


class Entry(Struct, frozen=True):
    """JSON input of `POST /api/session` (login): a token, a login link's token, or the code of a first start."""

    token: str


class CodeEntry(Struct, frozen=True):
    """JSON input of `POST /api/session/code` (login): a code of an authenticator app.

    Without a member name, the code must match exactly one member.
    """

    code: Annotated[str, Meta(pattern=r"^[0-9]{6}$")]
    member: str | None = None


class Visitor(Struct, frozen=True):
    """Answer to a login or to `GET /api/session`: the member that is logged in."""

    member: str
    kind: str
    permissions: tuple[str, ...]
    version: str


class LoginApp(RouteApp):
    """HTTP application with the routes by which people log in to the hub and log out with a browser."""

    def __init__(self, hub: Hub, logins: LoginSessions, version: str) -> None:
        self._logins = logins
        self._version = version
        entry = partial(Route, "POST", open=True, answered=Visitor, body_bytes_max=_BODY_BYTES_MAX)
        table = (
            Route("GET", PATH, self.look),
            entry(PATH, self.enter, errors=(401, 415)),
            Route("DELETE", PATH, self.leave, open=True, status=NO_CONTENT),
            entry(CODE_PATH, self.enter_by_code, errors=(401, 415, 429)),
        )
        # All bodies here are too small to be counted.
        bodies = Bodies(Unfinished(hub.limits))
        super().__init__(hub, Sessions(hub, _PROTOCOL), table, bodies, check=_check, token=_token, errors=_ERRORS)

    # Routes.

    async def look(self, call: Call, _: None) -> Visitor:
        """The member that is logged in."""
        visitor = await self._visitor(call.caller.token, call.caller.cached)
        if isinstance(visitor, Refusal):
            raise Refused(_refused(visitor))
        return visitor

    async def enter(self, call: Call, entry: Entry) -> Answer:
        """Log in with a token, a login link's token, or the code of a first start."""
        opened = await self._logins.enter(entry.token)
        return _refused(opened) if isinstance(opened, Refusal) else await self._admit_visitor(call.scope, opened)

    async def enter_by_code(self, call: Call, entry: CodeEntry) -> Answer:
        """Log in with a code of an authenticator app."""
        scope = call.scope
        opened = await self._logins.sign_in(entry.code, entry.member, cookie(scope, ATTEMPT_COOKIE))
        if isinstance(opened, Opened):
            return await self._admit_visitor(scope, opened)
        self._hub.submit((c.RecordRefusal(protocol=_PROTOCOL, code=Code.UNAUTHORIZED, what="log in"),))
        return _denied(scope, opened)

    async def leave(self, call: Call, _: None) -> Answer:
        """Log out."""
        await self._void(call.scope)
        return Answer(NO_CONTENT, b"", headers=(clear(call.scope, SESSION_COOKIE), *_cleared(call.scope)))

    # Internals.

    async def _admit_visitor(self, scope: Scope, opened: Opened) -> Answer:
        fresh = await self._sessions.of(opened.id)
        if isinstance(fresh, Refusal):
            return _refused(fresh)
        # The new cookie replaces the browser's old sessions, so they must end.
        await self._void(scope)
        visitor = await self._visitor(opened.id, fresh)
        if isinstance(visitor, Refusal):
            return _refused(visitor)
        cookies = [set_cookie(scope, SESSION_COOKIE, f"{opened.token_id}.{opened.id}", SESSION_MS // 1000)]
        return Answer(200, answer(visitor).body, headers=(*cookies, *_cleared(scope)))

    async def _void(self, scope: Scope) -> None:
        """End the login sessions of all cookies in a request: of the console's cookie and of protocols' cookies."""
        token_id, _, token = (cookie(scope, SESSION_COOKIE) or "").partition(".")
        for session, known in ((token, token_id), *((login, "") for login in logins(scope).values())):
            cached = await self._sessions.of(session) if session else None
            if isinstance(cached, CachedSession):
                await self._logins.sign_out(session, cached.member, known)

    async def _visitor(self, token: str, cached: CachedSession) -> Visitor | Refusal:
        # The session may end at this moment, with or without its token.
        (roster,) = await self._sessions.ask(
            token, cached, lambda session: [c.ListMembers(session, name=cached.member)]
        )
        if isinstance(roster, Refusal):
            return roster
        assert isinstance(roster, r.Roster), "asked for"
        member = roster.members[0].member
        return Visitor(member.name, member.kind.value, member.permissions, self._version)


def _token(scope: Scope) -> str | None:
    """Return the token in the header or in a cookie of a request. Return `None` if it is missing or empty."""
    return session_token(scope) or None


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(failure(403, "this request comes from a page of another site"))
    if scope["method"] == "POST" and not (header(scope, b"content-type") or "").startswith("application/json"):
        raise Refused(failure(415, "send JSON, with content-type application/json"))


def _not_allowed(scope: Scope, methods: Sequence[str]) -> Answer:
    _check(scope)
    text = "only POST is answered here" if len(methods) == 1 else "GET, POST or DELETE"
    return replace(failure(405, text), headers=((b"allow", ", ".join(methods).encode()),))


def _cleared(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """Return the `set-cookie` headers that delete the protocols' login cookies in this request."""
    return tuple(clear(scope, name) for name in logins(scope))


def _denied(scope: Scope, denied: Denied) -> Answer:
    if denied.attempt is None:
        return failure(denied.status, denied.error)
    said = later(denied.error, denied.retry_after)
    return replace(said, headers=(*said.headers, set_cookie(scope, ATTEMPT_COOKIE, denied.attempt, ATTEMPT_MS // 1000)))


def _refused(why: Refusal) -> Answer:
    return failure(_STATUS.get(why.code, 503), why.message)


_ERRORS = Errors(
    refused=_refused,
    no_token=failure(401, "nobody is logged in"),
    not_allowed=_not_allowed,
    invalid_json="invalid JSON",
)
