"""ac7's port: finds who asks and for what, and answers.

Above: the server's assembly, which gives it the HTTP port. Below: the routes of each noun, and the streams. What needs
no token comes first, then the check of the protocol's version and of the token, then the route.
"""

import msgspec
from starlette.types import Receive, Scope, Send

from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7 import channels, team
from tieline.protocols.ac7.carriers import Carrier, EventCarrier, SocketCarrier
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.protocols.ac7.members import Members
from tieline.protocols.ac7.messages import Messages
from tieline.protocols.ac7.objectives import Objectives
from tieline.protocols.ac7.openapi import document
from tieline.protocols.ac7.route import (
    FORM_BYTES_MAX,
    UNKNOWN_TOKEN,
    Call,
    Query,
    Refused,
    Route,
    Routes,
    no,
    query_of,
    refused,
)
from tieline.protocols.ac7.streams import PROTOCOL, Stream, Streams
from tieline.wire.http import Answer, Bodies, answer, foreign, header, respond
from tieline.wire.sessions import IDLE_SECONDS, Held, Sessions
from tieline.wire.sse import KEEPALIVE_SECONDS

VERSION = "1"
DOCUMENT_PATH = "/ac7/openapi.json"
SUBSCRIBE_PATH = "/subscribe"

_UNSENT_BYTES_MAX = 1024 * 1024
"""What waits for one reader before it is cut off: it finds all of it in the history."""
_BEARER = "Bearer "
_NOT_FOUND = Answer(404, b"404 Not Found", b"text/plain; charset=UTF-8")
_FOREIGN = no(403, "a page of another site cannot use this hub")


class Ac7:
    """The protocol. An HTTP application for the hub's port."""

    def __init__(
        self,
        hub: Hub,
        *,
        announce: bool = True,
        idle_seconds: float = IDLE_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._hub = hub
        self._keepalive_seconds = keepalive_seconds
        self._sessions = Sessions(hub, PROTOCOL, idle_seconds=idle_seconds, acknowledges=False)
        self._channels = ChannelIds(hub, PROTOCOL)
        self._streams = Streams(hub, self._channels, announce=announce)
        self._bodies = Bodies(FORM_BYTES_MAX)
        messages = Messages(self._streams, self._channels)
        self.table = (
            *messages.routes(),
            _subscription(),
            *Members(self._streams).routes(),
            *team.routes(),
            *channels.routes(),
            *Objectives(messages).routes(),
        )
        self._routes = Routes(self.table)
        self._roots = {DOCUMENT_PATH.split("/")[1], *(route.path.split("/")[1] for route in self.table)}
        self._description = Answer(200, msgspec.json.encode(document(self.table)))

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Whether the path begins as one of the routes does."""
        if scope["type"] == "websocket":
            return bool(_path(scope) == SUBSCRIBE_PATH)
        return scope["type"] == "http" and _path(scope).split("/", 2)[1] in self._roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = _path(scope)
        if scope["type"] == "websocket" or (path == SUBSCRIBE_PATH and scope["method"] == "GET"):
            await self._subscribe(scope, receive, send)
        elif path == DOCUMENT_PATH and scope["method"] == "GET":
            await respond(send, self._description)
        else:
            try:
                reply = await self._answer(scope, receive)
            except Refused as refusal:
                reply = refusal.reply
            await respond(send, reply)

    def close(self) -> None:
        """The hub stops: streams end, and so do the sessions of requests."""
        self._streams.close()
        self._channels.close()
        self._sessions.close()

    # Requests.

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        _check(scope)
        found = self._routes.find(scope["method"], _path(scope))
        token = _token(scope)
        held = await self._held(token)
        if found is None:
            return _NOT_FOUND
        route, params = found
        call = Call(self._hub, self._sessions, token, held, params, query_of(scope))
        form = await self._form(route, scope, receive) if route.body is not None else None
        made = await route.handler(call, form)
        return Answer(route.status, b"") if route.reply is None else answer(made, route.status)

    async def _held(self, token: str) -> Held:
        held = await self._sessions.of(token)
        if isinstance(held, Refusal):
            raise Refused(no(401, UNKNOWN_TOKEN) if held.code is Code.UNAUTHORIZED else refused(held))
        return held

    async def _form(self, route: Route, scope: Scope, receive: Receive) -> object:
        assert route.body is not None, "asked for only where there is one"
        body = await self._bodies.read(scope, receive, FORM_BYTES_MAX)
        if isinstance(body, Answer):
            raise Refused(body)
        if not body and route.body_optional:
            return None
        try:
            return msgspec.json.decode(body, type=route.body)
        except msgspec.ValidationError as error:
            raise Refused(no(400, f"{route.invalid}: {error}")) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(no(400, f"{route.invalid}: invalid JSON: {error}")) from None

    # Streams.

    async def _subscribe(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = Stream(self._streams)
        carrier: Carrier
        if scope["type"] == "websocket":
            await receive()
            carrier = SocketCarrier(receive, send, _UNSENT_BYTES_MAX, stream.stalled)
        else:
            carrier = EventCarrier(receive, send, _UNSENT_BYTES_MAX, stream.stalled, self._keepalive_seconds)
        stream.carrier = carrier
        try:
            await self._open(scope, stream)
        except Refused as refusal:
            await carrier.refuse(refusal.reply)
            return
        try:
            await carrier.run()
        finally:
            stream.leave()

    async def _open(self, scope: Scope, stream: Stream) -> None:
        _check(scope)
        token = _token(scope)
        held = await self._held(token)
        name = query_of(scope).get("name")
        if not name:
            raise Refused(no(400, "name is required"))
        if name != held.member:
            raise Refused(no(403, "a member can only subscribe to its own stream"))
        refusal = await self._streams.open(token, stream)
        if refusal is not None:
            raise Refused(refused(refusal))


def _subscription() -> Route:
    """The stream as the document has it; it is not answered like the others."""

    async def handler(call: Call, form: None) -> None:
        raise AssertionError("a stream has no end to answer with")

    return Route(
        method="GET",
        path=SUBSCRIBE_PATH,
        summary="Each new message of the member as it comes: server-sent events, or WebSocket frames on upgrade.",
        handler=handler,
        streams=True,
        query=(Query("name", "The member itself.", required=True),),
    )


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


def _token(scope: Scope) -> str:
    shown = header(scope, b"authorization")
    if shown is None:
        raise Refused(no(401, "missing credentials"))
    token = shown.removeprefix(_BEARER).strip() if shown.startswith(_BEARER) else ""
    if not token:
        raise Refused(no(401, "missing bearer token"))
    return token
