"""The cookies of ac7's logins, under the names that its clients know.

Used by: the routes of `/session`, and `callers`, which authenticates a request by cookie. The cookie holds the id of
one of the hub's login sessions. The console's cookie refers to the same login sessions.
"""

from tieline.protocols.ac7 import PROTOCOL
from tieline.services.logins import ATTEMPT_MS, SESSION_MS

COOKIE = PROTOCOL.login_cookie
ATTEMPT_COOKIE = "ac7_attempt"

_COOKIE_CHARS_MAX = 8192  # browsers send less


def set_cookie(session_id: str, *, secure: bool) -> str:
    """Return the value of the `Set-Cookie` header that sets the session cookie.

    `secure` is true if the request came by TLS.
    """
    return _cookie(session_id, SESSION_MS // 1000, secure=secure)


def clear_cookie(*, secure: bool) -> str:
    """Return the value of the `Set-Cookie` header that deletes the session cookie.

    `secure` is true if the request came by TLS.
    """
    return _cookie("", 0, secure=secure)


def set_attempt(attempt: str, *, secure: bool) -> str:
    """Return the value of the `Set-Cookie` header that sets the attempt cookie.

    After too many wrong codes, a login needs several right codes from one browser. This cookie identifies the browser,
    so that the browser's next code counts for the same attempt.
    """
    return _cookie(attempt, ATTEMPT_MS // 1000, secure=secure, name=ATTEMPT_COOKIE)


def read_cookie(header: str, cookie: str = COOKIE) -> str | None:
    """Return the value of a cookie in a `Cookie` header, or `None`.

    `cookie` is the name of the cookie. The default is the session cookie. If the header has several cookies of this
    name, the first one with a value counts.
    """
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
