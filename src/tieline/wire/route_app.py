"""HTTP application for a table of routes: finds the route and the caller of a request, and sends the answer.

Used by: protocols and pages with routes on the hub's HTTP port. Uses: `route`. The application first runs its own check
on every request. Then it finds the caller, unless the route is open to everybody. Then it runs the route's handler.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

from tieline.contract.hub import Hub
from tieline.contract.refusal import Refusal
from tieline.wire.http import Answer, Bodies, answer, respond, session_token
from tieline.wire.route import (
    Call,
    Caller,
    Download,
    Errors,
    Refused,
    Route,
    Routes,
    Stream,
    checked,
    checked_query,
)
from tieline.wire.sessions import Sessions

_STRANGERS_FORM_BYTES_MAX = 64 * 1024
"""Size limit in bytes of a body on a route that needs no token. Such a body contains only a name or a code."""
_ERRORS = Errors()
_ANSWERS = (Answer, Download, Stream)

Found = tuple[Route, dict[str, str]]
"""The route of a request, and the values of the variable parts of its path."""
FindCaller = Callable[[Scope, bool], Awaitable[Caller]]
"""Function that returns the calling member of a request. If the second argument is true, it accepts only a bearer
token. It raises `Refused`."""


class RouteApp:
    """HTTP application on the hub's HTTP port that serves a table of routes.

    `check` is called first for every request, and may refuse the request. `caller` finds the calling member. Without
    `caller`, the function `token` finds the token of the request. `errors` has the error answers.
    """

    def __init__(
        self,
        hub: Hub,
        sessions: Sessions,
        table: Sequence[Route],
        bodies: Bodies,
        *,
        check: Callable[[Scope], None],
        caller: FindCaller | None = None,
        token: Callable[[Scope], str | None] = session_token,
        errors: Errors = _ERRORS,
    ) -> None:
        self._hub = hub
        self._sessions = sessions
        self._bodies = bodies
        self.table = table
        self._routes = Routes(table)
        self._caller = caller or self._find_caller
        # Finds the token of a request. Not used if the application gives its own `caller`.
        self._token = token
        # Checks every request. Raises `Refused`.
        self._check = check
        self._errors = errors

    # The HttpApp port.

    def serves(self, scope: Scope) -> bool:
        """Return true if the path of the request has a route, for any method."""
        return scope["type"] == "http" and bool(self._routes.methods(scope["path"]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self.serve(self.find(scope["method"], scope["path"]), scope, receive, send)

    def close(self) -> None:
        """End the sessions of all callers, because the hub stops."""
        self._sessions.close()

    # For applications that inspect a request first.

    def find(self, method: str, path: str) -> Found | None:
        """Return the route of a request, and the values of the variable parts of its path.

        `None` if there is no route.
        """
        return self._routes.find(method, path)

    async def serve(self, found: Found | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. `found` is the route of the request, as `find` returned it."""
        try:
            reply = await self._answer(found, scope, receive)
        except Refused as refusal:
            reply = refusal.reply
        match reply:
            case Answer():
                await respond(send, reply)
            case Download():
                await _send(send, reply)
            case Stream():
                instead = await reply.run(send)
                if instead is not None:
                    await respond(send, instead)

    async def call(self, found: Found | None, scope: Scope, receive: Receive) -> Call:
        """Check a request, find its calling member, and return the request as a `Call`.

        Raises `Refused` if the request is not allowed, or if it needs a member and has no valid token. `found` is the
        route of the request, as `find` returned it.
        """
        self._check(scope)
        return await self._admit(found, scope, receive)

    async def _admit(self, found: Found | None, scope: Scope, receive: Receive) -> Call:
        route, params = found or (None, {})
        if route is not None and route.open:
            return Call(self._hub, self._sessions, None, params, scope, receive, self._errors)
        caller = await self._caller(scope, route is not None and route.bearer_only)
        return Call(self._hub, self._sessions, caller, params, scope, receive, self._errors)

    async def _find_caller(self, scope: Scope, bearer_only: bool) -> Caller:
        del bearer_only
        token = self._token(scope)
        if token is None:
            raise Refused(self._errors.no_token)
        cached = await self._sessions.of(token)
        if isinstance(cached, Refusal):
            raise Refused(self._errors.refused(cached))
        return Caller(token, cached)

    async def _answer(self, found: Found | None, scope: Scope, receive: Receive) -> Answer | Download | Stream:
        if found is None and self._errors.not_allowed is not None:
            methods = self._routes.methods(scope["path"])
            if methods:
                return self._errors.not_allowed(scope, methods)
        self._check(scope)
        # Before the token, because the result does not depend on the caller.
        asks = None if found is None else found[0].asks
        form: object = None if asks is None else checked_query(scope, asks)
        call = await self._admit(found, scope, receive)
        if found is None:
            return self._errors.not_found
        route = found[0]
        if route.takes or route.body is not None:
            form = await self._form(route, scope, receive, None if route.open else call.member)
        made = await route.handler(call, form)
        if isinstance(made, _ANSWERS):
            return made
        return Answer(route.status, b"") if route.reply is None else answer(made, route.status)

    async def _form(self, route: Route, scope: Scope, receive: Receive, owner: str | None) -> object:
        if route.in_pieces:
            return None
        bytes_max = route.body_bytes_max if owner is not None else min(_STRANGERS_FORM_BYTES_MAX, route.body_bytes_max)
        body = await self._bodies.read(scope, receive, bytes_max, owner)
        if isinstance(body, Answer):
            raise Refused(body)
        if route.body is None or route.undecoded is not None:
            return body
        if not body and route.body_optional:
            return None
        return checked(body, route.body, route.invalid, self._errors.invalid_json)


async def _send(send: Send, download: Download) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in download.headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with aclosing(download.pieces) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
