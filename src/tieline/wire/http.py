"""HTTP functions shared by the protocols on the HTTP port: JSON answers, bearer tokens, size limits for bodies.

Used by: protocols with routes. Uses: ASGI, so any ASGI server can serve the port. This module knows no routes. A
handler does not send its answer itself: it returns an `Answer`, and one place sends all answers.
"""

import asyncio
import contextlib
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.wire.unfinished import TOO_MUCH, Unfinished

JSON = b"application/json;charset=utf-8"

SESSION_COOKIE = "tieline_session"
"""Name of the console's cookie. Its value is the id of a token, a dot, and the token."""
LOGIN_COOKIES = "tieline.login_cookies"
"""Key in a request's ASGI scope. The value is the names of the login cookies of all protocols. A protocol sets such a
cookie when a user logs in with a one-time code. The cookie holds a token."""

SMALL_BODY = "tieline.small_body"
"""Key in a request's ASGI scope. The value is the whole body, which `receive` returns too. The HTTP port sets it if
the body has at most `FREE_BYTES`, which `Unfinished` does not count. Such a body needs no time limit."""

_BODY_SECONDS_MAX = 60.0
"""Longest time in seconds for which the hub waits for a body. It is enough for 32 MiB, the size limit, at 5 Mbit/s. A
client that sends more slowly is disconnected."""
_DISCARD_SECONDS_MAX = 2.0
"""Longest time in seconds for which the rest of a refused body is read and discarded. Most clients read the answer only
after they have sent the whole body."""

_BEARER = "bearer"
_encoder = msgspec.json.Encoder()


class Answer(Struct, frozen=True):
    """Answer of the hub to one HTTP request: status, body and headers."""

    status: int
    body: bytes
    content_type: bytes = JSON
    close: bool = False
    """True if the connection ends after this answer, because the rest of the request cannot be read."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers of the answer, other than content type and content length."""


CLIENT_GATE = "tieline.client_gate"
"""Key in the `extensions` of a WebSocket's ASGI scope. The value is the `ClientGate` of this WebSocket."""


class ClientGate(Protocol):
    """Interface by which a protocol admits or refuses the client of one WebSocket. The HTTP port makes the gate.

    A client that is not admitted yet may send only one small message, within a short time.
    """

    def await_greeting(self) -> None:
        """Allow the client one more small message before it is admitted, because its last message was empty."""

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        """Admit the client as the member `owner`.

        Allow messages of up to `bytes_max` bytes, or of full size if it is `None`.
        """

    def refuse(self) -> None:
        """Refuse the client: read nothing more from it, and close the connection even if the client does not."""


def client_gate(scope: Scope) -> ClientGate:
    """Return the `ClientGate` that the HTTP port put into the scope of a WebSocket."""
    found: ClientGate = scope["extensions"][CLIENT_GATE]
    return found


class HttpApp(Protocol):
    """Interface of an ASGI application with routes on the hub's HTTP port. `serves` tells which requests it answers."""

    def serves(self, scope: Scope) -> bool:
        """Return true if this application answers the request with this ASGI scope."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""

    def close(self) -> None:
        """End all answers and WebSockets that are still open, because the hub stops."""


def answer(value: Any, status: int = 200) -> Answer:
    """Return an answer whose body is `value`, encoded as JSON."""
    return Answer(status, _encoder.encode(value))


def failure(status: int, text: str, *, close: bool = False) -> Answer:
    """Return an error answer with the JSON object `{"error": text}`.

    With `close`, the connection ends after this answer.
    """
    return Answer(status, _encoder.encode({"error": text}), close=close)


async def respond(send: Send, reply: Answer) -> None:
    """Send the answer `reply` to the client of an HTTP request."""
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    if reply.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def deny(send: Send, reply: Answer) -> None:
    """Send the answer `reply` to a client that asked to open a WebSocket. The WebSocket is not opened."""
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.body})


async def refuse(scope: Scope, receive: Receive, send: Send, reply: Answer) -> None:
    """Send the answer `reply` to a request that is refused: an HTTP request, or the opening of a WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await deny(send, reply)
    else:
        await respond(send, reply)


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of the first header with this name, or `None`. `name` must be in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def bearer(scope: Scope) -> str | None:
    """Return the token in the `Authorization` header, or `None`. The word `Bearer` before the token may be missing."""
    # No regular expression, because the sender is not trusted: each of these methods takes linear time.
    shown = (header(scope, b"authorization") or "").strip()
    word, *rest = shown.split(None, 1) or ("",)
    return rest[0] if rest and word.lower() == _BEARER else shown or None


def cookie(scope: Scope, name: str) -> str | None:
    """Return the value of the first cookie with this name, or `None`."""
    for key, value in scope["headers"]:
        if key == b"cookie":
            for part in str(value, "latin-1").split(";"):
                found, _, text = part.strip().partition("=")
                if found == name:
                    return text
    return None


def set_cookie(scope: Scope, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
    """Return the `set-cookie` header for a cookie that is valid for `seconds`.

    Scripts cannot read the cookie. Pages of other sites cannot make a browser send the cookie.
    """
    secure = "; Secure" if scope.get("scheme") in {"https", "wss"} else ""
    text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()


def clear(scope: Scope, name: str) -> tuple[bytes, bytes]:
    """Return the `set-cookie` header that deletes the cookie `name` in the browser."""
    return set_cookie(scope, name, "", 0)


def session_token(scope: Scope) -> str | None:
    """Return the token of a request: from its `Authorization` header, or else from a login cookie.

    Return `None` if the request has no token.
    """
    shown = bearer(scope)
    if shown is not None:
        return shown
    return console_token(scope) or next(iter(logins(scope).values()), None)


def logins(scope: Scope) -> dict[str, str]:
    """Return the login cookies of all protocols in a browser's request, as cookie name → token.

    A protocol sets such a cookie when a user logs in with a one-time code.
    """
    found = {name: cookie(scope, name) for name in scope.get(LOGIN_COOKIES, ())}
    return {name: token for name, token in found.items() if token is not None}


def console_token(scope: Scope) -> str | None:
    """Return the token in the console's cookie, or `None`.

    If a request also has the login cookie of a protocol, `session_token` returns the console's token.
    """
    return (cookie(scope, SESSION_COOKIE) or "").partition(".")[2] or None


def foreign(scope: Scope) -> bool:
    """Return true if a page of another web site caused this browser request. The hub must not answer such a request."""
    origin = header(scope, b"origin")
    if origin is None:
        # For resources that a page loads, browsers send this header. Another port of the same machine is "same-site".
        return header(scope, b"sec-fetch-site") in {"cross-site", "same-site"}
    return origin.partition("://")[2] != header(scope, b"host")


class Bodies:
    """Reader of request bodies for one protocol.

    It limits the size of each body, the size of all bodies, and the time.
    """

    __slots__ = ("_seconds_max", "_unfinished")

    def __init__(self, unfinished: Unfinished, *, seconds_max: float = _BODY_SECONDS_MAX) -> None:
        self._unfinished = unfinished
        self._seconds_max = seconds_max

    async def read(self, scope: Scope, receive: Receive, bytes_max: int, owner: str | None = None) -> bytes | Answer:
        """Return the whole body, of at most `bytes_max` bytes, or an error answer.

        `owner` is the member who sends the body; `None` if unknown.
        """
        small: bytes | None = scope.get(SMALL_BODY)
        if small is not None and len(small) <= bytes_max:
            return small
        declared = header(scope, b"content-length")
        if declared is not None and declared.isdecimal() and int(declared) > bytes_max:
            return await self._too_large(receive, bytes_max, more=True)
        chunks: list[bytes] = []
        size = 0
        more = False
        loop = asyncio.get_running_loop()
        refused = False

        def refuse() -> None:
            nonlocal refused
            refused = True
            waiting.reschedule(loop.time())

        share = self._unfinished.share(refuse, owner)
        try:
            async with asyncio.timeout(self._seconds_max) as waiting:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return failure(400, "the request ended early", close=True)
                    chunk: bytes = message.get("body", b"")
                    more = message.get("more_body", False)
                    size += len(chunk)
                    if size > bytes_max:
                        break
                    share.report(size)
                    if refused:
                        break
                    if not more:
                        return b"".join((*chunks, chunk)) if chunks else chunk
                    chunks.append(chunk)
        except TimeoutError:
            if not refused:
                return failure(408, f"the body did not come within {self._seconds_max:g} seconds", close=True)
        finally:
            share.close()
        chunks.clear()
        if refused:
            return failure(503, TOO_MUCH, close=True)
        return await self._too_large(receive, bytes_max, more=more)

    async def _too_large(self, receive: Receive, bytes_max: int, *, more: bool) -> Answer:
        if more:
            await discard(receive, self._seconds_max)
        return failure(413, f"the body is larger than {bytes_max} bytes", close=True)


async def discard(receive: Receive, seconds_max: float = _DISCARD_SECONDS_MAX) -> None:
    """Read and discard the rest of a refused body, for `seconds_max` or two seconds, whichever is shorter.

    Most clients read the answer only after they have sent the whole body.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(_DISCARD_SECONDS_MAX, seconds_max)):
            while (await receive()).get("more_body", False):
                pass
