"""The caller of a request: the member that its bearer token or its login cookie belongs to.

Used by: the server, which finds the caller before it reads the rest of a request. Uses: the sessions that requests
share, and the hub's login sessions.
"""

from starlette.types import Scope

from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7.cookies import read_cookie
from tieline.services.login_sessions import LoginSessions
from tieline.wire.http import console_token, header
from tieline.wire.route import UNKNOWN_TOKEN, Caller, Refused, no, refused
from tieline.wire.sessions import Sessions

_BEARER = "Bearer "
_NO_BEARER = no(401, "missing bearer token")
_OVER = no(401, "session expired")


class Callers:
    """Finds the member that makes an HTTP request, by the token or the login cookie of the request."""

    def __init__(self, sessions: Sessions, logins: LoginSessions) -> None:
        self._sessions = sessions
        self._logins = logins

    async def of(self, scope: Scope, bearer_only: bool) -> Caller:
        """Return the member that makes a request, and its session with the hub.

        With `bearer_only`, a login cookie is refused. Raises `Refused` if there is no valid token or cookie.
        """
        shown = header(scope, b"authorization")
        if shown is not None:
            return await self._by_token(shown)
        token = console_token(scope)
        cookie = read_cookie(header(scope, b"cookie") or "")
        if token is None and cookie is None:
            raise Refused(no(401, "missing credentials"))
        if bearer_only:
            raise Refused(_NO_BEARER)
        if token is not None:
            return await self._by_console(token)
        assert cookie is not None, "asked above"
        return await self._by_cookie(cookie)

    async def _by_console(self, token: str) -> Caller:
        cached = await self._sessions.of(token)
        if isinstance(cached, Refusal):
            raise Refused(_OVER if cached.code is Code.UNAUTHORIZED else refused(cached))
        return Caller(token, cached, by_cookie=True)

    async def _by_token(self, shown: str) -> Caller:
        token = shown.removeprefix(_BEARER).strip() if shown.startswith(_BEARER) else ""
        if not token:
            raise Refused(_NO_BEARER)
        cached = await self._sessions.of(token)
        if isinstance(cached, Refusal):
            raise Refused(no(401, UNKNOWN_TOKEN) if cached.code is Code.UNAUTHORIZED else refused(cached))
        return Caller(token, cached)

    async def _by_cookie(self, cookie: str) -> Caller:
        if await self._logins.find(cookie) is None:
            raise Refused(_OVER)
        cached = await self._sessions.of(cookie)
        if not isinstance(cached, Refusal):
            return Caller(cookie, cached, by_cookie=True)
        if cached.code is not Code.UNAUTHORIZED:
            raise Refused(refused(cached))
        await self._logins.drop(cookie)
        raise Refused(_OVER)
