"""Streams: hubs that stop, tokens that end; readers that do not read are in `conformance`."""

import asyncio
import json
import time
from collections.abc import Callable

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from tests.protocols.ac7.teams import EventReader, Seat, SocketReader, Team
from tests.wire.native.paper import PaperHub
from tests.wire.table import BOB, SESSION, message, turn
from tieline.contract import command as c
from tieline.contract.delivery import Delivery, State
from tieline.contract.hub import Interest, Notice
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Fetched
from tieline.protocols.ac7.carriers import Frame
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.protocols.ac7.streams import Stream, Streams
from tieline.wire import pages
from tieline.wire.http import Answer


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
    local_hub = crew.there.hub.local_hub
    assert local_hub is not None
    assert ann.token is not None
    ids = ChannelIds(local_hub, "ac7")
    streams = Streams(local_hub, ids, announce=False)
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


# Held and released, before a hub of paper


class WatchedHub(PaperHub):
    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        del interest, receiver
        return lambda: None


class PaperCarrier:
    """A carrier that keeps what is written."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.ended: list[tuple[int, str]] = []

    def write(self, frame: Frame) -> None:
        self.ids.append(json.loads(frame.payload)["id"])

    def end(self, code: int, reason: str) -> None:
        self.ended.append((code, reason))

    async def refuse(self, reply: Answer) -> None:
        raise AssertionError(reply)

    async def run(self) -> None:
        raise AssertionError("nobody reads it")


class Held:
    """A stream with deliveries 1 and 2 held, 3 written, and the hub asked for what was released."""

    def __init__(self, hub: WatchedHub, stream: Stream, carrier: PaperCarrier) -> None:
        self.hub = hub
        self.stream = stream
        self.carrier = carrier

    def offer(self, key: int, size: int = 1) -> None:
        self.stream.offer(message(key, size), key, key)

    def page(self, *keys: int) -> None:
        items = tuple(Delivery(key, key, State.PENDING, message(key)) for key in keys)
        self.hub.answer(Fetched(deliveries=items, through=keys[-1], complete=True))

    @property
    def fetches(self) -> list[tuple[int, ...]]:
        return [fetch.keys for fetch in self.hub.asked(c.Fetch) if isinstance(fetch, c.Fetch)]

    async def asked(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.fetches) < count:
                await turn()


@pytest.fixture
async def held() -> Held:
    hub, carrier = WatchedHub(), PaperCarrier()
    streams = Streams(hub, ChannelIds(hub, "ac7"), announce=False)
    hub.open.clear()
    stream = Stream(streams)
    stream.carrier = carrier
    opening = asyncio.create_task(streams.open("token", stream))
    await turn()
    hub.answer(Attached(session=SESSION, member=BOB, speaker="bob"))
    await opening
    built = Held(hub, stream, carrier)
    built.offer(3)
    stream.released([1, 2])
    return built


async def test_what_was_held_comes_before_what_is_said_after_its_release(held: Held) -> None:
    held.offer(4)
    held.stream.show(message(5))
    held.offer(5)
    # Held after 5 was said.
    held.stream.released([6])
    held.offer(7)
    held.page(1)
    assert held.carrier.ids == ["m3", "m1"]
    held.page(2)
    held.page(6)
    held.offer(8)
    await turn()
    assert held.fetches == [(1, 2), (2,), (6,)]
    assert held.carrier.ids == ["m3", "m1", "m2", "m4", "m5", "m6", "m7", "m8"]
    notes = [note for note in held.hub.asked(c.Offered) if isinstance(note, c.Offered)]
    assert sorted(key for note in notes for key in range(note.first, note.last + 1)) == list(range(1, 9))


async def test_what_was_held_is_asked_for_again_when_the_hub_failed_to_read_it(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)
    held.hub.answer(Refusal(Code.STORE_FAILED, "not now"))
    held.offer(4)
    await held.asked(2)
    held.page(1, 2)
    assert held.carrier.ids == ["m3", "m1", "m2", "m4"]


async def test_a_stream_ends_when_the_hub_fails_to_read_what_was_held_again_and_again(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)
    for tries in range(1, 61):
        assert held.carrier.ended == []
        await held.asked(tries)
        held.hub.answer(Refusal(Code.INTERNAL_ERROR, "a bug"))
    assert held.carrier.ended == [(1013, "a bug: what you missed is in /history")]


async def test_a_stream_is_cut_off_when_too_much_waits_for_what_was_held(held: Held) -> None:
    held.offer(4, held.stream.unsent_bytes_max // 2)
    assert held.carrier.ended == []
    held.offer(5, held.stream.unsent_bytes_max // 2)
    assert held.carrier.ended == [(1013, "too much waits for what was held: what you missed is in /history")]
    held.page(1, 2)
    assert held.carrier.ids == ["m3"]
