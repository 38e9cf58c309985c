"""HTTP functions shared by the protocols on the hub's port: JSON answers, bearer tokens, size limits for bodies.

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
"""Key in a request's scope. Its value is the names of the login cookies of all protocols. A protocol sets such a cookie
when a user logs in with a one-time code. The cookie holds a token."""

_BODY_SECONDS_MAX = 60.0
"""Timeout for a body. It is enough for 32 MiB, the size limit, at 5 Mbit/s. A client that sends more slowly is
disconnected."""
_DISCARD_SECONDS_MAX = 2.0
"""Time for reading and discarding the rest of a refused body. Most clients read the answer only after they have sent
the whole body."""

_BEARER = "bearer"
_encoder = msgspec.json.Encoder()


class Answer(Struct, frozen=True):
    """The answer to one HTTP request: status, body and headers."""

    status: int
    body: bytes
    content_type: bytes = JSON
    close: bool = False
    """True if the connection ends after this answer, because the rest of the request cannot be read."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers of the answer, other than content type and content length."""


CLIENT_GATE = "tieline.client_gate"
"""Key under which the `ClientGate` of a WebSocket is in the extensions of the scope."""


class ClientGate(Protocol):
    """Lets a protocol admit or refuse the client of one WebSocket. The HTTP port makes the gate.

    A client that is not admitted yet may send only one small message, within a short time.
    """

    def await_greeting(self) -> None:
        """Allow the client one more small message before it is admitted, because its last message was empty."""

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        """Admit the client as the member `owner`: allow messages of full size, or of at most `bytes_max`."""

    def refuse(self) -> None:
        """Refuse the client: read nothing more from it, and close the connection even if the client does not."""


def client_gate(scope: Scope) -> ClientGate:
    """Return the `ClientGate` that the HTTP port put into the scope of a WebSocket."""
    found: ClientGate = scope["extensions"][CLIENT_GATE]
    return found


class HttpApp(Protocol):
    """A protocol with routes on the hub's port: an ASGI application. `serves` tests if it answers a request."""

    def serves(self, scope: Scope) -> bool:
        """Return true if this application answers the request with this scope."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""

    def close(self) -> None:
        """End all answers and WebSockets that are still open, because the hub stops."""


def answer(value: Any, status: int = 200) -> Answer:
    """Make an answer. Its body is `value`, encoded as JSON."""
    return Answer(status, _encoder.encode(value))


def failure(status: int, text: str, *, close: bool = False) -> Answer:
    """Make an error answer: the JSON object `{"error": text}`. With `close`, the connection ends after this answer."""
    return Answer(status, _encoder.encode({"error": text}), close=close)


async def respond(send: Send, reply: Answer) -> None:
    """Send an answer."""
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    if reply.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def deny(send: Send, reply: Answer) -> None:
    """Send an answer that refuses to open a WebSocket."""
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.body})


async def refuse(scope: Scope, receive: Receive, send: Send, reply: Answer) -> None:
    """Send an answer that refuses a request or the opening of a WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await deny(send, reply)
    else:
        await respond(send, reply)


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of this name. The name is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def bearer(scope: Scope) -> str | None:
    """Return the token of the `Authorization` header, with or without the word `Bearer` before it."""
    # No regular expression, because the sender is not trusted: each of these methods takes linear time.
    shown = (header(scope, b"authorization") or "").strip()
    word, *rest = shown.split(None, 1) or ("",)
    return rest[0] if rest and word.lower() == _BEARER else shown or None


def cookie(scope: Scope, name: str) -> str | None:
    """Return the value of the first cookie of this name."""
    for key, value in scope["headers"]:
        if key == b"cookie":
            for part in str(value, "latin-1").split(";"):
                found, _, text = part.strip().partition("=")
                if found == name:
                    return text
    return None


def set_cookie(scope: Scope, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
    """Make the header that sets a cookie for `seconds`.

    Scripts cannot read the cookie. Pages of other sites cannot make a browser send the cookie.
    """
    secure = "; Secure" if scope.get("scheme") in {"https", "wss"} else ""
    text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()


def clear(scope: Scope, name: str) -> tuple[bytes, bytes]:
    """Make the header that deletes a cookie."""
    return set_cookie(scope, name, "", 0)


def session_token(scope: Scope) -> str | None:
    """Return the token of a request: from its header, or from the cookie of a browser login."""
    shown = bearer(scope)
    if shown is not None:
        return shown
    return console_token(scope) or next(iter(logins(scope).values()), None)


def logins(scope: Scope) -> dict[str, str]:
    """Return the login cookies of protocols that a browser sent, as name → token.

    A protocol sets such a cookie when a user logs in with a one-time code.
    """
    found = {name: cookie(scope, name) for name in scope.get(LOGIN_COOKIES, ())}
    return {name: token for name, token in found.items() if token is not None}


def console_token(scope: Scope) -> str | None:
    """Return the token in the console's cookie, or `None`.

    If there is also a login cookie, `session_token` prefers the console's token.
    """
    return (cookie(scope, SESSION_COOKIE) or "").partition(".")[2] or None


def foreign(scope: Scope) -> bool:
    """True if a browser sent this request for a page of another site. The hub must not answer such a request."""
    origin = header(scope, b"origin")
    if origin is None:
        # For resources that a page loads, browsers send this header. Another port of the same machine is "same-site".
        return header(scope, b"sec-fetch-site") in {"cross-site", "same-site"}
    return origin.partition("://")[2] != header(scope, b"host")


class Bodies:
    """Reads the bodies of all requests to one protocol.

    Limits the size of each body, the size of all bodies, and the time.
    """

    __slots__ = ("_seconds_max", "_unfinished")

    def __init__(self, unfinished: Unfinished, *, seconds_max: float = _BODY_SECONDS_MAX) -> None:
        self._unfinished = unfinished
        self._seconds_max = seconds_max

    async def read(self, scope: Scope, receive: Receive, bytes_max: int, owner: str | None = None) -> bytes | Answer:
        """Return the whole body, or an error answer. `owner` is the member who sends the body; `None` if unknown."""
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
    """Read and discard the rest of a refused body for a short time.

    Most clients read the answer only after they have sent the whole body.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(_DISCARD_SECONDS_MAX, seconds_max)):
            while (await receive()).get("more_body", False):
                pass
