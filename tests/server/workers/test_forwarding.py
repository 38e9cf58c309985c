"""Tests of forwarded requests: the application in the hub's process answers as if the client were connected to it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from tests.server.hubs import until
from tieline.server.workers import forwarding
from tieline.server.workers.forwarding import Forwarder, ForwardServer
from tieline.wire.http import CLIENT_GATE, client_gate

Answering = Callable[[Scope, Receive, Send], Awaitable[None]]

HTTP: dict[str, Any] = {"type": "http", "method": "POST", "path": "/x", "headers": [(b"a", b"1")], "client": ("h", 1)}
WEBSOCKET: dict[str, Any] = {"type": "websocket", "path": "/x", "headers": [], "subprotocols": []}


class App:
    """Test double: an application whose answer the test chooses."""

    def __init__(self) -> None:
        self.answer: Answering
        self.scopes: list[Scope] = []

    def serves(self, scope: Scope) -> bool:
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(dict(scope))
        await self.answer(scope, receive, send)

    def close(self) -> None:
        pass


class Client:
    """Test double: the client of one request. It sends the given events, and collects those that it gets."""

    def __init__(self, *events: Message) -> None:
        self.events = asyncio.Queue[Message]()
        for event in events:
            self.events.put_nowait(event)
        self.asked = 0
        self.got: list[Message] = []

    async def receive(self) -> Message:
        self.asked += 1
        return await self.events.get()

    async def send(self, message: Message) -> None:
        self.got.append(dict(message))


class Gate:
    """Test double: the gate of a WebSocket. It collects the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def await_greeting(self) -> None:
        self.calls.append(("await_greeting",))

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        self.calls.append(("admit", owner, bytes_max))

    def refuse(self) -> None:
        self.calls.append(("refuse",))


class Place:
    """Test helper: both ends, with an application."""

    def __init__(self, folder: Path) -> None:
        self.app = App()
        self.path = folder / "http.sock"
        self.server = ForwardServer([self.app], "secret")
        self.forwarder = Forwarder(partial(asyncio.open_unix_connection, self.path), "secret")

    async def ask(self, client: Client, scope: dict[str, Any] | None = None) -> None:
        await self.forwarder(dict(scope or HTTP), client.receive, client.send)


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[Place]:
    made = Place(folder)
    await made.server.listen(made.path)
    yield made
    made.forwarder.close()
    await made.server.stop()


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with its body."""
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event["body"], event.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"b", b"2")]})
    await send({"type": "http.response.body", "body": body})


async def test_an_application_sees_the_request_and_the_client_its_answer(place: Place) -> None:
    place.app.answer = echo
    for _ in range(3):
        more: Message = {"type": "http.request", "body": b"one ", "more_body": True}
        client = Client(more, {"type": "http.request", "body": b"two"})
        await place.ask(client)
        assert [event.get("body") for event in client.got] == [None, b"one two"]
        assert client.asked == 2, "only what the application asked for"
    assert place.app.scopes[0]["headers"] == [(b"a", b"1")]
    assert place.app.scopes[0]["client"] == ["h", 1]


async def test_the_application_learns_that_its_client_is_gone(place: Place) -> None:
    seen: list[Message] = []

    async def stream(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        seen.append(await receive())

    place.app.answer = stream
    await place.ask(Client({"type": "http.disconnect"}))
    asking = asyncio.create_task(place.ask(client := Client()))
    await until(lambda: client.asked == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: len(seen) == 2)
    assert [event["type"] for event in seen] == ["http.disconnect", "http.disconnect"]


async def test_an_answer_to_a_client_that_is_gone_is_no_failure(place: Place) -> None:
    finished = asyncio.Event()

    async def stream(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert (await receive())["type"] == "http.disconnect"
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
        finished.set()

    place.app.answer = stream
    with capture_logs() as logs:
        asking = asyncio.create_task(place.ask(client := Client()))
        await until(lambda: client.asked == 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await finished.wait()
    assert not logs


async def test_an_application_may_stop_to_wait_and_wait_again(place: Place) -> None:
    got: list[Message] = []

    async def patient(_scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        got.append(await receive())

    place.app.answer = patient
    asking = asyncio.create_task(place.ask(client := Client()))
    await until(lambda: bool(client.got))
    client.events.put_nowait({"type": "http.request", "body": b"late"})
    await asking
    assert got[0]["body"] == b"late"
    assert client.asked == 1


async def test_an_application_that_fails_is_an_error_of_its_request_alone(place: Place) -> None:
    async def fail(*_: object) -> None:
        raise ValueError("no")

    place.app.answer = fail
    with capture_logs() as logs:
        await place.ask(client := Client())
    assert client.got[0]["status"] == 500
    assert [line["event"] for line in logs] == ["a request failed"]
    place.app.answer = echo
    await place.ask(client := Client({"type": "http.request", "body": b"next"}))
    assert client.got[1]["body"] == b"next"


async def test_a_hub_that_is_away_is_said_to_the_client_and_asked_again_by_the_next(place: Place) -> None:
    place.app.answer = echo
    await place.ask(Client({"type": "http.request", "body": b""}))
    await place.server.stop()
    await place.ask(client := Client({"type": "http.request", "body": b""}))
    assert client.got[0]["status"] == 503
    place.server = ForwardServer([place.app], "secret")
    await place.server.listen(place.path)
    await place.ask(client := Client({"type": "http.request", "body": b"back"}))
    assert client.got[1]["body"] == b"back"


async def test_a_process_without_the_key_gets_no_answer(place: Place) -> None:
    place.app.answer = echo
    await Forwarder(partial(asyncio.open_unix_connection, place.path), "guessed")(
        dict(HTTP), (client := Client()).receive, client.send
    )
    assert client.got[0]["status"] == 503
    assert not place.app.scopes


@pytest.mark.parametrize("key", ["", "sécret", "secret\0"])
async def test_any_other_key_is_no_key(place: Place, key: str) -> None:
    place.app.answer = echo
    forwarder = Forwarder(partial(asyncio.open_unix_connection, place.path), key)
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    await forwarder(dict(HTTP), (client := Client()).receive, client.send)
    assert client.got[0]["status"] == 503
    # A task that failed tells so when it is collected.
    gc.collect()
    assert (place.app.scopes, failures) == ([], [])


async def test_a_stranger_who_says_nothing_is_sent_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_FIRST_SECONDS_MAX", 0.05)
    reader, writer = await asyncio.open_unix_connection(place.path)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def test_a_stranger_may_not_begin_with_a_large_frame(place: Place) -> None:
    reader, writer = await asyncio.open_unix_connection(place.path)
    writer.write((2 * 1024 * 1024).to_bytes(4, "big"))
    # The frame itself is not waited for.
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()


async def test_a_websocket_passes_with_its_gate(place: Place) -> None:
    async def talk(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        gate = client_gate(scope)
        gate.await_greeting()
        gate.admit((await receive())["text"], 5)
        gate.refuse()
        assert (await receive())["type"] == "websocket.disconnect"

    place.app.answer = talk
    hello: Message = {"type": "websocket.receive", "text": "ann"}
    gate, client = Gate(), Client({"type": "websocket.connect"}, hello, {"type": "websocket.disconnect", "code": 1000})
    await place.ask(client, {**WEBSOCKET, "extensions": {CLIENT_GATE: gate}})
    assert gate.calls == [("await_greeting",), ("admit", "ann", 5), ("refuse",)]
    assert client.got == [{"type": "websocket.accept"}]
