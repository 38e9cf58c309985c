"""One operation of the API: its path, what it takes, what it gives, and who carries it out.

Above: the server, which finds the route of a request, and the OpenAPI document, which is drawn from all of them. Below:
`shapes`. A handler gets a checked request and returns an answer; it never sees bytes.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct, field
from starlette.types import Scope

from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.ac7.shapes import Failure, Shape
from tieline.wire.http import Answer, answer
from tieline.wire.sessions import Held, Make, Sessions

FORM_BYTES_MAX = 1024 * 1024
"""A request but for its data and attachments is far smaller: a body has at most 65,536 characters."""
NO_CONTENT = 204


class Query(Struct, frozen=True):
    """A parameter in the query of a request."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


class Call:
    """One request of a member that has shown its token."""

    __slots__ = ("_held", "_sessions", "_token", "hub", "params", "query")

    def __init__(
        self,
        hub: Hub,
        sessions: Sessions,
        token: str,
        held: Held,
        params: dict[str, str],
        query: dict[str, str],
    ) -> None:
        self.hub = hub
        self._sessions = sessions
        self._token = token
        self._held = held
        # What the path holds between its slashes.
        self.params = params
        self.query = query

    @property
    def member(self) -> MemberName:
        """Whose request it is."""
        return self._held.member

    async def ask(self, make: Make) -> Sequence[r.Reply]:
        """Hand commands to the hub that are decided together."""
        return await self._sessions.ask(self._token, self._held, make)

    def leave(self) -> None:
        """The token may be void from now on: its next request proves itself anew."""
        self._sessions.end(self._held)


class Refused(Exception):
    """The hub or a rule of the wire says no; carries the answer."""

    def __init__(self, reply: Answer) -> None:
        super().__init__()
        self.reply = reply


Handler = Callable[[Call, Any], Awaitable[Any]]


class Route(Struct, frozen=True, kw_only=True):
    """One operation."""

    method: str
    path: str
    """With names in braces for what differs."""
    summary: str
    handler: Handler
    """Gets the call and the checked body, `None` where there is none; returns what `reply` says."""
    body: type[Shape] | None = None
    body_optional: bool = False
    invalid: str = "invalid request"
    """What is said of a body that does not fit."""
    reply: type[Shape] | None = None
    status: int = 200
    streams: bool = False
    """Whether the answer goes on for as long as its reader stays."""
    query: tuple[Query, ...] = ()
    errors: tuple[int, ...] = ()
    """Statuses beside those that every route has."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the path of a request."""
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path) + r"\Z")


class Routes:
    """All operations, by what a request asks for."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._fixed = {(route.method, route.path): route for route in routes if "{" not in route.path}
        self._open = [(route.method, route.pattern, route) for route in routes if "{" in route.path]

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The operation that a request asks for, and what its path holds."""
        route = self._fixed.get((method, path))
        if route is not None:
            return route, {}
        for known, pattern, route in self._open:
            found = pattern.match(path) if known == method else None
            if found:
                return route, found.groupdict()
        return None


def query_of(scope: Scope) -> dict[str, str]:
    """The query of a request; the last of several counts."""
    try:
        return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise Refused(no(400, "too many query parameters")) from None


# Saying no.

STATUS = {
    Code.UNAUTHORIZED: 401,
    Code.UNKNOWN_SESSION: 401,
    Code.FORBIDDEN: 403,
    Code.RESERVED_NAME: 403,
    Code.UNKNOWN_MEMBER: 404,
    Code.UNKNOWN_CHANNEL: 404,
    Code.UNKNOWN_MESSAGE: 404,
    Code.UNKNOWN_OBJECTIVE: 404,
    Code.UNKNOWN_TOKEN: 404,
    Code.NAME_TAKEN: 409,
    Code.OBJECTIVE_ENDED: 409,
    Code.LAST_MANAGER: 409,
    Code.NO_RECIPIENTS: 409,
    Code.TOO_MANY_OBJECTIVES: 409,
    Code.TOO_MANY_CHANNELS: 409,
    Code.TOO_MANY_TOKENS: 409,
    Code.CANNOT_SIGN: 409,
    Code.CHANNEL_ARCHIVED: 410,
    Code.MESSAGE_TOO_LARGE: 413,
    Code.BACKLOG_FULL: 429,
    Code.LOOP_DETECTED: 429,
    Code.THREAD_PAUSED: 429,
    Code.TOO_MANY_STREAMS: 429,
    Code.ACTIVITY_FULL: 429,
    Code.STORE_FAILED: 503,
    Code.SHUTTING_DOWN: 503,
}
"""Any other refusal is 400: something is wrong with the request."""

UNKNOWN_TOKEN = "unknown token"


def no(status: int, text: str, code: str | None = None) -> Answer:
    """A "no" of the wire."""
    return answer(Failure(text) if code is None else Failure(text, code), status)


def refused(refusal: Refusal) -> Answer:
    """A refusal as an answer."""
    status = STATUS.get(refusal.code, 400)
    return no(401, UNKNOWN_TOKEN) if status == 401 else no(status, refusal.message, refusal.code.value)  # noqa: PLR2004


def fail(replies: Sequence[r.Reply]) -> Refused:
    """What ends a request that the hub refused, whichever of its commands it was."""
    refusal = next((reply for reply in replies if isinstance(reply, Refusal)), None)
    assert refusal is not None, f"the hub answered with {replies}"
    return Refused(refused(refusal))
