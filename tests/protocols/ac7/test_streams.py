"""Streams: hubs that stop, tokens that end; readers that do not read are in `conformance`."""

import asyncio
import json
import time

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from tests.protocols.ac7.teams import EventReader, Seat, SocketReader, Team
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.protocols.ac7.streams import Stream, Streams


async def test_a_socket_is_closed_with_a_reason_when_its_token_is_replaced(crew: Team) -> None:
    ann, boss = await crew.seat("ann"), await crew.seat("boss", "members.manage")
    stream = await crew.open(ann, "websocket")
    assert isinstance(stream, SocketReader)
    await boss.do("POST", "/members/ann/rotate-token")
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(stream.socket.recv(), 10)
    assert stream.socket.close_code == 1008
    assert "replaced" in (stream.socket.close_reason or "")


@pytest.mark.slow
async def test_streams_end_when_their_token_expires(crew: Team) -> None:
    ann = await crew.seat("ann")
    soon = time.time_ns() // 1_000_000 + 700
    made = await ann.do("POST", "/members/ann/tokens", 201, expiresAt=soon)
    short = Seat(crew.url, "ann", made["token"])
    events, socket = await crew.open(short), await crew.open(short, "websocket")
    tail = await crew.follow(short, "/members/ann/activity/stream")
    kept = await crew.open(ann)
    assert isinstance(events, EventReader)
    assert isinstance(socket, SocketReader)
    assert isinstance(tail, EventReader)
    assert (await tail.line()).startswith(": 1008 the token of ann has expired")
    while not (line := await events.line()).startswith(": "):
        pass
    assert line.startswith(": 1008 the token of ann has expired")
    await asyncio.wait_for(socket.socket.wait_closed(), 10)
    assert socket.socket.close_code == 1008
    await ann.push("still here", to="ann")
    assert (await kept.next())["body"] == "still here"


async def test_when_the_hub_stops_streams_hear_so(crew: Team) -> None:
    ann = await crew.seat("ann")
    events, socket = await crew.open(ann), await crew.open(ann, "websocket")
    assert isinstance(events, EventReader)
    assert isinstance(socket, SocketReader)
    await events.next()
    await crew.there.hub.stop()
    assert "server shutting down" in await events.line()
    with pytest.raises((ConnectionClosedOK, ConnectionClosedError)):
        await asyncio.wait_for(socket.socket.recv(), 10)
    assert (socket.socket.close_code, socket.socket.close_reason) == (1001, "server shutting down")


async def test_a_message_of_another_protocol_is_shown_with_its_thread_by_id(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    channel = await ann.do("POST", "/channels", 201, slug="dev")
    stream = await crew.open(ann)
    client = await crew.there.join("bob")
    await client.subscribe("dev")
    await client.send("#dev", "from elsewhere", data={"from": "ann", "k": 1})
    message = await stream.next()
    assert message["from"] == "bob"
    assert message["data"]["thread"] == f"chan:{channel['id']}"
    assert message["data"]["k"] == 1
    assert "from" not in message["data"]
    assert json.dumps(message) == json.dumps((await bob.history())[-1])


async def test_a_reader_that_leaves_while_its_stream_is_opened_leaves_no_session_behind(crew: Team) -> None:
    ann = await crew.seat("ann")
    exchange = crew.there.hub.exchange
    assert exchange is not None
    assert ann.token is not None
    ids = ChannelIds(exchange, "ac7")
    streams = Streams(exchange, ids, announce=False)
    stream = Stream(streams)
    opening = asyncio.create_task(streams.open(ann.token, stream))
    await asyncio.sleep(0)
    opening.cancel()
    stream.leave()
    stream.leave()
    await asyncio.gather(opening, return_exceptions=True)
    operator = await crew.there.operator()

    async def sessions() -> tuple[str, ...]:
        return next(member.sessions for member in await operator.members() if member.name == "ann")

    # The first answer comes after the attach, the second after its end.
    await sessions()
    assert await sessions() == ()
    streams.close()
    streams.close()
    ids.close()
