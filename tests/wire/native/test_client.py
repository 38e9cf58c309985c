"""Tests of the client of the hub's own protocol with a fake hub: answers that do not fit, and a lost connection."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from tieline.contract.refusal import Code
from tieline.wire.native import frames as f
from tieline.wire.native.client import Client
from tieline.wire.native.errors import Disconnected, HubRefused

WELCOME = f.Welcome(1, "s", "alice", "alice", 256, 1_000_000)


class FakeHubEnd:
    """Test double: the hub's end of a connection. It answers hello at once, and records the client's other frames."""

    def __init__(self) -> None:
        self.client = Client()
        self.frames: list[dict[str, Any]] = []
        self.arrived = asyncio.Event()

    def send(self, payload: bytes) -> None:
        batch = msgspec.json.decode(payload)
        self.frames += [frame for frame in batch if frame["t"] != "hello"]
        if batch[0]["t"] == "hello":
            self.answer(WELCOME)
        else:
            self.arrived.set()

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    def answer(self, *frames: f.HubFrame) -> None:
        self.client.receive_batch(f.encode_batch(frames))


@pytest.fixture
async def hub() -> FakeHubEnd:
    """Fixture: the hub's end of a connection whose client is welcome."""
    made = FakeHubEnd()
    await made.client.greet(made, f.Hello(token="t"))
    return made


async def asked(hub: FakeHubEnd, request: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start a request of the client, and wait until its frame has arrived. Return the task of the request."""
    task = asyncio.create_task(request)
    async with asyncio.timeout(10):
        await hub.arrived.wait()
    hub.arrived.clear()
    return task


async def test_an_answer_of_another_type_is_an_error_of_that_request_alone(hub: FakeHubEnd) -> None:
    task = await asked(hub, hub.client.members())
    hub.answer(f.Done(hub.frames.pop()["n"]))
    with pytest.raises(HubRefused) as caught:
        await task
    assert caught.value.code is Code.INVALID_REQUEST
    assert "Done" in str(caught.value)
    again = await asked(hub, hub.client.members())
    hub.answer(f.Roster(hub.frames[0]["n"], ()))
    assert await again == ()


async def test_requests_that_wait_fail_with_the_reason_when_the_connection_ends(hub: FakeHubEnd) -> None:
    task = await asked(hub, hub.client.send("@bob", "hello"))
    hub.client.connection_lost("the cable broke")
    hub.client.connection_lost("a second reason counts for nothing")
    with pytest.raises(Disconnected, match="the cable broke"):
        await task
    with pytest.raises(Disconnected, match="the cable broke"):
        await hub.client.members()
