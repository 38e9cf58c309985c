"""One operation over HTTP: its path, its input, its answer, and the handler that executes it.

Used by: the table of routes that an application declares; `route_app`, which serves the table; and `openapi`, which
describes the table. Uses: `http` and `sessions`. A handler gets a checked request and returns an answer. It never
sees bytes.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property, reduce
from inspect import getdoc
from operator import or_
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Member
from tieline.contract.refusal import Code, Refusal
from tieline.wire.http import Answer, answer, header
from tieline.wire.json_text import VALUES_MAX, has_many_values
from tieline.wire.sessions import CachedSession, Make, Sessions, Told

FORM_BYTES_MAX = 1024 * 1024
"""Size limit of a JSON body without data and attachments. Such a body is far smaller: its text has at most 65,536
characters."""
NO_CONTENT = 204
_PARAMETERS_MAX = 100
"""Most parameters in any query. Each parameter costs time, and the query is parsed before the caller is known."""
_TYPED_PARAMETERS_MAX = 16
"""Most parameters in a query that is converted to a type (`checked_query`). Every route has fewer parameters."""
EXCERPT = 140
"""Most characters of a client's text that an error text repeats. Every valid name is shorter."""

_Reply = TypeVar("_Reply", bound=r.Reply)


class Query(Struct, frozen=True):
    """Declaration of one query parameter of a route, for the OpenAPI document."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


class Caller(Struct, frozen=True):
    """The member that makes an HTTP request, with its session. `token` is from a header or a login cookie."""

    token: str
    cached: CachedSession
    by_cookie: bool = False


class Call:
    """One HTTP request, as the handler of its route gets it: path and query values, the hub, and the calling member.

    A request on a route that is open to everybody has no calling member.
    """

    __slots__ = ("_caller", "_errors", "_sessions", "hub", "pairs", "params", "query", "receive", "scope")

    def __init__(
        self,
        hub: Hub,
        sessions: Sessions,
        caller: Caller | None,
        params: dict[str, str],
        scope: Scope,
        receive: Receive,
        errors: "Errors",
    ) -> None:
        self.hub = hub
        self._errors = errors
        self._sessions = sessions
        self._caller = caller
        # Values of the names in the path.
        self.params = params
        self.pairs = pairs_of(scope)
        # If a name occurs several times, the last value counts.
        self.query = dict(self.pairs)
        self.scope = scope
        self.receive = receive

    @property
    def caller(self) -> Caller:
        """The member that makes the request.

        Use this only in routes that need a token, because an open route has no caller.
        """
        assert self._caller is not None, "an open route asks for nobody"
        return self._caller

    @property
    def member(self) -> MemberName:
        """Name of the member that makes the request."""
        return self.caller.cached.member

    async def ask(self, make: Make, told: Told | None = None) -> Sequence[r.Reply]:
        """Call `make` with the id of the caller's session. Submit the commands that it returns as one batch to the hub.

        Return the replies, in the order of the commands. `told` is called with the replies before the hub offers a
        message of these commands to its recipients.
        """
        return await self._sessions.ask(self.caller.token, self.caller.cached, make, told)

    async def get(self, make: Callable[[SessionId], c.Command], expected: type[_Reply], about: str = "") -> _Reply:
        """Call `make` with the id of the caller's session, submit the command that it returns, and return the reply.

        The reply has the type `expected`. Raises `Refused` if the hub refuses. `about` is the name of the member that
        the command is about; the error for an unknown member contains this name.
        """
        replies = await self.ask(lambda session: (make(session),))
        if not isinstance(replies[0], expected):
            raise fail(replies, about, self._errors.refused)
        return replies[0]

    def leave(self) -> None:
        """End the caller's session, because its token may be invalid now.

        The next request with the token opens a new session.
        """
        self._sessions.end(self.caller.cached)

    def header(self, name: bytes) -> str | None:
        """Return the value of the first header with this name, or `None`. `name` must be in lower case."""
        return header(self.scope, name)


class Download(Struct, frozen=True):
    """Result of a handler: an HTTP answer that is sent in parts, such as a file.

    `pieces` generates the parts of the body.
    """

    headers: dict[str, str]
    pieces: AsyncGenerator[bytes, None]


class Stream(Struct, frozen=True):
    """Result of a handler: an HTTP answer that `run` writes until the reader disconnects."""

    run: Callable[[Send], Awaitable[Answer | None]]
    """Writes the answer. Returns an error answer if it could not start."""


class Refused(Exception):
    """Raised if the hub, or a check before the handler, refuses a request. `reply` is the HTTP answer to send."""

    def __init__(self, reply: Answer) -> None:
        super().__init__()
        self.reply = reply


Handler = Callable[[Call, Any], Awaitable[Any]]


class Route(Struct, frozen=True, dict=True):
    """Declaration of one HTTP operation: method, path and handler.

    The type hints of the handler define the types of the input and of the answer.
    """

    method: str
    path: str
    """Path of the operation. Variable parts are names in braces: `{name}`, `{path}` or `{name*}`; see `pattern`."""
    handler: Handler
    """Function that executes the operation. It gets the call and the checked body. For GET it gets the checked query
    instead of a body. Without a body or query it gets `None`. The docstring of the function is the summary of the
    operation. Its parameter and return types are the types of the body (or query) and of the answer."""
    body_bytes_max: int = FORM_BYTES_MAX
    undecoded: type[Struct] | None = None
    """Type of the body, if the handler gets the body as bytes and decodes the bytes itself."""
    invalid: str = "invalid request"
    """Beginning of the error text for a body that is not of the right type."""
    takes: tuple[str, ...] = ()
    """Media types of a body that is not decoded. The handler gets the bytes, or reads them from the connection."""
    in_pieces: bool = False
    """True if the handler itself reads the body from the connection, one part after the other."""
    answered: Any = None
    """Type of the answer, if the handler's return type does not show it."""
    gives: tuple[str, ...] = ()
    """Media types of the answer, if the handler encodes the answer itself. Such a handler returns an `Answer`,
    `Download` or `Stream`."""
    status: int = 200
    head: bool = False
    """True if the route also answers HEAD. The answer is the same as for GET, without the body."""
    open: bool = False
    """True if a request needs no token, or if the handler itself checks the token."""
    checks_token: bool = False
    """True if the route is `open`, but its handler checks a token."""
    bearer_only: bool = False
    """True if the route is for programs only. It accepts a bearer token, but no login cookie."""
    live: Callable[[], Any] | None = None
    """Makes the object that writes a live stream, for a route whose answer ends only when the reader disconnects. The
    handler gets this object instead of a body. The handler starts the stream and returns no answer."""
    query: tuple[Query, ...] = ()
    errors: tuple[int, ...] = ()
    """HTTP error statuses of this route, in addition to the error statuses that every route has."""

    @cached_property
    def summary(self) -> str:
        """Summary of the operation for the OpenAPI document. It is the handler's docstring."""
        text = getdoc(self.handler)
        assert text is not None, f"{self.handler} has a docstring"
        return text

    @cached_property
    def body(self) -> Any:
        """Type of the body, or a union of types. `None` if there is no body, or if the body is not decoded as JSON."""
        if self.method == "GET":
            return None
        return self.undecoded or (reduce(or_, self._forms) if self._forms else None)

    @cached_property
    def asks(self) -> type[Struct] | None:
        """Type of the query parameters; `None` if the handler does not take them as one typed object."""
        return self._forms[0] if self.method == "GET" and self._forms else None

    @cached_property
    def body_optional(self) -> bool:
        """True if the body may be empty."""
        return bool(self._forms) and NoneType in _alternatives(self._hints[0])

    @cached_property
    def reply(self) -> Any:
        """Type of the answer, if the answer is JSON that is encoded from a type; otherwise `None`."""
        given = self._hints[1]
        return self.answered or (given if _is_shape(given) or get_origin(given) is list else None)

    @property
    def _forms(self) -> list[Any]:
        return [one for one in _alternatives(self._hints[0]) if _is_shape(one)]

    @property
    def _hints(self) -> tuple[Any, Any]:
        """Types of the handler's second parameter (the body or query) and of its result (the answer)."""
        _, taken, given = get_type_hints(self.handler).values()
        return taken, given

    @property
    def methods(self) -> tuple[str, ...]:
        """HTTP methods that the route answers."""
        return (self.method, "HEAD") if self.head else (self.method,)

    @property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression that matches the path of a request.

        `{name}` matches one part of the path. `{path}` may also contain slashes. `{name*}` may also be empty.
        """
        pattern = re.sub(r"\{(\w+)\*\}", r"(?P<\1>.*)", self.path.replace("{path}", "(?P<path>.+)"))
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern) + r"\Z", re.DOTALL)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct) and not issubclass(hint, Answer | Download | Stream)


class Routes:
    """Table of routes. Finds the route of a request by method and path."""

    def __init__(self, routes: Sequence[Route]) -> None:
        served = [(method, route) for route in routes for method in route.methods]
        self._fixed = {(method, route.path): route for method, route in served if "{" not in route.path}
        self._open = [(method, route.pattern, route) for method, route in served if "{" in route.path]
        self._methods = list(dict.fromkeys(method for method, _ in served))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a request, and the values of the variable parts of its path.

        `None` if there is no route.
        """
        route = self._fixed.get((method, path))
        if route is not None:
            return route, {}
        for known, pattern, route in self._open:
            found = pattern.match(path) if known == method else None
            if found:
                return route, found.groupdict()
        return None

    def methods(self, path: str) -> list[str]:
        """Return the HTTP methods that have a route for this path, in the order of the table."""
        return [method for method in self._methods if self.find(method, path) is not None]


def pairs_of(scope: Scope) -> list[tuple[str, str]]:
    """Return the query parameters of a request as (name, value) pairs, in order.

    Raises `Refused` if there are too many.
    """
    if not scope["query_string"]:
        return []
    try:
        query = scope["query_string"].decode("latin-1")
        return parse_qsl(query, keep_blank_values=True, max_num_fields=_PARAMETERS_MAX)
    except ValueError:
        raise Refused(no(400, "too many query parameters")) from None


_Checked = TypeVar("_Checked")


def checked(
    body: bytes | msgspec.Raw,
    shape: type[_Checked] | UnionType,
    invalid: str,
    invalid_json: str | None = None,
    values_max: int = VALUES_MAX,
) -> _Checked:
    """Return a JSON body, decoded as the type `shape`. Raises `Refused` if it is not valid or has too many values.

    `invalid` is the beginning of the error text if the JSON has another type. `invalid_json` is the beginning of the
    error text if the body is not JSON. `values_max` is the limit of JSON values in the body.
    """
    if has_many_values(bytes(body), values_max):
        raise Refused(no(413, f"{invalid}: more than {values_max} values"))
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise Refused(no(400, f"{invalid}: {error}")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(no(400, f"{invalid_json or f'{invalid}: invalid JSON'}: {error}")) from None


def checked_query(scope: Scope, shape: type[_Checked]) -> _Checked:
    """Return the query parameters of a request, converted to the type `shape`.

    Raises `Refused` if they are not valid.
    """
    try:
        text = scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_TYPED_PARAMETERS_MAX)
        return msgspec.convert(dict(pairs), shape, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise Refused(no(400, f"invalid query: {error}", Code.INVALID_REQUEST.value)) from None


def number_of(text: str | None) -> int | None:
    """Return the whole number in a query parameter. Return `None` if `text` is no number or has more than 16 digits.

    16 digits are the limit of exact whole numbers in JavaScript.
    """
    digits = len("9007199254740991")
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= digits else None


def time_of(call: Call, name: str) -> int | None:
    """Return the query parameter `name` as a time in milliseconds since 1970. Return `None` if it is missing.

    Raises `Refused` if it is not a number.
    """
    text = call.query.get(name)
    number = number_of(text)
    if text is not None and number is None:
        raise Refused(no(400, f"{name} is no time in milliseconds of the epoch"))
    return number


# Refusals.

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
    Code.UNKNOWN_INVITATION: 404,
    Code.NAME_TAKEN: 409,
    Code.OBJECTIVE_ENDED: 409,
    Code.LAST_MANAGER: 409,
    Code.NO_RECIPIENTS: 409,
    Code.TOO_MANY_OBJECTIVES: 409,
    Code.TOO_MANY_CHANNELS: 409,
    Code.TOO_MANY_TOKENS: 409,
    Code.TOO_MANY_INVITATIONS: 409,
    Code.CANNOT_SIGN: 409,
    Code.CHANNEL_ARCHIVED: 410,
    Code.MESSAGE_TOO_LARGE: 413,
    Code.BACKLOG_FULL: 429,
    Code.LOOP_DETECTED: 429,
    Code.THREAD_PAUSED: 429,
    Code.TOO_MANY_STREAMS: 429,
    Code.ACTIVITY_FULL: 429,
    Code.INTERNAL_ERROR: 500,
    Code.STORE_FAILED: 503,
    Code.SHUTTING_DOWN: 503,
}
"""HTTP status for each refusal code of the hub. A code that is not in this table has the status 400, because something
is wrong with the request."""

UNKNOWN_TOKEN = "unknown token"


class Failure(Struct, frozen=True, omit_defaults=True):
    """An error: a text for people and, for some errors, a code for programs."""

    error: str
    code: str | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET
    """Seconds to wait before the next attempt. Only with status 429."""
    error_description: str | UnsetType = UNSET
    """More details of the error. Only in the answer to a new device that asks if a person has already approved it."""


def no(status: int, text: str, code: str | None = None) -> Answer:
    """Return an error answer: a JSON object with the text and, if given, the code for programs."""
    return answer(Failure(text) if code is None else Failure(text, code), status)


def later(text: str, seconds: int | None) -> Answer:
    """Return an error answer with status 429: the client must wait for `seconds` and then try again.

    `seconds` is `None` if the time is unknown.
    """
    return wait(answer(Failure(text, retry_after=UNSET if seconds is None else seconds), 429), seconds)


def wait(said: Answer, seconds: int | None) -> Answer:
    """Return the answer `said` with a `retry-after` header of `seconds`.

    Return `said` unchanged if `seconds` is `None`.
    """
    return said if seconds is None else replace(said, headers=(*said.headers, (b"retry-after", b"%d" % seconds)))


def refused(refusal: Refusal) -> Answer:
    """Return the error answer for a refusal of the hub. The HTTP status is from the table `STATUS`."""
    status = STATUS.get(refusal.code, 400)
    return no(401, UNKNOWN_TOKEN) if status == 401 else no(status, refusal.message, refusal.code.value)  # noqa: PLR2004


def refused_by(statuses: Mapping[Code, int]) -> Callable[[Refusal], Answer]:
    """Return a function that converts a refusal of the hub to an error answer.

    `statuses` is the HTTP status for each refusal code. Other codes have the status 400.
    """
    return lambda refusal: no(statuses.get(refusal.code, 400), refusal.message, refusal.code.value)


def only_get(_scope: Scope, _methods: Sequence[str]) -> Answer:
    """Return the error answer (status 405) to a request whose method is not GET, on a path that has only GET."""
    return no(405, "only GET is answered here")


class Errors(Struct, frozen=True):
    """Configuration of an HTTP application: its error answers.

    Each protocol has its own statuses and texts for errors.
    """

    refused: Callable[[Refusal], Answer] = refused
    """Converts a refusal of the hub to an answer."""
    no_token: Answer = no(401, "show a member's token: Authorization: Bearer …")
    """Answer to a request that needs a token and has none."""
    not_found: Answer = Answer(404, b"404 Not Found", b"text/plain; charset=UTF-8")
    """Answer to a request for which there is no route. It is sent only to a client whose token was checked."""
    not_allowed: Callable[[Scope, Sequence[str]], Answer] | None = None
    """Function that makes the answer to a request whose path has a route, but not for the method of the request. The
    function gets the methods that the path has. It is called before any check. If it is `None`, `not_found` is sent."""
    invalid_json: str | None = None
    """Beginning of the error text for a body that is not JSON. If it is `None`, the route's `invalid` text is used."""


def fail(replies: Sequence[r.Reply], about: str = "", answered: Callable[[Refusal], Answer] = refused) -> Refused:
    """Return the exception for the first refusal among `replies`. At least one reply must be a refusal.

    `about` is the name of the member that the request is about; the error for an unknown member contains this name.
    `answered` converts the refusal to an error answer.
    """
    refusal = next((reply for reply in replies if isinstance(reply, Refusal)), None)
    assert refusal is not None, f"the hub answered with {replies}"
    if about and refusal.code is Code.UNKNOWN_MEMBER:
        return Refused(no(404, f"no such member: {about[:EXCERPT]}"))
    return Refused(answered(refusal))


async def own_member(call: Call) -> Member:
    """Return the member that makes the request, with its permissions."""
    roster = await call.get(lambda session: c.ListMembers(session, name=call.member), r.Roster)
    return roster.members[0].member


async def require(call: Call, permission: str) -> None:
    """Raise `Refused` if the member that makes the request does not have this permission."""
    own = await own_member(call)
    if permission not in own.permissions:
        raise Refused(no(403, f"{own.name} lacks the permission {permission}"))
