"""Streams: readers that do not read, hubs that stop, tokens that end."""

import asyncio
import contextlib
import json

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from tests.protocols.ac7.teams import EventReader, SocketReader, Team

BODY = "x" * 60_000


@pytest.mark.slow
async def test_a_stalled_subscriber_is_cut_off_with_a_reason_and_catches_up_from_history(crew: Team) -> None:
    alice, bob = await crew.seat("alice"), await crew.seat("bob")
    stalled = await crew.open(bob)
    assert isinstance(stalled, EventReader)
    count = 200
    for number in range(count):
        await alice.push(f"{number} {BODY}", to="bob")
    roster = {one["name"]: one["connected"] for one in (await alice.get("/roster"))["connected"]}
    assert roster["bob"] == 0, "it is not live any more"
    got, reason = [], ""
    with contextlib.suppress(EOFError):
        while not reason:
            # Lines are longer than the reader's own limit; chunks of HTTP are not.
            chunk = await asyncio.wait_for(stalled.reader.read(65536), 10)
            if not chunk:
                break
            got.append(chunk)
            if b"too slow" in chunk or b"too slow" in b"".join(got[-2:]):
                reason = "too slow"
    assert reason
    found: list[str] = []
    query = "?with=alice&limit=50"
    while page := (await bob.get(f"/history{query}"))["messages"]:
        found += [message["body"].split()[0] for message in page]
        query = f"?with=alice&limit=50&before={page[-1]['ts']}"
    assert found == [str(number) for number in reversed(range(count))]


async def test_a_socket_is_closed_with_a_reason_when_its_token_is_replaced(crew: Team) -> None:
    ann, boss = await crew.seat("ann"), await crew.seat("boss", "members.manage")
    stream = await crew.open(ann, "websocket")
    assert isinstance(stream, SocketReader)
    await boss.do("POST", "/members/ann/rotate-token")
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(stream.socket.recv(), 10)
    assert stream.socket.close_code == 1008
    assert "replaced" in (stream.socket.close_reason or "")


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
