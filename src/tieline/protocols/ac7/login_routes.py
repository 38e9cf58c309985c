"""Logins over HTTP: a code from an authenticator app opens a session, and a cookie holds its id.

Used by: the server. Uses: the hub's login sessions. The cookie is `SameSite=Strict`. The hub's log records every failed
login.
"""

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Member
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.cookies import ATTEMPT_COOKIE, clear_cookie, read_cookie, set_attempt, set_cookie
from tieline.protocols.ac7.streams import PROTOCOL
from tieline.services import totp
from tieline.services.login_sessions import LoginSessions
from tieline.services.logins import Denied
from tieline.services.operator import Operator
from tieline.wire.http import SESSION_COOKIE, Answer, answer, clear, cookie
from tieline.wire.route import NO_CONTENT, STATUS, Call, Refused, Route, no, own_member

_FOR_EVER = 2**53 - 1
"""Time at which the login expires, in the answer to a caller that uses a token and has no login. Clients require a
number."""


class LoginRequest(s.Shape, frozen=True):
    """A code of an authenticator app. Without a member name, it must match exactly one member."""

    code: Annotated[str, Meta(pattern=r"^[0-9]{6}$")]
    member: s.Name | None = None


class SessionResponse(s.Shape, frozen=True):
    """The member that is logged in, and the time at which the login expires."""

    member: str
    role: s.RoleView
    permissions: tuple[s.Permission, ...]
    expires_at: int


class TotpSecret(s.Shape, frozen=True):
    """Secret for an authenticator app, shown only once."""

    totp_secret: str
    totp_uri: str


class LoginRoutes:
    """The HTTP operations with which people log in and out."""

    def __init__(self, hub: Hub, operator: Operator, logins: LoginSessions) -> None:
        self._hub = hub
        self._operator = operator
        self._logins = logins

    def routes(self) -> list[Route]:
        """Return the routes for logins."""
        return [
            Route(
                "POST",
                "/session/totp",
                self.sign_in,
                invalid="invalid login payload",
                answered=SessionResponse,
                open=True,
                errors=(401, 409, 429),
            ),
            Route("GET", "/session", self.show),
            Route("POST", "/session/logout", self.sign_out, status=NO_CONTENT),
            Route("POST", "/members/{name}/enroll-totp", self.enrol, errors=(404, 409)),
        ]

    async def sign_in(self, call: Call, form: LoginRequest) -> Answer:
        """Log in with a code. The answer sets a cookie."""
        attempt = read_cookie(call.header(b"cookie") or "", ATTEMPT_COOKIE)
        result = await self._logins.sign_in(form.code, form.member, attempt)
        if isinstance(result, Denied):
            self._hub.submit((c.RecordRefusal(protocol=PROTOCOL, code=Code.UNAUTHORIZED, what="log in"),))
            raise Refused(_denied(call, result))
        members = await self._operator.members(MemberName(result.session.member))
        if not members:
            raise Refused(no(401, "session expired"))
        shown = answer(_session(members[0], result.session.expires_at_ms))
        given = set_cookie(result.id, secure=_secure(call))
        return replace(shown, headers=((b"set-cookie", given.encode()),))

    async def show(self, call: Call, _: None) -> SessionResponse:
        """Return the member that is logged in, and the time at which the login expires."""
        own = await own_member(call)
        session = await self._logins.find(call.caller.token) if call.caller.by_cookie else None
        return _session(own, session.expires_at_ms if session is not None else _FOR_EVER)

    async def sign_out(self, call: Call, _: None) -> Answer:
        """Log out: end the session and delete the cookie."""
        if call.caller.by_cookie:
            token_id = (cookie(call.scope, SESSION_COOKIE) or "").partition(".")[0]
            await self._logins.sign_out(call.caller.token, call.member, token_id)
            call.leave()
        cookies = [(b"set-cookie", clear_cookie(secure=_secure(call)).encode())]
        if cookie(call.scope, SESSION_COOKIE) is not None:
            cookies.append(clear(call.scope, SESSION_COOKIE))
        return Answer(NO_CONTENT, b"", headers=tuple(cookies))

    async def enrol(self, call: Call, _: None) -> TotpSecret:
        """Create a secret for a member's authenticator app. Allowed for the member itself, and with members.manage."""
        name = call.params["name"]
        secret = await self._logins.enrol(MemberName(name), call.ask)
        if isinstance(secret, Refusal):
            raise Refused(no(STATUS.get(secret.code, 400), secret.message))
        return TotpSecret(secret, totp.otpauth_uri(secret, totp.ISSUER, name))


def _session(member: Member, expires_at_ms: int) -> SessionResponse:
    return SessionResponse(member.name, codec.role(member), codec.permissions(member.permissions), expires_at_ms)


def _denied(call: Call, denied: Denied) -> Answer:
    if denied.attempt is None:
        return no(denied.status, denied.error)
    said = s.later(denied.error, denied.retry_after)
    given = set_attempt(denied.attempt, secure=_secure(call))
    return replace(said, headers=(*said.headers, (b"set-cookie", given.encode())))


def _secure(call: Call) -> bool:
    return bool(call.scope.get("scheme") == "https")
