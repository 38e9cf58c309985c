"""MCP over Streamable HTTP, at `/mcp`: an HTTP application that serves the agents' tools and pushes their messages.

Used by: the package `server`, which serves it on the hub's HTTP port. Uses: `caller`, `listener` and `response`. Each
request has the token of a member. The header `MCP-Protocol-Version` has the version of a request. There are two kinds
of versions (see `codec`):

- Handshake versions, also assumed without the header: `initialize` opens a session, `GET` opens the session's stream,
  `DELETE` ends the session. A session without requests and without a stream ends after `IDLE_SECONDS`.
- Stateless versions, assumed for every other value of the header: there are no sessions. `subscriptions/listen` is
  answered by a stream.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.types import Receive, Scope, Send

from tieline.contract.hub import Hub, Interest, MessageRedacted, Notice
from tieline.contract.refusal import Code
from tieline.protocols.mcp import codec
from tieline.protocols.mcp.agent_session import UnknownTool, result_of
from tieline.protocols.mcp.caller import Caller
from tieline.protocols.mcp.codec import Invalid, Message
from tieline.protocols.mcp.listener import Listener, Stream
from tieline.protocols.mcp.response import TICK_SECONDS, Response
from tieline.wire.http import Answer, Bodies, bearer, foreign, header, respond
from tieline.wire.native.errors import HubError, HubRefused
from tieline.wire.protocol import Server
from tieline.wire.sse import KEEPALIVE_SECONDS, comment, event
from tieline.wire.unfinished import Unfinished

PATH = "/mcp"

IDLE_SECONDS = 30 * 60.0
"""Time after which an MCP session without requests and without a stream ends. A client that crashes never ends its
session itself."""
CALLER_IDLE_SECONDS = 60.0
"""Time for which a session with the hub is kept after the last request of its token. During this time the token's
member counts as connected."""
SESSIONS_MAX = 64
"""Largest number of MCP sessions of one token. It is also the largest number of the token's streams, in the versions of
MCP without sessions. If a client opens one session more, the session that was unused for the longest time ends."""
CALLS_MAX = 32
"""Largest number of requests of one token that are answered at the same time. A program sends few requests at once."""
_ID_BYTES = 16  # nobody guesses a session's id
_EVENT_DIGITS_MAX = 18  # no stream has so many events

_NO_TOKEN = Invalid(codec.INVALID_REQUEST, "a member's token is missing: Authorization: Bearer TOKEN")
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)
_KEEPALIVE = comment("keepalive")


class _Refused(Exception):
    """Raised to answer a request at once with the error `wrong` and an HTTP status."""

    def __init__(self, status: int, wrong: Invalid, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(str(wrong))
        self.answer = Answer(status, codec.error(None, wrong), b"application/json", headers=headers)


_Opened = tuple[Listener, Stream, int]
"""A stream that was opened: its listener, the stream, and the number of the last event that the client has."""


class McpSession:
    """A session that an MCP client opened with `initialize`. Only the handshake versions of MCP have sessions."""

    __slots__ = ("digest", "id", "listener", "running", "used_at", "version")

    def __init__(self, digest: bytes, listener: Listener, version: str, now: float) -> None:
        self.id = secrets.token_hex(_ID_BYTES)
        # Hash of the token that opened the session.
        self.digest = digest
        self.listener = listener
        self.version = version
        self.used_at = now
        # Requests that are being answered, with their ids. A client may give the same id to several.
        self.running: dict[asyncio.Task[Answer], int | str] = {}


class Mcp(Server):
    """Server of MCP: an HTTP application for the hub's HTTP port."""

    def __init__(
        self,
        hub: Hub,
        now_ms: Callable[[], int],
        *,
        unfinished: Unfinished | None = None,
        idle_seconds: float = IDLE_SECONDS,
        caller_idle_seconds: float = CALLER_IDLE_SECONDS,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._hub = hub
        self._now_ms = now_ms
        self._bodies = Bodies(unfinished or Unfinished(hub.limits))
        self._idle_seconds = idle_seconds
        self._caller_idle_seconds = caller_idle_seconds
        self._keepalive_seconds = keepalive_seconds
        self._tick_seconds = tick_seconds
        # Callers by the hash of their token; and callers whose first session is being opened.
        self._callers: dict[bytes, Caller] = {}
        self._opening: dict[bytes, asyncio.Future[Caller]] = {}
        self._sessions: dict[str, McpSession] = {}
        # Listeners of clients with stateless versions, each with the hash of its token.
        self._listeners: dict[Listener, bytes] = {}
        self._streaming: set[asyncio.Task[Any]] = set()
        self._upkeep: asyncio.Task[None] | None = None
        self._stop_watching = hub.watch(Interest(redactions=True), self._redacted)

    @property
    def http(self) -> "Mcp":  # type: ignore[override]  # returns itself
        """The HTTP application of MCP, which is this object itself."""
        return self

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """True if the path of the request is `/mcp`."""
        return bool(scope["type"] == "http" and scope["path"].rstrip("/") == PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request at `/mcp`, or run the stream that the request opens."""
        opened: _Opened | None = None
        try:
            # spec, Streamable HTTP, Security Warning: the header Origin is checked.
            if foreign(scope):
                raise _Refused(403, Invalid(codec.INVALID_REQUEST, "a page of another site cannot use this hub"))
            version = header(scope, codec.VERSION_HEADER)
            is_stateless = version is not None and version not in codec.HANDSHAKE_VERSIONS
            allowed = ("POST",) if is_stateless else ("POST", "GET", "DELETE")
            if scope["method"] not in allowed:
                listed = ((b"allow", ", ".join(allowed).encode()),)
                raise _Refused(405, Invalid(codec.INVALID_REQUEST, "this method is not served here"), listed)
            caller = await self._caller(scope)
            if is_stateless:
                opened = await self._stateless(caller, scope, receive, send)
            elif scope["method"] == "POST":
                await self._post(caller, scope, receive, send)
            elif scope["method"] == "GET":
                opened = await self._get(caller, scope, send)
            else:
                self._end(self._session(caller, scope))
                await respond(send, Answer(200, b""))
        except _Refused as refusal:
            await respond(send, refusal.answer)
        if opened is not None:
            # A stream stays open for long. Nothing but this frame and the listener is kept for it.
            listener, stream, after = opened
            scope["headers"].clear()
            del scope, send, opened
            try:
                await listener.run(stream, receive, after)
            finally:
                self._listeners.pop(listener, None)

    def close(self) -> None:
        """End all sessions and streams, because the hub stops."""
        for session in list(self._sessions.values()):
            self._end(session)
        for listener in list(self._listeners):
            listener.end()
        for caller in list(self._callers.values()):
            self._forget(caller)
        if self._upkeep is not None:
            self._upkeep.cancel()
            self._upkeep = None
        self._stop_watching()

    # Callers.

    async def _caller(self, scope: Scope) -> Caller:
        """Return the caller for the token of a request. Open its session with the hub if necessary.

        Raises `_Refused` if the request has no valid token, or if the hub cannot open a session now.
        """
        token = bearer(scope)
        if token is None:
            raise _Refused(401, _NO_TOKEN, _CHALLENGE)
        digest = sha256(token.encode()).digest()
        caller = self._callers.get(digest)
        if caller is None:
            try:
                # Shielded, because other requests may wait for the same caller.
                caller = await asyncio.shield(self._opening.get(digest) or self._open(token, digest))
            except HubRefused as error:
                self._drop(digest)
                wrong = Invalid(codec.INVALID_REQUEST, str(error))
                if error.code is Code.UNAUTHORIZED:
                    raise _Refused(401, wrong, _CHALLENGE) from error
                raise _Refused(503, wrong) from error
            except HubError as error:
                raise _Refused(503, Invalid(codec.INTERNAL_ERROR, str(error))) from error
        caller.used_at = asyncio.get_running_loop().time()
        return caller

    def _open(self, token: str, digest: bytes) -> "asyncio.Future[Caller]":
        async def open_caller() -> Caller:
            try:
                caller = Caller(self._hub, token, digest, self._forget, self._now_ms)
                await caller.open()
                self._callers[digest] = caller
                return caller
            finally:
                del self._opening[digest]

        self._opening[digest] = opening = asyncio.ensure_future(open_caller())
        if self._upkeep is None:
            self._upkeep = asyncio.create_task(self._keep_up())
        return opening

    def _forget(self, caller: Caller) -> None:
        """Forget a caller, and end its session with the hub.

        If its token is not valid any more, also end the MCP sessions and streams of the token.
        """
        if self._callers.get(caller.digest) is caller:
            del self._callers[caller.digest]
        caller.close()
        if caller.is_over:
            self._drop(caller.digest)

    def _drop(self, digest: bytes) -> None:
        """End the MCP sessions and streams of a token that is not valid any more. `digest` is the token's hash."""
        for session in [one for one in self._sessions.values() if one.digest == digest]:
            self._end(session)
        for listener in [one for one, owner in self._listeners.items() if owner == digest]:
            listener.end()

    # Upkeep: one task for all sessions and streams.

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        while self._callers or self._opening or self._sessions or self._listeners:
            await asyncio.sleep(self._keepalive_seconds)
            now = loop.time()
            for session in list(self._sessions.values()):
                if session.listener.stream is None and not session.running:
                    if now - session.used_at > self._idle_seconds:
                        self._end(session)
                else:
                    session.used_at = now
            for caller in list(self._callers.values()):
                if caller.idle and now - caller.used_at > self._caller_idle_seconds:
                    self._forget(caller)
            for listener in self._all_listeners():
                stream = listener.stream
                # A stream that is being written needs no sign of life; its client may read slowly.
                if stream is not None and stream.is_quiet:
                    self._later(stream.write(_KEEPALIVE))
        self._upkeep = None

    def _all_listeners(self) -> list[Listener]:
        return [*(one.listener for one in self._sessions.values()), *self._listeners]

    def _redacted(self, notice: Notice) -> None:
        assert isinstance(notice, MessageRedacted), "asked for"
        for listener in self._all_listeners():
            listener.redacted(notice.message.id)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._streaming.add(task)
        task.add_done_callback(self._streaming.discard)

    # Handshake versions.

    def _session(self, caller: Caller, scope: Scope) -> McpSession:
        named = header(scope, codec.SESSION_HEADER)
        # spec, Streamable HTTP, Session Management: without its id 400, with one that has ended 404.
        if named is None:
            raise _Refused(400, Invalid(codec.INVALID_REQUEST, "the header Mcp-Session-Id is missing"))
        session = self._sessions.get(named)
        if session is None or session.digest != caller.digest:
            raise _Refused(404, Invalid(codec.INVALID_REQUEST, "there is no such session: initialize a new one"))
        session.used_at = asyncio.get_running_loop().time()
        return session

    async def _get(self, caller: Caller, scope: Scope, send: Send) -> _Opened:
        session = self._session(caller, scope)
        if not _accepts_events(scope):
            raise _Refused(406, Invalid(codec.INVALID_REQUEST, "accept text/event-stream"))
        # spec, Streamable HTTP, Resumability and Redelivery: the client names the last event that it has.
        last = header(scope, b"last-event-id") or ""
        stream = Stream(send)
        await stream.begin((codec.SESSION_HEADER, session.id.encode()))
        # Longer numbers are none of ours, and a number of thousands of digits cannot be read.
        return session.listener, stream, int(last) if last.isdecimal() and len(last) <= _EVENT_DIGITS_MAX else 0

    async def _post(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        messages = await self._messages(caller, scope, receive)
        if len(messages) == 1 and messages[0].is_request and messages[0].named == "initialize":
            return await self._initialize(caller, messages[0], send)
        session = self._session(caller, scope)
        if len(messages) > 1 and session.version != codec.BATCH_VERSION:
            raise _Refused(400, Invalid(codec.INVALID_REQUEST, "a body has one message"))
        asked = [message for message in messages if message.is_request]
        for message in messages:
            if message.named == "notifications/cancelled":
                self._cancel(session, message)
        # spec, Streamable HTTP, Sending Messages to the Server: without a request, the answer is 202.
        if not asked:
            return await respond(send, Answer(202, b""))
        return await self._respond(caller, asked, scope, receive, send, session, is_list=len(messages) > 1)

    async def _initialize(self, caller: Caller, message: Message, send: Send) -> None:
        version, result = codec.initialized(message.params)
        own = [session for session in self._sessions.values() if session.digest == caller.digest]
        if len(own) >= SESSIONS_MAX:
            unused = [session for session in own if session.listener.stream is None and not session.running]
            if not unused:
                raise _Refused(503, Invalid(codec.INTERNAL_ERROR, f"a token has at most {SESSIONS_MAX} sessions"))
            self._end(min(unused, key=lambda session: session.used_at))
        listener = self._listener(caller)
        session = McpSession(caller.digest, listener, version, asyncio.get_running_loop().time())
        self._sessions[session.id] = session
        headers = ((codec.SESSION_HEADER, session.id.encode()),)
        await respond(send, Answer(200, codec.answer(_id(message), result), b"application/json", headers=headers))

    def _cancel(self, session: McpSession, message: Message) -> None:
        # spec, Cancellation: an unknown request is ignored.
        number = (message.params or {}).get("requestId")
        # True equals 1, but it is no id.
        if isinstance(number, int | str) and not isinstance(number, bool):
            for task in [task for task, key in session.running.items() if key == number]:
                task.cancel()

    def _end(self, session: McpSession) -> None:
        self._sessions.pop(session.id, None)
        for task in list(session.running):
            task.cancel()
        session.listener.end()

    # Stateless versions.

    async def _stateless(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> _Opened | None:
        messages = await self._messages(caller, scope, receive)
        message = messages[0]
        try:
            if len(messages) > 1 or not message.named:
                raise Invalid(codec.INVALID_REQUEST, "a body has one request or notification")
            if not message.is_request:
                codec.check_version(header(scope, codec.VERSION_HEADER))
                # In the stateless versions, no notification of a client means anything here.
                await respond(send, Answer(202, b""))
                return None
            codec.check_stateless(message, scope["headers"])
        except Invalid as wrong:
            raise _refused(_id(message), wrong) from wrong
        if message.named == "subscriptions/listen":
            return await self._subscribe(caller, message, scope, send)
        await self._respond(caller, [message], scope, receive, send, None)
        return None

    async def _subscribe(self, caller: Caller, message: Message, scope: Scope, send: Send) -> _Opened:
        if not _accepts_events(scope):
            raise _Refused(406, Invalid(codec.INVALID_REQUEST, "accept text/event-stream"))
        subscription = _id(message)
        assert subscription is not None, "a request has an id"
        try:
            tools, acknowledgement = codec.subscribed(subscription, message)
        except Invalid as wrong:
            raise _refused(subscription, wrong) from wrong
        if sum(owner == caller.digest for owner in self._listeners.values()) >= SESSIONS_MAX:
            raise _Refused(503, Invalid(codec.INTERNAL_ERROR, f"a token has at most {SESSIONS_MAX} streams"))
        listener = self._listener(caller, subscription)
        listener.want(tools=tools)
        self._listeners[listener] = caller.digest
        stream = Stream(send)
        await stream.begin()
        await stream.write(event(acknowledgement))
        return listener, stream, 0

    def _listener(self, caller: Caller, subscription: int | str | None = None) -> Listener:
        over = partial(self._drop, caller.digest)
        return Listener(self._hub, caller.token, caller.member, over, self._now_ms, subscription)

    # Requests.

    async def _messages(self, caller: Caller, scope: Scope, receive: Receive) -> list[Message]:
        """Read the body of a request and return the messages in it.

        Raises `_Refused` if the body is too large, comes too slowly, or has no valid messages of MCP.
        """
        kind = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refused(415, Invalid(codec.INVALID_REQUEST, "the content type must be application/json"))
        body = await self._bodies.read(scope, receive, self._hub.limits.frame_bytes_max, caller.member)
        if isinstance(body, Answer):
            raise _Refused(body.status, Invalid(codec.INVALID_REQUEST, "the body is too large or did not come in time"))
        try:
            return codec.decode(body)
        except Invalid as wrong:
            raise _Refused(400, wrong) from wrong

    async def _respond(
        self,
        caller: Caller,
        asked: list[Message],
        scope: Scope,
        receive: Receive,
        send: Send,
        session: McpSession | None,
        *,
        is_list: bool = False,
    ) -> None:
        """Answer the requests in `asked`, which came in one body. With `is_list`, send the answers as a list.

        `session` is `None` in the stateless versions of MCP, which have no sessions.
        """
        if caller.running >= CALLS_MAX:
            raise _Refused(429, Invalid(codec.INTERNAL_ERROR, f"a token has at most {CALLS_MAX} requests at once"))
        token = None if is_list else codec.progress_token(asked[0].params)
        response = Response(receive, send, streams=_accepts_events(scope), token=token, tick_seconds=self._tick_seconds)
        # Functions to call if the answer does not reach the client.
        lost: list[Callable[[], None]] = []

        async def answer_list() -> Answer:
            answers = [(await self._tracked(caller, message, session, lost)).body for message in asked]
            return Answer(200, b"[" + b",".join(answers) + b"]", b"application/json")

        # Counted before anything is awaited, so that requests that come together are counted too.
        caller.running += 1
        try:
            if not await response.run(answer_list() if is_list else self._tracked(caller, asked[0], session, lost)):
                for give_back in lost:
                    give_back()
        finally:
            caller.running -= 1
            caller.used_at = asyncio.get_running_loop().time()

    async def _tracked(
        self, caller: Caller, message: Message, session: McpSession | None, lost: list[Callable[[], None]]
    ) -> Answer:
        """Return the answer to one request. A client with a session may cancel the request while it runs.

        `session` is `None` in the stateless versions of MCP, which have no sessions. For a tool call, a function is
        added to `lost`. That function must be called if the answer does not reach the client.
        """
        answering = asyncio.ensure_future(self._answer(caller, message, session, lost))
        key = _id(message)
        if session is not None and key is not None:
            session.running[answering] = key
        try:
            return await answering
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                answering.cancel()
                raise
            return Answer(200, codec.error(key, Invalid(codec.CANCELLED, "cancelled")), b"application/json")
        finally:
            if session is not None:
                session.running.pop(answering, None)

    async def _answer(
        self, caller: Caller, message: Message, session: McpSession | None, lost: list[Callable[[], None]]
    ) -> Answer:
        try:
            result = await self._result(caller, message, session, lost)
        except Invalid as wrong:
            status = codec.STATUSES.get(wrong.code, 200) if session is None else 200
            return Answer(status, codec.error(_id(message), wrong), b"application/json")
        return Answer(200, codec.answer(_id(message), result), b"application/json")

    async def _result(
        self, caller: Caller, message: Message, session: McpSession | None, lost: list[Callable[[], None]]
    ) -> dict[str, Any]:
        """Return the result of a request. Raises `Invalid` for a wrong call or an unknown method.

        `session` is `None` in the stateless versions of MCP, which have no sessions. For a tool call, a function is
        added to `lost`. That function must be called if the answer does not reach the client.
        """
        is_stateless = session is None
        match message.named:
            case "tools/list":
                await caller.refresh()
                return codec.listed(caller.agent_session.list_tools(), is_stateless=is_stateless)
            case "tools/call":
                result = await self._call(caller, message, lost)
                if session is not None:
                    session.listener.proved()
                return codec.stateless(result) if is_stateless else result
            case "server/discover" if is_stateless:
                return codec.discovered()
            case "ping" if not is_stateless:
                return {}
            case _:
                raise Invalid(codec.METHOD_NOT_FOUND, f"there is no method {message.named[:100]!r}")

    async def _call(self, caller: Caller, message: Message, lost: list[Callable[[], None]]) -> dict[str, Any]:
        name, arguments = codec.call_of(message)
        try:
            answer = await caller.agent_session.call_tool(name, arguments)
        except UnknownTool as error:
            raise Invalid(codec.INVALID_PARAMS, str(error)) from error
        lost.append(lambda: caller.agent_session.lost(answer))
        for listener in self._listeners_of(caller):
            listener.learn(answer)
        return result_of(answer)

    def _listeners_of(self, caller: Caller) -> list[Listener]:
        """Return the listeners (`Listener`) of the caller's token."""
        sessions = [one.listener for one in self._sessions.values() if one.digest == caller.digest]
        return sessions + [one for one, owner in self._listeners.items() if owner == caller.digest]


def _id(message: Message) -> int | str | None:
    return message.id if isinstance(message.id, int | str) else None


def _refused(message_id: int | str | None, wrong: Invalid) -> _Refused:
    refusal = _Refused(codec.STATUSES.get(wrong.code, 400), wrong)
    refusal.answer = Answer(refusal.answer.status, codec.error(message_id, wrong), b"application/json")
    return refusal


def _accepts_events(scope: Scope) -> bool:
    accepted = header(scope, b"accept") or ""
    return "text/event-stream" in accepted or "*/*" in accepted
