"""backchannel's relay: the HTTP API under `/v1/`, before the hub.

Above: the server's assembly, which gives it the port. Below: the Hub port. An agent proves its name with its token. The
room's token only registers new agents.
"""

import time
from functools import partial

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import ChannelName, MessageId
from tieline.contract.member import Credential, Member, Origin
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.backchannel import view
from tieline.protocols.backchannel.codec import agent_of, is_channel
from tieline.protocols.backchannel.events import Events, not_yours
from tieline.protocols.backchannel.openapi import document
from tieline.protocols.backchannel.registration import Registrar
from tieline.wire.http import Answer, Bodies, answer, bearer, failure, foreign
from tieline.wire.route import Call, Errors, Refused, Route, Stream, fail
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import IDLE_SECONDS, Held, Sessions
from tieline.wire.sse import KEEPALIVE_SECONDS
from tieline.wire.unfinished import Unfinished

PROTOCOL = "backchannel"
PREFIX = "/v1/"

_FORM_BYTES_MAX = 64 * 1024
"""Limit for requests other than send: they hold a name, a channel or an id, and may come without a token."""
_NAME_EXCERPT = 140
"""Characters of a name to repeat in an error: no valid name is longer."""
_PAGE = 1000
"""Deliveries read at once for an inbox, so that no other request waits long behind a large inbox."""

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
"""HTTP status of a refusal. Any other refusal is 400, the protocol's status for a bad request."""

_UNAUTHORIZED = failure(401, "unauthorized — agent token required (get one via /v1/register)")
_NOT_ADMITTED = failure(401, "unauthorized — registration requires the room token")
_TOO_MANY = failure(429, "too many agents registered in the last hour — set a room token on the hub's machine")
_FOREIGN = failure(403, "a page of another site cannot use this hub")
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


class Relay(RouteApp):
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
        self._registrar = Registrar(hub, PROTOCOL, operator, room_token)
        self._events = Events(hub, PROTOCOL, keepalive_seconds)
        self._description = Answer(200, _encode(document()))
        super().__init__(
            hub,
            Sessions(hub, PROTOCOL, idle_seconds=idle_seconds),
            self._make_table(hub.limits.frame_bytes_max),
            Bodies(unfinished or Unfinished(hub.limits)),
            check=_check,
            token=bearer,
            errors=_ERRORS,
        )

    def _make_table(self, message_bytes_max: int) -> tuple[Route, ...]:
        form = partial(Route, "POST", body_bytes_max=_FORM_BYTES_MAX)
        return (
            Route("GET", "/v1/health", self.health, open=True),
            Route("GET", "/v1/openapi.json", self.description, open=True),
            form("/v1/register", self.register, open=True),
            Route("GET", "/v1/agents", self.agents),
            Route("GET", "/v1/channels", self.channels),
            form("/v1/subscribe", self.subscribe),
            form("/v1/unsubscribe", self.unsubscribe),
            Route("POST", "/v1/send", self.send, body_bytes_max=message_bytes_max),
            form("/v1/take", self.take),
            Route("GET", "/v1/inbox/{rest}", self.inbox),
            # Open, because a stream has its own session, and that session checks the token.
            Route("GET", "/v1/events/{rest}", self.events, open=True),
        )

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """True if the path is under `/v1/`; a client whose address ends in a slash writes two."""
        return scope["type"] == "http" and _path(scope).startswith(PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.serve(self.find(scope["method"], _path(scope)), scope, receive, send)

    def close(self) -> None:
        """End all streams and the sessions of requests, because the hub stops."""
        self._events.close()
        super().close()

    # Routes without an agent's token.

    async def health(self, _call: Call, _: None) -> Answer:
        """The relay is there."""
        return _HEALTHY

    async def description(self, _call: Call, _: None) -> Answer:
        """The document of the API."""
        return self._description

    async def register(self, call: Call, form: _Name) -> Answer:
        """Make a name one's own with the room token, or register again with the agent token."""
        name = view.agent_name(form.name)
        if isinstance(name, Refusal):
            return _refused(name)
        token = bearer(call.scope)
        if token is not None and not self._registrar.is_room(token):
            held = await self._sessions.of(token)
            if isinstance(held, Held) and held.member == name:
                return await self._record(token, held)
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

    async def _record(self, token: str, held: Held) -> Answer:
        """Answer an agent that registers again with its own token: return its record, last seen now."""
        listed = await self._sessions.ask(
            token, held, lambda session: (c.ListMembers(session, name=held.member), c.ListChannels(session))
        )
        match listed:
            case r.Roster(members=(presence,)), r.Channels(channels):
                return answer(view.agent(presence, view.subscriptions(channels), _now_ms()))
            case _:
                raise fail(listed, answered=_refused)

    async def events(self, call: Call, _: None) -> Stream:
        """Stream an agent's messages: all that is unread, then each new one; claims nothing."""
        token = bearer(call.scope)
        if token is None:
            raise Refused(_UNAUTHORIZED)

        async def run(send: Send) -> Answer | None:
            reply = await self._events.serve(token, call.params["rest"], call.receive, send)
            return _refused(reply) if isinstance(reply, Refusal) else reply

        return Stream(run)

    # Routes of an agent.

    async def agents(self, call: Call, _: None) -> Answer:
        """List every agent, by name."""
        listed = await call.ask(lambda session: (c.ListMembers(session), c.ListChannels(session)))
        match listed:
            case r.Roster(members), r.Channels(channels):
                joined, now_ms = view.subscriptions(channels), _now_ms()
                return answer([view.agent(presence, joined, now_ms) for presence in members])
            case _:
                raise fail(listed, answered=_refused)

    async def channels(self, call: Call, _: None) -> Answer:
        """List every channel, by name."""
        listed = await call.get(c.ListChannels, r.Channels)
        return answer(sorted(f"#{channel.name}" for channel in listed.channels))

    async def subscribe(self, call: Call, form: _Channel) -> Answer:
        """Join a channel."""
        await call.get(lambda session: c.Subscribe(session, channel=_channel(form)), r.Done)
        return _OK

    async def unsubscribe(self, call: Call, form: _Channel) -> Answer:
        """Leave a channel."""
        await call.get(lambda session: c.Unsubscribe(session, channel=_channel(form)), r.Done)
        return _OK

    async def send(self, call: Call, draft: view.Draft) -> Answer:
        """Send a message; it is durable when this is answered."""
        target = view.target_of(draft.to)
        if isinstance(target, Refusal):
            return _unsent(target, draft.to)
        content = view.content_of(draft, target)
        (reply,) = await call.ask(lambda session: (c.Send(session, content=content),))
        if isinstance(reply, Refusal):
            return _unsent(reply, draft.to)
        assert isinstance(reply, r.Accepted), f"the hub answered with {reply}"
        return answer(view.sent(reply.message_id, call.member, draft))

    async def take(self, call: Call, form: _Take) -> Answer:
        """Claim a message: exactly one asker gets it, all others null."""
        if form.id is None:
            return _NOTHING
        message_id = MessageId(form.id)
        claimed = await call.get(lambda session: c.Claim(session, message_id=message_id), r.Claimed)
        if claimed.delivery is None:
            return _NOTHING
        return answer({"message": view.received(claimed.delivery.message)})

    async def inbox(self, call: Call, _: None) -> Answer:
        """List what is unread, oldest first; claims nothing."""
        name = call.params["rest"]
        if name != call.member:
            return not_yours(call.member, name)
        limits = self._hub.limits
        unread: list[tuple[int, bytes]] = []
        size = after = 0
        complete = False
        while not complete and len(unread) < limits.page_max and size < limits.page_bytes_max:
            fetch = partial(c.Fetch, after=after, limit=min(_PAGE, limits.page_max - len(unread)))
            match await call.get(fetch, r.Fetched):
                case r.Fetched(deliveries, after, complete):
                    page = [(item.message.sent_at_ms, _encode(view.received(item.message))) for item in deliveries]
                    unread += page
                    size += sum(len(encoded) for _, encoded in page)
        # Messages come in the order of acceptance. The sort changes it only if the clock was set back.
        unread.sort(key=lambda item: item[0])
        return Answer(200, b"[" + b",".join(encoded for _, encoded in unread) + b"]")


def _channel(form: _Channel) -> ChannelName:
    return ChannelName(form.channel.removeprefix("#"))


def _check(scope: Scope) -> None:
    if foreign(scope):
        raise Refused(_FOREIGN)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return "/" + path.lstrip("/") if path.startswith("//") else path


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _refused(refusal: Refusal) -> Answer:
    if refusal.code is Code.UNAUTHORIZED:
        return _UNAUTHORIZED
    return failure(_STATUS.get(refusal.code, 400), refusal.message)


def _unsent(refusal: Refusal, to: str) -> Answer:
    """Answer a send that was refused, in the wording that existing clients look for."""
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


_ERRORS = Errors(refused=_refused, no_token=_UNAUTHORIZED, not_found=_NOT_FOUND, invalid_json="invalid JSON")
