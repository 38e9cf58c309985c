"""ac7's HTTP application: finds the caller and the route of a request, and answers it.

Used by: the package `server`, which serves it on the hub's HTTP port. Uses: the routes of the other modules, and the
streams. A request passes the check of the protocol version first, then the check of the token, then its route. A route
that is open to everybody needs no token.
"""

from functools import cached_property

import msgspec
from starlette.types import Receive, Scope, Send

from tieline.contract.hub import Hub
from tieline.protocols.ac7 import channels, team
from tieline.protocols.ac7.activity import Activity
from tieline.protocols.ac7.callers import Callers
from tieline.protocols.ac7.carriers import Carrier, EventCarrier, SocketCarrier
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.protocols.ac7.enrolment_routes import VERIFICATION_PATH, EnrolmentRoutes
from tieline.protocols.ac7.file_routes import FileRoutes
from tieline.protocols.ac7.login_routes import LoginRoutes
from tieline.protocols.ac7.members import Members
from tieline.protocols.ac7.messages import Messages
from tieline.protocols.ac7.objectives import Objectives
from tieline.protocols.ac7.shapes import Failure
from tieline.protocols.ac7.streams import PROTOCOL, SUBSCRIBE_PATH, Streams
from tieline.protocols.ac7.telemetry import Telemetry
from tieline.services.assembly import Services
from tieline.wire.http import Answer, Bodies, answer, client_gate, foreign, header, respond
from tieline.wire.openapi import document
from tieline.wire.protocol import Server
from tieline.wire.route import Refused, no
from tieline.wire.route_app import Found, RouteApp
from tieline.wire.sessions import IDLE_SECONDS, Sessions
from tieline.wire.sse import KEEPALIVE_SECONDS
from tieline.wire.unfinished import Unfinished

__all__ = ["DOCUMENT_PATH", "SUBSCRIBE_PATH", "VERSION", "Ac7"]

VERSION = "1"
DOCUMENT_PATH = "/ac7/openapi.json"

_FOREIGN = no(403, "a page of another site cannot use this hub")


class Ac7(Server):
    """Server of ac7: an HTTP application for the hub's HTTP port."""

    def __init__(
        self,
        hub: Hub,
        services: Services,
        *,
        announce: bool = True,
        unfinished: Unfinished | None = None,
        idle_seconds: float = IDLE_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._keepalive_seconds = keepalive_seconds
        self._sessions = Sessions(hub, PROTOCOL, idle_seconds=idle_seconds, acknowledges=False)
        self._channels = ChannelIds(hub, PROTOCOL)
        self._streams = Streams(hub, self._channels, announce=announce)
        self._activity = Activity(hub)
        attachments, transfers = services.attachments, services.transfers
        messages = Messages(self._streams, self._channels, attachments, transfers)
        self.table = (
            *messages.routes(),
            *self._streams.routes(),
            *Members(self._streams).routes(),
            *team.routes(),
            *channels.routes(),
            *Objectives(messages, attachments, transfers).routes(),
            *self._activity.routes(),
            *Telemetry(services.now_ms).routes(),
            *FileRoutes(services.files, transfers).routes(),
            *LoginRoutes(hub, services.operator, services.logins).routes(),
            *EnrolmentRoutes(services.devices).routes(),
        )
        callers = Callers(self._sessions, services.logins)
        bodies = Bodies(unfinished or Unfinished(hub.limits))
        self._app = RouteApp(hub, self._sessions, self.table, bodies, caller=callers.of, check=_check)
        self._roots = {DOCUMENT_PATH.split("/")[1], *(route.path.split("/")[1] for route in self.table)}

    @cached_property
    def _description(self) -> Answer:
        """The answer with the OpenAPI document of ac7.

        The document is made at the first request for it, because making it would slow down the start of the hub.
        """
        described = document(self.table, "ac7", "The ac7 API of a Tieline hub.", Failure)
        return Answer(200, msgspec.json.encode(described))

    @property
    def http(self) -> "Ac7":  # type: ignore[override]  # returns itself
        """The HTTP application of ac7, which is this object itself."""
        return self

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """True if ac7 must answer this request.

        The first segment of the path must be the first segment of a route. The path of a WebSocket must match the
        whole path of a route with a stream.
        """
        if scope["type"] == "websocket":
            found = self._app.find("GET", _path(scope))
            return found is not None and found[0].live is not None
        return scope["type"] == "http" and _path(scope).split("/", 2)[1] in self._roots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request, or run the live stream that the request opens."""
        path, method = _path(scope), scope.get("method", "GET")
        found = self._app.find(method, path)
        if found is not None and found[0].live is not None:
            await self._stream(found, scope, receive, send)
        elif path == DOCUMENT_PATH and method == "GET":
            await respond(send, self._description)
        else:
            await self._app.serve(found, scope, receive, send)

    def close(self) -> None:
        """End all streams, and the sessions that requests use, because the hub stops."""
        self._streams.close()
        self._activity.close()
        self._channels.close()
        self._sessions.close()

    # Streams.

    async def _stream(self, found: Found, scope: Scope, receive: Receive, send: Send) -> None:
        route = found[0]
        assert route.live is not None, "asked for only where there is one"
        live = route.live()
        carrier: Carrier
        if scope["type"] == "websocket":
            await receive()
            carrier = SocketCarrier(client_gate(scope), receive, send, live.unsent_bytes_max, live.stalled)
        else:
            carrier = EventCarrier(receive, send, live.unsent_bytes_max, live.stalled, self._keepalive_seconds)
        live.carrier = carrier
        try:
            await route.handler(await self._app.call(found, scope, receive), live)
            await carrier.run()
        except Refused as refusal:
            await carrier.refuse(refusal.reply)
        finally:
            live.leave()
            # Break the reference cycle: `live` and `carrier` refer to each other and to a closed connection.
            live.carrier = None


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return "/" + path.lstrip("/") if path.startswith("//") else path or "/"


def _check(scope: Scope) -> None:
    """Raise `Refused` if a web page of another site sent the request, or if the request is for another ac7 version."""
    # Any page may have the link that approves a device. The answer to the link only redirects to the console.
    is_link = scope["type"] == "http" and scope["method"] == "GET" and _path(scope) == VERIFICATION_PATH
    if foreign(scope) and not is_link:
        raise Refused(_FOREIGN)
    version = header(scope, b"x-ac7-protocol")
    if version is not None and version.strip() != VERSION:
        got = int(version) if version.isascii() and version.isdigit() and len(version) < len(VERSION) * 10 else version
        wrong = {"error": "unsupported protocol version", "got": got, "expected": int(VERSION)}
        raise Refused(answer(wrong, 400))
