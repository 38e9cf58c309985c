"""The cookies of ac7's logins, under the names that its clients know.

Above: the routes of `/session`, and whoever authenticates a request by cookie. The session is one of the hub's login
sessions, which the console's cookie names too.
"""

from tieline.services.logins import ATTEMPT_MS, SESSION_MS
from tieline.wire.http import LOGIN_COOKIE

COOKIE = LOGIN_COOKIE
ATTEMPT_COOKIE = "ac7_attempt"

_COOKIE_CHARS_MAX = 8192  # browsers send less


def set_cookie(session_id: str, *, secure: bool) -> str:
    """The header value that gives a browser its session; `secure` when the hub is reached by TLS."""
    return _cookie(session_id, SESSION_MS // 1000, secure=secure)


def clear_cookie(*, secure: bool) -> str:
    """The header value that takes it away."""
    return _cookie("", 0, secure=secure)


def set_attempt(attempt: str, *, secure: bool) -> str:
    """The header value by which a browser goes on with a suspected login."""
    return _cookie(attempt, ATTEMPT_MS // 1000, secure=secure, name=ATTEMPT_COOKIE)


def read_cookie(header: str, cookie: str = COOKIE) -> str | None:
    """The value of one cookie in a `Cookie` header, the session's id by default; the first counts."""
    if len(header) > _COOKIE_CHARS_MAX:
        return None
    for pair in header.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == cookie and value:
            return value
    return None


def _cookie(value: str, age_seconds: int, *, secure: bool, name: str = COOKIE) -> str:
    text = f"{name}={value}; Max-Age={age_seconds}; Path=/; HttpOnly; SameSite=Strict"
    return f"{text}; Secure" if secure else text
