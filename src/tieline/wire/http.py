"""HTTP as the protocols on the hub's port share it: answers in JSON, bearer tokens, bodies within bounds.

Above: protocols with routes. Below: ASGI, so whatever server holds the port. It refuses to know any route. An answer
is a value; a handler returns one, and one place sends it.
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
"""What a console carries: the id of a token, a dot, and the token."""
LOGIN_COOKIE = "ac7_session"
"""What a login with a code gives, under the name that its clients know: a token."""

_BODY_SECONDS_MAX = 60.0
"""A body at the limit of 32 MiB passes a line of 5 Mbit/s in this time; a client that trickles is cut off."""
_DISCARD_SECONDS_MAX = 2.0
"""How long the rest of a refused body is read and thrown away: most clients hear no answer before they have sent."""

_BEARER = "bearer"
_encoder = msgspec.json.Encoder()


class Answer(Struct, frozen=True):
    """What goes back for one request."""

    status: int
    body: bytes
    content_type: bytes = JSON
    close: bool = False
    """Whether the connection ends with it, because the rest of the request cannot be read."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """More than its content type and length."""


DOOR = "tieline.door"
"""The extension of a WebSocket's scope that holds its `Door`."""


class Door(Protocol):
    """What the protocol that serves a WebSocket tells the port: a stranger has one small message, and little time."""

    def await_greeting(self) -> None:
        """The last message said nothing: the client has another small one."""

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        """It is known who speaks: messages may have their full size, or this one."""

    def expel(self) -> None:
        """Who speaks is not let in: hear no more, and hang up whatever it does."""


def door(scope: Scope) -> Door:
    """The door of a WebSocket."""
    found: Door = scope["extensions"][DOOR]
    return found


class HttpApp(Protocol):
    """A protocol that has routes on the hub's port: an ASGI application which knows what is its own."""

    def serves(self, scope: Scope) -> bool:
        """Whether this request is for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""

    def close(self) -> None:
        """The hub stops: end every answer that would go on for ever."""


def answer(value: Any, status: int = 200) -> Answer:
    """A value as JSON."""
    return Answer(status, _encoder.encode(value))


def failure(status: int, text: str, *, close: bool = False) -> Answer:
    """A "no", in the one form that all clients understand."""
    return Answer(status, _encoder.encode({"error": text}), close=close)


async def respond(send: Send, reply: Answer) -> None:
    """Send an answer."""
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    if reply.close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def deny(send: Send, reply: Answer) -> None:
    """Send an answer to a request to open a WebSocket, which stays closed."""
    headers = [(b"content-type", reply.content_type), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.body})


def header(scope: Scope, name: bytes) -> str | None:
    """The first header of this name, which is in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def bearer(scope: Scope) -> str | None:
    """The token that a request shows, with or without the word before it."""
    # No regular expression: whoever sends this header is a stranger, and each of these methods is linear.
    shown = (header(scope, b"authorization") or "").strip()
    word, *rest = shown.split(None, 1) or ("",)
    return rest[0] if rest and word.lower() == _BEARER else shown or None


def cookie(scope: Scope, name: str) -> str | None:
    """The first cookie of this name."""
    for key, value in scope["headers"]:
        if key == b"cookie":
            for part in str(value, "latin-1").split(";"):
                found, _, text = part.strip().partition("=")
                if found == name:
                    return text
    return None


def set_cookie(scope: Scope, name: str, value: str, seconds: int) -> tuple[bytes, bytes]:
    """The header that gives a browser a cookie which no script can read and no other site can make it send."""
    secure = "; Secure" if scope.get("scheme") in {"https", "wss"} else ""
    text = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode()


def clear(scope: Scope, name: str) -> tuple[bytes, bytes]:
    """The header that takes a cookie away."""
    return set_cookie(scope, name, "", 0)


def session_token(scope: Scope) -> str | None:
    """The token by which a request comes: in its header, or in a cookie of somebody who logged in with a browser."""
    shown = bearer(scope)
    if shown is not None:
        return shown
    return console_token(scope) or cookie(scope, LOGIN_COOKIE)


def console_token(scope: Scope) -> str | None:
    """The token in a console's cookie. It counts before the cookie of a login, wherever a browser shows both."""
    return (cookie(scope, SESSION_COOKIE) or "").partition(".")[2] or None


def foreign(scope: Scope) -> bool:
    """Whether a browser sent this for a page from elsewhere, which must not reach a hub through its visitor."""
    origin = header(scope, b"origin")
    if origin is None:
        # Of what a page only loads, a browser says this. Another port of the same machine is the same site.
        return header(scope, b"sec-fetch-site") in {"cross-site", "same-site"}
    return origin.partition("://")[2] != header(scope, b"host")


class Bodies:
    """Reads the bodies of all requests to one protocol, within a size for each, a size for all, and a time."""

    __slots__ = ("_seconds_max", "_unfinished")

    def __init__(self, unfinished: Unfinished, *, seconds_max: float = _BODY_SECONDS_MAX) -> None:
        self._unfinished = unfinished
        self._seconds_max = seconds_max

    async def read(self, scope: Scope, receive: Receive, bytes_max: int, owner: str | None = None) -> bytes | Answer:
        """The whole body, or the answer that says why there is none. `owner` is whose it is; a stranger's has none."""
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
                    share.hold(size)
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
    """Read the rest of a refused body and throw it away, for a moment."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(_DISCARD_SECONDS_MAX, seconds_max)):
            while (await receive()).get("more_body", False):
                pass
