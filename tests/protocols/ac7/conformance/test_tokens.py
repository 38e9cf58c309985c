"""Tests of revoked tokens: the next request is refused, and a stream of activity that uses the token ends."""

import asyncio
import time

import pytest
from websockets.exceptions import ConnectionClosedError

from tests.protocols.ac7.teams import Seat, SocketReader, Team
from tests.server.hubs import WAIT_SECONDS

LIFE_MS = 2000
PATH = "/members/ann/activity/stream"


@pytest.mark.slow
async def test_a_token_in_use_opens_nothing_after_its_time(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    ends_at_ms = time.time_ns() // 1_000_000 + LIFE_MS
    made = await ann.do("POST", "/members/ann/tokens", 201, expiresAt=ends_at_ms)
    laptop = Seat(crew.url, "ann", made["token"])
    tail = await crew.follow(laptop, PATH, "websocket")
    assert isinstance(tail, SocketReader)
    async with asyncio.timeout(WAIT_SECONDS):
        reply = await laptop.ask("GET", "/team")
        assert reply.status == 200
        while reply.status == 200:
            reply = await laptop.ask("GET", "/team")
    assert (reply.status, reply.value["error"]) == (401, "unknown token")
    assert time.time_ns() // 1_000_000 - ends_at_ms < 5_000, "at once, not some time later"
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(tail.socket.recv(), WAIT_SECONDS)
    assert tail.socket.close_code == 1008
    assert await laptop.refused(401, "GET", PATH) == "unknown token"
    await bob.push("to ann", to="ann")
    assert await ann.said() == ["to ann"], "the others of her tokens are as good as before"
