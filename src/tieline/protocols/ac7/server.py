"""ac7's port: finds who asks and for what, and answers.

Above: the server's assembly, which gives it the HTTP port. Below: the routes of each noun, and the streams. First comes
the check of the protocol's version, then of the token, unless the route is open to everybody, then the route.
"""

import time
from collections.abc import Callable

import msgspec
from starlette.types import Receive, Scope, Send

from tieline.contract.hub import Hub
from tieline.protocols.ac7 import channels, team
from tieline.protocols.ac7.activity import Activity
from tieline.protocols.ac7.attachments import Attachments
from tieline.protocols.ac7.callers import Callers
from tieline.protocols.ac7.carriers import Carrier, EventCarrier, SocketCarrier
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.protocols.ac7.desk import Desk, Keeping
from tieline.protocols.ac7.members import Members
from tieline.protocols.ac7.messages import Messages
from tieline.protocols.ac7.objectives import Objectives
from tieline.protocols.ac7.openapi import document
from tieline.protocols.ac7.route import Call, Download, Refused, Route, Routes, checked, no
from tieline.protocols.ac7.streams import PROTOCOL, SUBSCRIBE_PATH, Streams
from tieline.protocols.ac7.telemetry import Telemetry
from tieline.wire.http import Answer, Bodies, answer, door, foreign, header, respond
from tieline.wire.protocol import Server
from tieline.wire.sessions import IDLE_SECONDS, Sessions
from tieline.wire.sse import KEEPALIVE_SECONDS
from tieline.wire.unfinished import Unfinished

__all__ = ["DOCUMENT_PATH", "SUBSCRIBE_PATH", "VERSION", "Ac7", "Keeping"]

VERSION = "1"
DOCUMENT_PATH = "/ac7/openapi.json"

_STRANGERS_FORM_BYTES_MAX = 64 * 1024
"""What anybody may send who has not shown who it is: a name, a code."""
_NOT_FOUND = Answer(404, b"404 Not Found", b"text/plain; charset=UTF-8")
_FOREIGN = no(403, "a page of another site cannot use this hub")

_Found = tuple[Route, dict[str, str]]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Ac7(Server):
    """The protocol. An HTTP application for the hub's port."""

    def __init__(
        self,
        hub: Hub,
        *,
        keeping: Keeping | None = None,
        announce: bool = True,
        now_ms: Callable[[], int] = _now_ms,
        unfinished: Unfinished | None = None,
        idle_seconds: float = IDLE_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._hub = hub
        self._keepalive_seconds = keepalive_seconds
        self._sessions = Sessions(hub, PROTOCOL, idle_seconds=idle_seconds, acknowledges=False)
        self._desk = Desk(hub, keeping, now_ms) if keeping is not None else None
        self._callers = Callers(self._sessions, self._desk.passes if self._desk is not None else None)
        self._channels = ChannelIds(hub, PROTOCOL)
        self._streams = Streams(hub, self._channels, announce=announce)
        self._activity = Activity(hub)
        self._bodies = Bodies(unfinished or Unfinished(hub.limits))
        attachments = Attachments(keeping.files if keeping is not None else None)
        messages = Messages(self._streams, self._channels, attachments)
        self.table = (
            *messages.routes(),
            *self._streams.routes(),
            *Members(self._streams).routes(),
            *team.routes(),
            *channels.routes(),
            *Objectives(messages, attachments).routes(),
            *self._activity.routes(),
            *Telemetry(now_ms).routes(),
            *(self._desk.routes() if self._desk is not None else ()),
        )
        self._routes = Routes(self.table)
        self._roots = {DOCUMENT_PATH.split("/")[1], *(route.path.split("/")[1] for route in self.table)}
        self._description = Answer(200, msgspec.json.encode(document(self.table)))

    @property
    def http(self) -> "Ac7":  # type: ignore[override]  # it is its own
        """It is its own application."""
        return self

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Whether the path begins as one of the routes does."""
        if scope["type"] == "websocket":
            found = self._routes.find("GET", _path(scope))
            return found is not None and found[0].live is not None
        return scope["type"] == "http" and _path(scope).split("/", 2)[1] in self._roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path, method = _path(scope), scope.get("method", "GET")
        found = self._routes.find(method, path)
        if found is not None and found[0].live is not None:
            await self._stream(found, scope, receive, send)
        elif path == DOCUMENT_PATH and method == "GET":
            await respond(send, self._description)
        else:
            try:
                reply = await self._answer(found, scope, receive)
            except Refused as refusal:
                reply = refusal.reply
            await (_send(send, reply) if isinstance(reply, Download) else respond(send, reply))

    def close(self) -> None:
        """The hub stops: streams end, and so do the sessions of requests."""
        self._streams.close()
        self._activity.close()
        self._channels.close()
        self._sessions.close()

    async def start(self) -> None:
        """Put in order what was left behind."""
        if self._desk is not None:
            await self._desk.start()

    async def stop(self) -> None:
        """Let go of the disk; after `close`, when nobody asks any more."""
        if self._desk is not None:
            await self._desk.stop()

    # Requests.

    async def _answer(self, found: _Found | None, scope: Scope, receive: Receive) -> Answer | Download:
        call = await self._call(found, scope, receive)
        if found is None:
            return _NOT_FOUND
        route = found[0]
        form = await self._form(route, scope, receive, None if route.open else call.member)
        made = await route.handler(call, form)
        if isinstance(made, Answer | Download):
            return made
        return Answer(route.status, b"") if route.reply is None else answer(made, route.status)

    async def _call(self, found: _Found | None, scope: Scope, receive: Receive) -> Call:
        _check(scope)
        route, params = found or (None, {})
        if route is not None and route.open:
            return Call(self._hub, self._sessions, None, params, scope, receive)
        caller = await self._callers.of(scope, bearer_only=route is not None and route.bearer_only)
        return Call(self._hub, self._sessions, caller, params, scope, receive)

    async def _form(self, route: Route, scope: Scope, receive: Receive, owner: str | None) -> object:
        if route.in_pieces or (route.body is None and not route.takes):
            return None
        bytes_max = _STRANGERS_FORM_BYTES_MAX if owner is None else route.body_bytes_max
        body = await self._bodies.read(scope, receive, bytes_max, owner)
        if isinstance(body, Answer):
            raise Refused(body)
        if route.body is None or route.undecoded is not None:
            return body
        if not body and route.body_optional:
            return None
        return checked(body, route.body, route.invalid)

    # Streams.

    async def _stream(self, found: _Found, scope: Scope, receive: Receive, send: Send) -> None:
        route = found[0]
        assert route.live is not None, "asked for only where there is one"
        live = route.live()
        carrier: Carrier
        if scope["type"] == "websocket":
            await receive()
            carrier = SocketCarrier(door(scope), receive, send, live.unsent_bytes_max, live.stalled)
        else:
            carrier = EventCarrier(receive, send, live.unsent_bytes_max, live.stalled, self._keepalive_seconds)
        live.carrier = carrier
        try:
            await route.handler(await self._call(found, scope, receive), live)
            await carrier.run()
        except Refused as refusal:
            await carrier.refuse(refusal.reply)
        finally:
            live.leave()
            # They refer to each other, and to a connection that is gone.
            live.carrier = None


async def _send(send: Send, download: Download) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in download.headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for piece in download.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return "/" + path.lstrip("/") if path.startswith("//") else path or "/"


def _check(scope: Scope) -> None:
    """Refuse what no route answers: pages of other sites, and other versions of the protocol."""
    if foreign(scope):
        raise Refused(_FOREIGN)
    version = header(scope, b"x-ac7-protocol")
    if version is not None and version.strip() != VERSION:
        got = int(version) if version.isascii() and version.isdigit() and len(version) < len(VERSION) * 10 else version
        wrong = {"error": "unsupported protocol version", "got": got, "expected": int(VERSION)}
        raise Refused(answer(wrong, 400))
