"""backchannel's relay: the HTTP API under `/v1/`, before the hub.

Above: the server's assembly, which gives it the port. Below: the Hub port. Whoever shows an agent's token is that
agent; the room's token admits new ones and opens nothing else. Routes are tried in the protocol's order: what needs no
token, registration, the check of the token, all the rest.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import Delivery
from tieline.contract.hub import Hub
from tieline.contract.identifiers import ChannelName, MessageId
from tieline.contract.member import Credential, Member, Origin
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.backchannel import view
from tieline.protocols.backchannel.codec import agent_of, is_channel
from tieline.protocols.backchannel.events import Events, not_yours
from tieline.protocols.backchannel.openapi import document
from tieline.protocols.backchannel.registration import Registrar
from tieline.wire.http import Answer, Bodies, answer, bearer, decode, failure, foreign, respond
from tieline.wire.sessions import IDLE_SECONDS, Held, Make, Sessions
from tieline.wire.sse import KEEPALIVE_SECONDS
from tieline.wire.unfinished import Unfinished

PROTOCOL = "backchannel"
PREFIX = "/v1/"

_FORM_BYTES_MAX = 64 * 1024
"""A name, a channel, an id: all that is ever asked but for sending, and before anybody has shown who it is."""
_NAME_EXCERPT = 140
"""Longer than any name; what is longer is not worth repeating."""
_PAGE = 1000
"""Deliveries read at once for an inbox, so that nobody else waits long behind a large one."""

_STATUS = {
    Code.UNAUTHORIZED: 401,
    Code.UNKNOWN_SESSION: 401,
    Code.FORBIDDEN: 403,
    Code.NAME_TAKEN: 409,
    Code.MESSAGE_TOO_LARGE: 413,
    Code.BACKLOG_FULL: 429,
    Code.LOOP_DETECTED: 429,
    Code.THREAD_PAUSED: 429,
    Code.TOO_MANY_STREAMS: 429,
    Code.INTERNAL_ERROR: 500,
    Code.STORE_FAILED: 503,
    Code.SHUTTING_DOWN: 503,
}
"""Any other refusal is 400, the protocol's status for whatever is wrong with a request."""

_UNAUTHORIZED = failure(401, "unauthorized — agent token required (get one via /v1/register)")
_NOT_ADMITTED = failure(401, "unauthorized — registration requires the room token")
_TOO_MANY = failure(429, "too many agents registered in the last hour — set a room token on the hub's machine")
_NOT_FOUND = failure(404, "not found")
_HEALTHY = answer({"ok": True, "service": "backchannel-relay"})
_OK = answer({"ok": True})
_NOTHING = answer({"message": None})
_encode = msgspec.json.Encoder().encode


class _Name(Struct, frozen=True):
    name: str


class _Channel(Struct, frozen=True):
    channel: str


class _Take(Struct, frozen=True):
    id: str | None = None
    keep: bool | None = None


class _Caller(Struct, frozen=True):
    """One request of an agent that has shown its token."""

    scope: Scope
    receive: Receive
    token: str
    held: Held


_Form = TypeVar("_Form")
_Handler = Callable[[_Caller], Awaitable[Answer]]


class Relay:
    """The routes. An HTTP application for the hub's port."""

    def __init__(
        self,
        hub: Hub,
        operator: Credential,
        room_token: str,
        *,
        unfinished: Unfinished | None = None,
        idle_seconds: float = IDLE_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._hub = hub
        self._sessions = Sessions(hub, PROTOCOL, idle_seconds=idle_seconds)
        self._registrar = Registrar(hub, PROTOCOL, operator, room_token)
        self._events = Events(hub, PROTOCOL, keepalive_seconds)
        self._bodies = Bodies(unfinished or Unfinished(hub.limits))
        self._description = Answer(200, _encode(document()))
        self._routes: dict[tuple[str, str], _Handler] = {
            ("GET", "/v1/agents"): self._agents,
            ("GET", "/v1/channels"): self._channels,
            ("POST", "/v1/subscribe"): partial(self._join, c.Subscribe),
            ("POST", "/v1/unsubscribe"): partial(self._join, c.Unsubscribe),
            ("POST", "/v1/send"): self._send,
            ("POST", "/v1/take"): self._take,
        }

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Whether the path is under `/v1/`; a client whose address ends in a slash writes two."""
        return scope["type"] == "http" and _path(scope).startswith(PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        reply = await self._answer(scope, receive, send)
        if reply is not None:
            await respond(send, reply)

    def close(self) -> None:
        """The hub stops: streams end, and so do the sessions of requests."""
        self._events.close()
        self._sessions.close()

    # Routes.

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        """The answer to a request; none where it was streamed."""
        if foreign(scope):
            return failure(403, "a page of another site cannot use this hub")
        route = scope["method"], _path(scope)
        match route:
            case "GET", "/v1/health":
                return _HEALTHY
            case "GET", "/v1/openapi.json":
                return self._description
            case "POST", "/v1/register":
                return await self._register(scope, receive)
            case _:
                return await self._authorized(route, scope, receive, send)

    async def _authorized(self, route: tuple[str, str], scope: Scope, receive: Receive, send: Send) -> Answer | None:
        """The answer to what only an agent may ask."""
        token = bearer(scope)
        if token is None:
            return _UNAUTHORIZED
        method, path = route
        if method == "GET" and path.startswith("/v1/events/"):
            reply = await self._events.serve(token, path.removeprefix("/v1/events/"), receive, send)
            return _refused(reply) if isinstance(reply, Refusal) else reply
        held = await self._sessions.of(token)
        if isinstance(held, Refusal):
            return _refused(held)
        caller = _Caller(scope, receive, token, held)
        if method == "GET" and path.startswith("/v1/inbox/"):
            return await self._inbox(caller, path.removeprefix("/v1/inbox/"))
        handler = self._routes.get(route)
        return _NOT_FOUND if handler is None else await handler(caller)

    async def _register(self, scope: Scope, receive: Receive) -> Answer:
        form = await self._form(scope, receive, _Name)
        if isinstance(form, Answer):
            return form
        name = view.agent_name(form.name)
        if isinstance(name, Refusal):
            return _refused(name)
        token = bearer(scope)
        if token is not None and not self._registrar.is_room(token):
            held = await self._sessions.of(token)
            if isinstance(held, Held) and held.member == name:
                return await self._record(_Caller(scope, receive, token, held))
            if isinstance(held, Refusal) and held.code is not Code.UNAUTHORIZED:
                return _refused(held)
        if not self._registrar.admits(token):
            holder = await self._registrar.holder(name)
            if isinstance(holder, Refusal):
                return _refused(holder)
            return _NOT_ADMITTED if holder is None else _taken(name, holder)
        if self._registrar.is_full(_now_ms()):
            return _TOO_MANY
        registered = await self._registrar.register(name, _now_ms())
        if isinstance(registered, Refusal):
            return _refused(registered)
        if isinstance(registered, Member):
            return _taken(name, registered)
        joined = view.subscriptions(registered.channels.channels)
        return answer(view.agent(registered.presence, joined, _now_ms(), registered.token))

    async def _record(self, caller: _Caller) -> Answer:
        """An agent that shows its token registers again: all that is new is that it was seen."""
        listed = await self._ask(
            caller, lambda session: (c.ListMembers(session, name=caller.held.member), c.ListChannels(session))
        )
        match listed:
            case r.Roster(members=(presence,)), r.Channels(channels):
                return answer(view.agent(presence, view.subscriptions(channels), _now_ms()))
            case _:
                return _unexpected(listed)

    async def _agents(self, caller: _Caller) -> Answer:
        listed = await self._ask(caller, lambda session: (c.ListMembers(session), c.ListChannels(session)))
        match listed:
            case r.Roster(members), r.Channels(channels):
                joined, now_ms = view.subscriptions(channels), _now_ms()
                return answer([view.agent(presence, joined, now_ms) for presence in members])
            case _:
                return _unexpected(listed)

    async def _channels(self, caller: _Caller) -> Answer:
        listed = await self._ask(caller, lambda session: (c.ListChannels(session),))
        match listed:
            case (r.Channels(channels),):
                return answer(sorted(f"#{channel.name}" for channel in channels))
            case _:
                return _unexpected(listed)

    async def _join(self, command: type[c.Subscribe | c.Unsubscribe], caller: _Caller) -> Answer:
        form = await self._form(caller.scope, caller.receive, _Channel, caller.held.member)
        if isinstance(form, Answer):
            return form
        channel = ChannelName(form.channel.removeprefix("#"))
        replies = await self._ask(caller, lambda session: (command(session, channel=channel),))
        return _OK if isinstance(replies[0], r.Done) else _unexpected(replies)

    async def _send(self, caller: _Caller) -> Answer:
        bytes_max = self._hub.limits.frame_bytes_max
        draft = await self._form(caller.scope, caller.receive, view.Draft, caller.held.member, bytes_max)
        if isinstance(draft, Answer):
            return draft
        target = view.target_of(draft.to)
        if isinstance(target, Refusal):
            return _unsent(target, draft.to)
        content = view.content_of(draft, target)
        replies = await self._ask(caller, lambda session: (c.Send(session, content=content),))
        match replies:
            case (r.Accepted(message_id),):
                return answer(view.sent(message_id, caller.held.member, draft))
            case (Refusal() as refusal,):
                return _unsent(refusal, draft.to)
            case _:
                return _unexpected(replies)

    async def _take(self, caller: _Caller) -> Answer:
        form = await self._form(caller.scope, caller.receive, _Take, caller.held.member)
        if isinstance(form, Answer):
            return form
        if form.id is None:
            return _NOTHING
        message_id = MessageId(form.id)
        replies = await self._ask(caller, lambda session: (c.Claim(session, message_id=message_id),))
        match replies:
            case (r.Claimed(None),):
                return _NOTHING
            case (r.Claimed(Delivery() as delivery),):
                return answer({"message": view.received(delivery.message)})
            case _:
                return _unexpected(replies)

    async def _inbox(self, caller: _Caller, name: str) -> Answer:
        if name != caller.held.member:
            return not_yours(caller.held.member, name)
        limits = self._hub.limits
        unread: list[tuple[int, bytes]] = []
        size = after = 0
        complete = False
        while not complete and len(unread) < limits.page_max and size < limits.page_bytes_max:
            replies = await self._ask(caller, _fetch(after, min(_PAGE, limits.page_max - len(unread))))
            match replies:
                case (r.Fetched(deliveries, after, complete),):
                    page = [(item.message.sent_at_ms, _encode(view.received(item.message))) for item in deliveries]
                    unread += page
                    size += sum(len(encoded) for _, encoded in page)
                case _:
                    return _unexpected(replies)
        # As they were accepted, unless the clock was set back meanwhile; sorting keeps what is sorted.
        unread.sort(key=lambda item: item[0])
        return Answer(200, b"[" + b",".join(encoded for _, encoded in unread) + b"]")

    # Inside.

    async def _form(
        self, scope: Scope, receive: Receive, shape: type[_Form], owner: str | None = None, bytes_max: int = 0
    ) -> _Form | Answer:
        body = await self._bodies.read(scope, receive, bytes_max or _FORM_BYTES_MAX, owner)
        return body if isinstance(body, Answer) else decode(body, shape)

    async def _ask(self, caller: _Caller, make: Make) -> Sequence[r.Reply]:
        return await self._sessions.ask(caller.token, caller.held, make)


def _fetch(after: int, limit: int) -> Make:
    return lambda session: (c.Fetch(session, after=after, limit=limit),)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _refused(refusal: Refusal) -> Answer:
    if refusal.code is Code.UNAUTHORIZED:
        return _UNAUTHORIZED
    return failure(_STATUS.get(refusal.code, 400), refusal.message)


def _unexpected(replies: Sequence[r.Reply]) -> Answer:
    """The answer to what the hub refused, whichever of the commands it was."""
    refusal = next((reply for reply in replies if isinstance(reply, Refusal)), None)
    assert refusal is not None, f"the hub answered with {replies}"
    return _refused(refusal)


def _unsent(refusal: Refusal, to: str) -> Answer:
    """Why a message was not sent, in the words that existing clients look for."""
    match refusal.code:
        case Code.UNKNOWN_MEMBER | Code.INVALID_NAME | Code.RESERVED_NAME if not is_channel(to):
            name = agent_of(to)[:_NAME_EXCERPT]
            return failure(400, f'unknown agent "{name}" — they must `bch init {name}` first{refusal.hint}')
        case Code.UNKNOWN_CHANNEL | Code.NO_RECIPIENTS | Code.INVALID_NAME:
            text = f"channel {to[:_NAME_EXCERPT]} has no other subscribers — nothing to deliver"
            return failure(400, text + refusal.hint)
        case _:
            return _refused(refusal)


def _taken(name: str, holder: Member) -> Answer:
    text = f'agent name "{name}" is registered — present its token to re-register'
    if holder.origin is Origin.LOCAL:
        text += (
            f"; an agent on the hub's machine made it, and `tieline member rotate {holder.name}` there gives it a token"
        )
    return failure(409, text)
