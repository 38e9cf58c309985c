"""A table of routes as an HTTP application: finds the route of a request, who asks, and sends the answer.

Above: protocols and pages that have routes on the hub's port. Below: `route`. First comes the check that the
application makes of every request, then who asks, unless the route is open to everybody, then the route.
"""

from collections.abc import Awaitable, Callable, Sequence

from starlette.types import Receive, Scope, Send

from tieline.contract.hub import Hub
from tieline.wire.http import Answer, Bodies, answer, respond
from tieline.wire.route import Call, Caller, Download, Refused, Route, Routes, checked
from tieline.wire.sessions import Sessions

_STRANGERS_FORM_BYTES_MAX = 64 * 1024
"""A body of somebody who has not shown who it is: a name, a code."""
_NOT_FOUND = Answer(404, b"404 Not Found", b"text/plain; charset=UTF-8")

Found = tuple[Route, dict[str, str]]
"""The route of a request, and what its path holds."""
FindCaller = Callable[[Scope, bool], Awaitable[Caller]]
"""Finds who asks, by a bearer token alone if so told. Raises `Refused`."""


class RouteApp:
    """Serves the operations of a table."""

    def __init__(
        self,
        hub: Hub,
        sessions: Sessions,
        table: Sequence[Route],
        bodies: Bodies,
        *,
        caller: FindCaller,
        check: Callable[[Scope], None],
    ) -> None:
        self._hub = hub
        self._sessions = sessions
        self._bodies = bodies
        self._routes = Routes(table)
        self._caller = caller
        # Raises `Refused` for what no route answers.
        self._check = check

    def find(self, method: str, path: str) -> Found | None:
        """The route of a request."""
        return self._routes.find(method, path)

    async def serve(self, found: Found | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            reply = await self._answer(found, scope, receive)
        except Refused as refusal:
            reply = refusal.reply
        await (_send(send, reply) if isinstance(reply, Download) else respond(send, reply))

    async def call(self, found: Found | None, scope: Scope, receive: Receive) -> Call:
        """A request that was let in. Raises `Refused`."""
        self._check(scope)
        route, params = found or (None, {})
        if route is not None and route.open:
            return Call(self._hub, self._sessions, None, params, scope, receive)
        caller = await self._caller(scope, route is not None and route.bearer_only)
        return Call(self._hub, self._sessions, caller, params, scope, receive)

    async def _answer(self, found: Found | None, scope: Scope, receive: Receive) -> Answer | Download:
        call = await self.call(found, scope, receive)
        if found is None:
            return _NOT_FOUND
        route = found[0]
        form = await self._form(route, scope, receive, None if route.open else call.member)
        made = await route.handler(call, form)
        if isinstance(made, Answer | Download):
            return made
        return Answer(route.status, b"") if route.reply is None else answer(made, route.status)

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


async def _send(send: Send, download: Download) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in download.headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for piece in download.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
