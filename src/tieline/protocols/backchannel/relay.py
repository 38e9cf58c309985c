"""backchannel's relay: the HTTP API of the hub under `/v1/`.

Used by: the package `server`, which serves it on the hub's HTTP port. Uses: the interface `contract.hub`. An agent
proves its name with its token. The room's token is only for the registration of new agents.
"""

import time
from collections.abc import AsyncIterator
from functools import cached_property, partial

import msgspec
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import ChannelName
from tieline.contract.member import Credential, Member, Origin
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.backchannel import view
from tieline.protocols.backchannel.codec import agent_of, is_channel, is_id
from tieline.protocols.backchannel.events import Events, not_yours
from tieline.protocols.backchannel.message_ids import MessageIds, is_made_here
from tieline.protocols.backchannel.registration import Registrar
from tieline.protocols.backchannel.rooms import PATH, UNAUTHORIZED, RoomCreation
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.wire.http import Answer, Bodies, answer, bearer, failure, foreign
from tieline.wire.openapi import document
from tieline.wire.rate_limit import seconds
from tieline.wire.route import Call, Errors, Refused, Route, Stream, fail, wait
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import IDLE_SECONDS, CachedSession, Sessions
from tieline.wire.sse import KEEPALIVE_SECONDS
from tieline.wire.unfinished import Unfinished

PROTOCOL = view.RELAY
PREFIX = "/v1/"

_FORM_BYTES_MAX = 64 * 1024
"""Most bytes of a request that sends no message. Such a request has only a name, a channel or an id."""
_NAME_EXCERPT = 140
"""Most characters of a name that an error text repeats. No valid name is longer."""
_PAGE = 1000
"""Largest number of deliveries that are read in one step.

Because of this limit, a large inbox does not delay other requests long.
"""

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
"""HTTP status for each of these refusal codes. Other codes get 400, the protocol's status for a bad request."""

_NOT_ADMITTED = failure(401, "unauthorized — registration requires the room token")
_TOO_MANY = failure(429, "too many agents registered in the last hour — set a room token on the hub's machine")
_TOO_MANY_WRONG = failure(429, "too many wrong invitations in the last hour — try again later")
_FOREIGN = failure(403, "a page of another site cannot use this hub")
_NOT_FOUND = failure(404, "not found")
_UNKNOWN = (404,)
_HEALTHY = view.Health(ok=True, service="backchannel-relay")
_OK = view.Ok(ok=True)
_NOTHING = answer({"message": None})
_encode = msgspec.json.Encoder().encode


class Relay(RouteApp):
    """The routes of backchannel's HTTP API under `/v1/`, as an application for the hub's HTTP port."""

    def __init__(  # noqa: PLR0913 - the hub, its newcomers, its rooms, and its waits
        self,
        hub: Hub,
        operator: Credential,
        *,
        is_open: bool = False,
        hub_makes_tokens: bool = False,
        ids: MessageIds | None = None,
        rooms: RoomCreation | None = None,
        unfinished: Unfinished | None = None,
        idle_seconds: float = IDLE_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._registrar = Registrar(hub, PROTOCOL, operator, is_open=is_open, hub_makes_tokens=hub_makes_tokens)
        self._rooms = rooms or RoomCreation(None, BackchannelSettings(), is_loopback=False)
        self._ids = ids or MessageIds()
        self._events = Events(hub, PROTOCOL, self._ids, keepalive_seconds)
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
        get = partial(Route, "GET", errors=_UNKNOWN)
        form = partial(Route, "POST", body_bytes_max=_FORM_BYTES_MAX, errors=_UNKNOWN)
        # These routes check the token themselves: registration and rooms take a room token, the stream has a session.
        register = partial(form, open=True, checks_token=True)
        stream = partial(get, open=True, checks_token=True)
        return (
            Route("GET", "/v1/health", self.health, open=True),
            Route("GET", "/v1/openapi.json", self.description, open=True, gives=("application/json",)),
            register("/v1/register", self.register, answered=view.Agent, errors=(404, 409, 429)),
            Route("POST", PATH, self.rooms, open=True, checks_token=True, answered=view.Room, errors=(429,)),
            get("/v1/agents", self.agents),
            get("/v1/channels", self.channels),
            form("/v1/subscribe", self.subscribe),
            form("/v1/unsubscribe", self.unsubscribe),
            form("/v1/send", self.send, body_bytes_max=message_bytes_max, answered=view.Message, errors=(404, 429)),
            form("/v1/take", self.take, answered=view.Taken),
            get("/v1/inbox/{agent*}", self.inbox, answered=list[view.Message]),
            stream("/v1/events/{agent*}", self.events, gives=("text/event-stream",)),
        )

    @cached_property
    def _description(self) -> Answer:
        """HTTP answer with the OpenAPI document.

        The document is made at the first request, because making it takes long.
        """
        return Answer(
            200, _encode(document(self.table, "backchannel relay", "The relay API of a Tieline hub.", view.Error))
        )

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """True if the request's path is under `/v1/`.

        The path may begin with two slashes, because a client's address may end with a slash.
        """
        return scope["type"] == "http" and _path(scope).startswith(PREFIX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        await self.serve(self.find(scope["method"], _path(scope)), scope, receive, send)

    def close(self) -> None:
        """End all event streams and the sessions of requests, because the hub stops."""
        self._events.close()
        super().close()

    # Routes without an agent's token.

    async def health(self, _call: Call, _: None) -> view.Health:
        """Check that the relay runs."""
        return _HEALTHY

    async def description(self, _call: Call, _: None) -> Answer:
        """This document."""
        return self._description

    async def register(self, call: Call, form: view.Name) -> Answer:
        """Register a name with the room token or an invitation, or register again with the agent token."""
        name = view.agent_name(form.name)
        if isinstance(name, Refusal):
            return _refused(name)
        token = bearer(call.scope)
        address, now_ms = (call.scope.get("client") or ("",))[0], _now_ms()
        wait_ms = self._registrar.wait_ms(address, now_ms)
        if wait_ms:
            return wait(_TOO_MANY_WRONG, seconds(wait_ms))
        invited = None if token is None else await self._registrar.find(token)
        if isinstance(invited, Refusal):
            return _refused(invited)
        if token is not None and invited is None:
            cached = await self._sessions.of(token)
            # spec, Relay API: with its own token, an agent registers again and gets its record.
            if isinstance(cached, CachedSession) and cached.member == name:
                return await self._record(token, cached)
            if isinstance(cached, Refusal) and cached.code is not Code.UNAUTHORIZED:
                return _refused(cached)
        # spec, Trust model: a relay with a room token registers new names only for those who show it.
        if invited is None and not self._registrar.is_open:
            self._registrar.count_wrong(address, now_ms)
            holder = await self._registrar.holder(name)
            if isinstance(holder, Refusal):
                return _refused(holder)
            return _NOT_ADMITTED if holder is None else _taken(name, holder)
        if self._registrar.is_full(now_ms):
            return _TOO_MANY
        registered = await self._registrar.register(name, None if invited is None else token, now_ms)
        if isinstance(registered, Refusal):
            return _refused(registered)
        if isinstance(registered, Member):
            return _taken(name, registered)
        joined = view.subscriptions(registered.channels.channels)
        return answer(view.agent(registered.presence, joined, _now_ms(), registered.token))

    async def rooms(self, call: Call, _: None) -> Answer:
        """Make a room."""
        return await self._rooms.create(call.scope, self._registrar.find)

    async def _record(self, token: str, cached: CachedSession) -> Answer:
        """Return the answer for an agent that registers again with its own token: the agent's record, last seen now."""
        listed = await self._sessions.ask(
            token, cached, lambda session: (c.ListMembers(session, name=cached.member), c.ListChannels(session))
        )
        match listed:
            case r.Roster(members=(presence,)), r.Channels(channels):
                return answer(view.agent(presence, view.subscriptions(channels), _now_ms()))
            case _:
                raise fail(listed, answered=_refused)

    async def events(self, call: Call, _: None) -> Stream:
        """Stream unread messages and then each new one as server-sent events, without claiming them."""
        token = bearer(call.scope)
        if token is None:
            raise Refused(UNAUTHORIZED)

        async def run(send: Send) -> Answer | None:
            reply = await self._events.serve(token, call.params["agent"], call.receive, send)
            return _refused(reply) if isinstance(reply, Refusal) else reply

        return Stream(run)

    # Routes of an agent.

    async def agents(self, call: Call, _: None) -> list[view.Agent]:
        """List all agents, by name."""
        listed = await call.ask(lambda session: (c.ListMembers(session), c.ListChannels(session)))
        match listed:
            case r.Roster(members), r.Channels(channels):
                joined, now_ms = view.subscriptions(channels), _now_ms()
                return [view.agent(presence, joined, now_ms) for presence in members]
            case _:
                raise fail(listed, answered=_refused)

    async def channels(self, call: Call, _: None) -> list[str]:
        """List all channels, by name."""
        listed = await call.get(c.ListChannels, r.Channels)
        return sorted(f"#{channel.name}" for channel in listed.channels)

    async def subscribe(self, call: Call, form: view.Channel) -> view.Ok:
        """Join a channel."""
        await call.get(lambda session: c.Subscribe(session, channel=_channel(form)), r.Done)
        return _OK

    async def unsubscribe(self, call: Call, form: view.Channel) -> view.Ok:
        """Leave a channel."""
        await call.get(lambda session: c.Unsubscribe(session, channel=_channel(form)), r.Done)
        return _OK

    async def send(self, call: Call, draft: view.Draft) -> Answer:
        """Send a message. Answered once it is durable."""
        target = view.target_of(draft.to)
        if isinstance(target, Refusal):
            return _unsent(target, draft.to)
        content = replace(view.content_of(draft, target), original=view.spelling_of(draft, target))
        if content.reply_to is not None:
            content = replace(content, reply_to=self._ids.find(content.reply_to, call.member))
        (reply,) = await call.ask(lambda session: (c.Send(session, content=content),))
        if isinstance(reply, Refusal):
            return _unsent(reply, draft.to)
        assert isinstance(reply, r.Accepted), f"the hub answered with {reply}"
        # spec, Trust model: the relay sets the sender from the token, whatever the request says.
        return answer(view.sent(reply.message_id, call.member, draft))

    async def take(self, call: Call, form: view.Claim) -> Answer:
        """Claim a message. Exactly one caller gets it; all others get null."""
        if form.id is None or not is_id(form.id):
            return _NOTHING
        if self._ids.find(form.id, call.member) == form.id and not is_made_here(form.id):
            # It may be the id of a file that was taken in long ago. Reading the inbox notes such ids.
            async for _ in self._unread(call):
                pass
        message_id = self._ids.find(form.id, call.member)
        claimed = await call.get(lambda session: c.Claim(session, message_id=message_id), r.Claimed)
        # spec, Claims: exactly one reader gets a message; for all others it is gone, which is no error.
        if claimed.delivery is None:
            return _NOTHING
        return answer({"message": view.received(claimed.delivery.message, self._ids)})

    async def inbox(self, call: Call, _: None) -> Answer:
        """List unread messages, oldest first, without claiming them."""
        name = call.params["agent"]
        # spec, Relay API: a token reads only the inbox of its own agent.
        if name != call.member:
            return not_yours(call.member, name)
        unread = [item async for item in self._unread(call)]
        # Messages come in the order of acceptance. The sort changes it only if the clock was set back.
        unread.sort(key=lambda item: item[0])
        return Answer(200, b"[" + b",".join(encoded for _, encoded in unread) + b"]")

    async def _unread(self, call: Call) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the unread messages of the calling agent, in the order in which the hub accepted them.

        Each item is the time of a message and its JSON.
        """
        limits = self._hub.limits
        count = size = after = 0
        complete = False
        while not complete and count < limits.page_max and size < limits.page_bytes_max:
            fetch = partial(c.Fetch, after=after, limit=min(_PAGE, limits.page_max - count))
            match await call.get(fetch, r.Fetched):
                case r.Fetched(deliveries, after, complete):
                    for item in deliveries:
                        encoded = _encode(view.received(item.message, self._ids))
                        size += len(encoded)
                        yield item.message.sent_at_ms, encoded
                    count += len(deliveries)


def _channel(form: view.Channel) -> ChannelName:
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
        return UNAUTHORIZED
    return failure(_STATUS.get(refusal.code, 400), refusal.message)


def _unsent(refusal: Refusal, to: str) -> Answer:
    """Return the error answer for a message that the hub refused, in the wording on which existing clients rely."""
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


_ERRORS = Errors(refused=_refused, no_token=UNAUTHORIZED, not_found=_NOT_FOUND, invalid_json="invalid JSON")
