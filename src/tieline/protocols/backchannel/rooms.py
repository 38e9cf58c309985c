"""Rooms: makes a room for `POST /v1/rooms`, and answers requests to a room that does not exist.

Used by: the relay and the server of this protocol. Uses: the interface of the hub that makes rooms. A room is another
hub with its own members. The header `x-backchannel-room` of a request names the room, and the hub finds the room before
any route sees the request.
"""

import hmac
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256

import structlog
from starlette.types import Receive, Scope, Send

from tieline.contract.member import ROOM_INVITATION, InvitationView
from tieline.contract.refusal import Refusal
from tieline.protocols.backchannel import view
from tieline.protocols.backchannel.settings import ROOM_HEADER, BackchannelSettings
from tieline.wire.http import Answer, HttpApp, answer, bearer, failure, respond
from tieline.wire.rate_limit import RateLimit, seconds
from tieline.wire.room import ROOMS_MAX, RoomMaker, room_of
from tieline.wire.route import wait

PATH = "/v1/rooms"
UNAUTHORIZED = failure(401, "unauthorized — agent token required (get one via /v1/register)")

_REQUESTS_MAX = 100
_REQUESTS_WINDOW_MS = 3600 * 1000
"""Time window of the rate limit for making rooms: one hour. Each client address has its own limit.

The limit is needed because any stranger can ask for a room.
"""
_ID_EXCERPT = 140
"""Most characters of a room's id that an error text repeats. No valid id is longer."""

_OFF = failure(403, "rooms are off on this relay — register without a room, or ask its owner to set `rooms`")
_RESTRICTED = failure(401, "room creation is restricted on this relay")
_FULL = failure(
    429, f"this relay has {ROOMS_MAX} rooms, and keeps no more — a room that nobody joined goes after a day"
)
_TOO_MANY = failure(429, "too many rooms asked for in the last hour — try again later")
_NOT_STORED = failure(503, "the room could not be stored — try again later")
_WITHOUT_ROOM = frozenset({("GET", "/v1/health"), ("GET", "/v1/openapi.json"), ("POST", PATH)})
"""Requests that concern the whole relay (HTTP server).

They are answered even if they name a room that does not exist.
"""

FindInvitation = Callable[[str], Awaitable[InvitationView | Refusal | None]]

log = structlog.get_logger(__name__)


class RoomCreation:
    """Makes rooms for clients. The configuration says which clients may make rooms. Each address has a rate limit."""

    def __init__(self, rooms: RoomMaker | None, settings: BackchannelSettings, *, is_loopback: bool) -> None:
        self._rooms = rooms
        self._policy = settings.rooms_policy(is_loopback=is_loopback)
        # A digest, so that the duration of a comparison reveals nothing.
        self._admin = sha256(settings.admin_token.encode()).digest() if settings.admin_token else None
        self._requests = RateLimit(_REQUESTS_MAX, _REQUESTS_WINDOW_MS)

    async def create(self, scope: Scope, find: FindInvitation) -> Answer:
        """Answer `POST /v1/rooms`: make a room and return its id and token, or refuse.

        `find` finds an invitation by its secret. It is called to check if the request has the room token.
        """
        if self._rooms is None or self._policy == "off":
            return _OFF
        now_ms = time.time_ns() // 1_000_000
        address = (scope.get("client") or ("",))[0]
        wait_ms = self._requests.wait_ms(address, now_ms)
        if wait_ms:
            return wait(_TOO_MANY, seconds(wait_ms))
        self._requests.count(address, now_ms)
        if self._policy == "token" and not await self._is_shown(bearer(scope), find):
            return _RESTRICTED
        try:
            made = await self._rooms.create()
        except OSError as error:
            log.warning("a room could not be made", reason=str(error))
            return _NOT_STORED
        return _FULL if made is None else answer(view.Room(made.id, made.token))

    async def _is_shown(self, token: str | None, find: FindInvitation) -> bool:
        if token is None:
            return False
        if self._admin is not None:
            return hmac.compare_digest(sha256(token.encode()).digest(), self._admin)
        found = await find(token)
        return isinstance(found, InvitationView) and found.id == ROOM_INVITATION


class NoRoom:
    """HTTP application that answers requests of backchannel if the room in the request does not exist."""

    def __init__(self, relay: HttpApp) -> None:
        self._relay = relay

    def serves(self, scope: Scope) -> bool:
        """True if the path belongs to backchannel's HTTP API."""
        return self._relay.serves(scope)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that names a room that does not exist.

        If the request concerns the whole relay (the server of all rooms), it is passed on to the relay. Otherwise it
        is refused, with 404 for a registration and 401 for all others, and with the text of backchannel's first
        implementation.
        """
        path = "/" + scope["path"].lstrip("/")
        if (scope["method"], path) in _WITHOUT_ROOM:
            await self._relay(scope, receive, send)
        elif (scope["method"], path) == ("POST", "/v1/register"):
            room = (room_of(scope, (ROOM_HEADER,)) or "")[:_ID_EXCERPT]
            await respond(send, failure(404, f'unknown room "{room}" — create one with `bch room new`'))
        else:
            await respond(send, UNAUTHORIZED)

    def close(self) -> None:
        """Do nothing, because this application has no open connections."""
