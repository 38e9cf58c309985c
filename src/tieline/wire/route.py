"""One operation over HTTP: its path, what it takes, what it gives, and the handler that carries it out.

Above: the table that an application declares, `route_app`, which serves it, and `openapi`, which describes it. Below:
`http` and `sessions`. A handler gets a checked request and returns an answer; it never sees bytes.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property, reduce
from inspect import getdoc
from operator import or_
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints
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
from tieline.wire.sessions import Held, Make, Sessions

FORM_BYTES_MAX = 1024 * 1024
"""A request but for its data and attachments is far smaller: a body has at most 65,536 characters."""
NO_CONTENT = 204
_TYPED_PARAMETERS_MAX = 16
"""More than the query of any route has, where it is checked as a whole."""
EXCERPT = 140
"""Longer than any name; what is longer is not worth repeating."""

_Reply = TypeVar("_Reply", bound=r.Reply)


class Query(Struct, frozen=True):
    """A parameter in the query of a request."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


class Caller(Struct, frozen=True):
    """The member that asks: it has shown a token, or the cookie of a login, which is one too."""

    token: str
    held: Held
    by_cookie: bool = False


class Call:
    """One request. Of a member, unless its route is open to everybody."""

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
        # What the path holds between its slashes.
        self.params = params
        self.pairs = pairs_of(scope)
        # Of several with the same name the last counts.
        self.query = dict(self.pairs)
        self.scope = scope
        self.receive = receive

    @property
    def caller(self) -> Caller:
        """The member that asks."""
        assert self._caller is not None, "an open route asks for nobody"
        return self._caller

    @property
    def member(self) -> MemberName:
        """Whose request it is."""
        return self.caller.held.member

    async def ask(self, make: Make) -> Sequence[r.Reply]:
        """Hand commands to the hub that are decided together."""
        return await self._sessions.ask(self.caller.token, self.caller.held, make)

    async def get(self, make: Callable[[SessionId], c.Command], expected: type[_Reply], about: str = "") -> _Reply:
        """Hand over one command and expect a reply to it; `about` is the member that it is about, if it is."""
        replies = await self.ask(lambda session: (make(session),))
        if not isinstance(replies[0], expected):
            raise fail(replies, about, self._errors.refused)
        return replies[0]

    def leave(self) -> None:
        """The token may be void from now on: its next request proves itself anew."""
        self._sessions.end(self.caller.held)

    def header(self, name: bytes) -> str | None:
        """The first header of this name, which is in lower case."""
        return header(self.scope, name)


class Download(Struct, frozen=True):
    """An answer that is sent in pieces."""

    headers: dict[str, str]
    pieces: AsyncGenerator[bytes, None]


class Stream(Struct, frozen=True):
    """An answer that its handler writes for as long as the reader stays."""

    run: Callable[[Send], Awaitable[Answer | None]]
    """Returns an answer if the stream never began."""


class Refused(Exception):
    """The hub or a rule of the wire says no; carries the answer."""

    def __init__(self, reply: Answer) -> None:
        super().__init__()
        self.reply = reply


Handler = Callable[[Call, Any], Awaitable[Any]]


class Route(Struct, frozen=True, dict=True):
    """One operation. What it takes and gives stands once, at its handler."""

    method: str
    path: str
    """With names in braces for what differs."""
    handler: Handler
    """Gets the call and the checked body, `None` where there is none; of a GET, the checked query. Its docstring is the
    operation's summary; the shapes that it takes and returns are those of the body, or query, and the answer."""
    body_bytes_max: int = FORM_BYTES_MAX
    undecoded: type[Struct] | None = None
    """The shape of a body that the handler gets as bytes and checks itself."""
    invalid: str = "invalid request"
    """The error for a body that does not fit."""
    takes: tuple[str, ...] = ()
    """Media types of a body that is no JSON of ours; the handler gets its bytes, or reads them in pieces."""
    in_pieces: bool = False
    """True if the handler itself receives the body."""
    answered: type[Struct] | None = None
    """The shape of an answer that the handler makes of something else."""
    gives: tuple[str, ...] = ()
    """Media types of an answer that is no JSON of ours: an `Answer`, a `Download` or a `Stream` of the handler."""
    status: int = 200
    head: bool = False
    """True if HEAD is answered as GET is, without the body."""
    open: bool = False
    """True if it needs no token."""
    bearer_only: bool = False
    """True if it is for programs: the cookie of a login does not do."""
    live: Callable[[], Any] | None = None
    """Makes what is written to for as long as its reader stays; then the handler gets it in place of a body, opens it,
    and gives no answer."""
    query: tuple[Query, ...] = ()
    errors: tuple[int, ...] = ()
    """Statuses beside those that every route has."""

    @cached_property
    def summary(self) -> str:
        """Its purpose, for the document."""
        text = getdoc(self.handler)
        assert text is not None, f"{self.handler} has a docstring"
        return text

    @cached_property
    def body(self) -> Any:
        """The shape of its body, or several; `None` where it has none, or one that is no JSON of ours."""
        if self.method == "GET":
            return None
        return self.undecoded or (reduce(or_, self._forms) if self._forms else None)

    @cached_property
    def asks(self) -> type[Struct] | None:
        """The shape of the query, if the handler takes one."""
        return self._forms[0] if self.method == "GET" and self._forms else None

    @cached_property
    def body_optional(self) -> bool:
        """True if the body may be left out."""
        return bool(self._forms) and NoneType in _alternatives(self._hints[0])

    @cached_property
    def reply(self) -> type[Struct] | None:
        """The shape of its answer, if it is JSON of ours."""
        given = self._hints[1]
        return self.answered or (given if _is_shape(given) else None)

    @property
    def _forms(self) -> list[Any]:
        return [one for one in _alternatives(self._hints[0]) if _is_shape(one)]

    @property
    def _hints(self) -> tuple[Any, Any]:
        """The types that the handler takes after the call, and returns."""
        _, taken, given = get_type_hints(self.handler).values()
        return taken, given

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it answers."""
        return (self.method, "HEAD") if self.head else (self.method,)

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the path of a request; `{path}` may have slashes in it, and `{rest}` may be empty too."""
        pattern = self.path.replace("{path}", "(?P<path>.+)").replace("{rest}", "(?P<rest>.*)")
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern) + r"\Z", re.DOTALL)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct) and not issubclass(hint, Answer | Download | Stream)


class Routes:
    """All operations, by what a request asks for."""

    def __init__(self, routes: Sequence[Route]) -> None:
        served = [(method, route) for route in routes for method in route.methods]
        self._fixed = {(method, route.path): route for method, route in served if "{" not in route.path}
        self._open = [(method, route.pattern, route) for method, route in served if "{" in route.path]
        self._methods = list(dict.fromkeys(method for method, _ in served))

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

    def methods(self, path: str) -> list[str]:
        """The methods that a path has, in the order of the table."""
        return [method for method in self._methods if self.find(method, path) is not None]


def pairs_of(scope: Scope) -> list[tuple[str, str]]:
    """The query of a request."""
    if not scope["query_string"]:
        return []
    try:
        return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise Refused(no(400, "too many query parameters")) from None


_Checked = TypeVar("_Checked")


def checked(
    body: bytes | msgspec.Raw, shape: type[_Checked] | UnionType, invalid: str, invalid_json: str | None = None
) -> _Checked:
    """A body as what it should be."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise Refused(no(400, f"{invalid}: {error}")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(no(400, f"{invalid_json or f'{invalid}: invalid JSON'}: {error}")) from None


def checked_query(scope: Scope, shape: type[_Checked]) -> _Checked:
    """A query as what it should be."""
    try:
        text = scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_TYPED_PARAMETERS_MAX)
        return msgspec.convert(dict(pairs), shape, strict=False)
    except (ValueError, msgspec.ValidationError) as error:
        raise Refused(no(400, f"invalid query: {error}", Code.INVALID_REQUEST.value)) from None


def number_of(text: str | None) -> int | None:
    """A whole number in a query, or `None` if it is none that a client can count to."""
    digits = len("9007199254740991")
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= digits else None


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
    Code.INTERNAL_ERROR: 500,
    Code.STORE_FAILED: 503,
    Code.SHUTTING_DOWN: 503,
}
"""Any other refusal is 400: something is wrong with the request."""

UNKNOWN_TOKEN = "unknown token"


class Failure(Struct, frozen=True, omit_defaults=True):
    """A "no": what is wrong, in prose, and where there is one, a word for programs."""

    error: str
    code: str | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET
    """Seconds to wait, with status 429."""
    error_description: str | UnsetType = UNSET
    """More about the error of a device that polls."""


def no(status: int, text: str, code: str | None = None) -> Answer:
    """A "no" of the wire."""
    return answer(Failure(text) if code is None else Failure(text, code), status)


def later(text: str, seconds: int | None) -> Answer:
    """Not so soon."""
    return wait(answer(Failure(text, retry_after=UNSET if seconds is None else seconds), 429), seconds)


def wait(said: Answer, seconds: int | None) -> Answer:
    """An answer that asks to wait for so long."""
    return said if seconds is None else replace(said, headers=(*said.headers, (b"retry-after", b"%d" % seconds)))


def refused(refusal: Refusal) -> Answer:
    """A refusal as an answer."""
    status = STATUS.get(refusal.code, 400)
    return no(401, UNKNOWN_TOKEN) if status == 401 else no(status, refusal.message, refusal.code.value)  # noqa: PLR2004


def refused_by(statuses: Mapping[Code, int]) -> Callable[[Refusal], Answer]:
    """Makes answers of refusals with other statuses; any that is not among them is 400."""
    return lambda refusal: no(statuses.get(refusal.code, 400), refusal.message, refusal.code.value)


def only_get(_scope: Scope, _methods: Sequence[str]) -> Answer:
    """The answer to another method than GET, where there is no other."""
    return no(405, "only GET is answered here")


class Errors(Struct, frozen=True):
    """The errors of an application: each wire has statuses and words of its own."""

    refused: Callable[[Refusal], Answer] = refused
    """Makes an answer of a refusal."""
    no_token: Answer = no(401, "show a member's token: Authorization: Bearer …")
    """Answers a request without a token, where one is needed."""
    not_found: Answer = Answer(404, b"404 Not Found", b"text/plain; charset=UTF-8")
    """Answers what has no route, once it is known who asks."""
    not_allowed: Callable[[Scope, Sequence[str]], Answer] | None = None
    """Answers a method that a path does not have, before any check; gets the methods that it has. Without this, such a
    request has no route."""
    invalid_json: str | None = None
    """Begins the error for a body that is no JSON; else it begins as that for a body that does not fit."""


def fail(replies: Sequence[r.Reply], about: str = "", answered: Callable[[Refusal], Answer] = refused) -> Refused:
    """The end of a request of which the hub refused a command."""
    refusal = next((reply for reply in replies if isinstance(reply, Refusal)), None)
    assert refusal is not None, f"the hub answered with {replies}"
    if about and refusal.code is Code.UNKNOWN_MEMBER:
        return Refused(no(404, f"no such member: {about[:EXCERPT]}"))
    return Refused(answered(refusal))


async def own_member(call: Call) -> Member:
    """The member that asks, with its permissions."""
    roster = await call.get(lambda session: c.ListMembers(session, name=call.member), r.Roster)
    return roster.members[0].member


async def require(call: Call, permission: str) -> None:
    """Refuse a request of a member that lacks a permission."""
    own = await own_member(call)
    if permission not in own.permissions:
        raise Refused(no(403, f"{own.name} lacks the permission {permission}"))
