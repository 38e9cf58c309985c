"""Tests of a table of routes as an application: the order of its checks, and answers that are sent in chunks."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import pytest
from msgspec import Struct
from starlette.types import Message

from tieline.contract.hub import Hub
from tieline.contract.limits import Limits
from tieline.wire.http import Answer, Bodies
from tieline.wire.route import Call, Download, Errors, Refused, Route, Stream, no, only_get
from tieline.wire.route_app import RouteApp
from tieline.wire.sessions import Sessions
from tieline.wire.unfinished import Unfinished

FORBIDDEN = b"x-forbidden"
closed: list[str] = []


async def pieces() -> AsyncGenerator[bytes, None]:
    try:
        yield b"one"
        yield b"two"
    finally:
        closed.append("pieces")


async def download(_call: Call, _: None) -> Download:
    """Yield pieces of a download."""
    return Download({"content-type": "text/plain"}, pieces())


async def stream(call: Call, _: None) -> Stream:
    """Return an answer instead of a stream."""

    async def run(_send: Any) -> Answer | None:
        return Answer(409, b"") if call.query else None

    return Stream(run)


def check(scope: Any) -> None:
    if any(name == FORBIDDEN for name, _ in scope["headers"]):
        raise Refused(no(403, "no"))


def make(table: Sequence[Route], **options: Any) -> RouteApp:
    nobody, bodies = cast("Hub", None), Bodies(Unfinished(Limits()))
    return RouteApp(nobody, cast("Sessions", None), table, bodies, check=check, **options)


async def ask(app: RouteApp, method: str, path: str, *, query: bytes = b"", forbidden: bool = False) -> list[Message]:
    headers = [(FORBIDDEN, b"1")] if forbidden else []
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def test_a_method_that_a_path_does_not_have_is_said_before_any_check_where_the_wire_says_it() -> None:
    table = [Route("GET", "/a", download, open=True)]
    told = await ask(make(table, errors=Errors(not_allowed=only_get)), "POST", "/a", forbidden=True)
    assert told[0]["status"] == 405
    assert (await ask(make(table), "POST", "/a", forbidden=True))[0]["status"] == 403
    elsewhere = await ask(make(table, errors=Errors(not_allowed=only_get)), "POST", "/nothing", forbidden=True)
    assert elsewhere[0]["status"] == 403, "a path that is not there has no methods"


async def test_a_request_without_a_token_gets_the_words_of_the_wire() -> None:
    app = make([Route("GET", "/a", download)], errors=Errors(no_token=Answer(401, b"who?")))
    for path in ("/a", "/nothing"):
        assert (await ask(app, "GET", path))[1]["body"] == b"who?"


async def test_what_an_answer_is_read_from_is_closed_when_its_reader_is_gone() -> None:
    app = make([Route("GET", "/a", download, open=True)])
    closed.clear()
    assert [message.get("body") for message in await ask(app, "GET", "/a")][1:] == [b"one", b"two", b""]
    assert closed == ["pieces"]

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise OSError("gone")

    scope = {"type": "http", "method": "GET", "path": "/a", "query_string": b"", "headers": []}
    with pytest.raises(OSError, match="gone"):
        await app(scope, receive, send)
    assert closed == ["pieces", "pieces"]


async def test_a_stream_that_never_began_has_an_answer() -> None:
    app = make([Route("GET", "/a", stream, open=True)])
    assert await ask(app, "GET", "/a") == []
    assert (await ask(app, "GET", "/a", query=b"full=1"))[0]["status"] == 409


class Form(Struct):
    """Request body: the name to greet."""

    name: str


class Greeting(Struct):
    """Answer body: the names that were greeted."""

    greeted: str


async def greet(_call: Call, form: Form | None) -> Greeting:
    """Greet one person, or everybody."""
    return Greeting(form.name if form else "all")


@pytest.mark.parametrize(("body", "status"), [(b"", 200), (b'{"name":"bob"}', 200), (b'{"name":1}', 400)])
async def test_a_body_that_need_not_be_there_is_checked_if_it_is(body: bytes, status: int) -> None:
    app = make([Route("POST", "/a", greet, open=True)])
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/a", "query_string": b"", "headers": []}, receive, send)
    assert sent[0]["status"] == status
    if status == 200:
        assert json.loads(sent[1]["body"]) == {"greeted": "bob" if body else "all"}
