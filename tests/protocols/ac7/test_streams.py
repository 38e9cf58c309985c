"""Tests of streams: when the hub stops, when a token ends, and what a reader gets after a pause or a release.

Tests of readers that do not read are in `conformance`.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK

from tests.protocols.ac7.teams import EventReader, Seat, SocketReader, Team
from tests.server.hubs import WAIT_SECONDS
from tests.wire.native.fake_hub import FakeHub
from tests.wire.table import BOB, SESSION, message, turn
from tieline.contract import command as c
from tieline.contract.delivery import Delivery, State
from tieline.contract.hub import Interest, Notice
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Fetched, Reply
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


@pytest.mark.parametrize("kind", ["header", "sse", "websocket"])
async def test_a_reader_that_reconnects_gets_what_it_missed_since_its_last_message(crew: Team, kind: str) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    stream = await crew.open(ann, "websocket" if kind == "websocket" else "sse")
    await bob.push("heard", to="ann")
    last = (await stream.next())["id"]
    await stream.close()
    said = [f"missed {number}" for number in range(150)]
    for body in said[:-1]:
        await bob.push(body, to="ann")
    await ann.push(said[-1], to="bob")
    again: EventReader | SocketReader
    if kind == "header":
        again = await EventReader.open(ann, **{"last-event-id": last})
    else:
        again = await crew.follow(ann, f"/subscribe?name=ann&since={last}", kind)
    assert [(await again.next())["body"] for _ in said] == said, "its own is among them"
    assert (await again.next())["title"] == "ac7 session online"
    await bob.push("live", to="ann")
    assert (await again.next())["body"] == "live"
    operator = await crew.there.operator()
    assert next(member.backlog for member in await operator.members() if member.name == "ann") == 0
    await again.close()


@pytest.mark.parametrize("kind", ["sse", "websocket"])
async def test_a_reader_that_reconnects_gets_the_note_of_a_redacted_message(crew: Team, kind: str) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    operator = await crew.there.operator()
    stream = await crew.open(ann, kind)
    last = (await bob.push("heard", to="ann"))["message"]["id"]
    secret = (await bob.push("the secret", to="ann"))["message"]["id"]
    assert [(await stream.next())["body"] for _ in range(2)] == ["heard", "the secret"]
    await stream.close()
    await operator.redact(secret, "a password")
    again = await crew.follow(ann, f"/subscribe?name=ann&since={last}", kind)
    assert (await again.next())["body"] == "redacted by operator: a password"


async def test_what_was_redacted_while_it_was_held_is_released_as_its_note(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    operator = await crew.there.operator()
    hers, his = await crew.open(ann), await crew.open(bob)
    await operator.pause_thread("@ann+@bob")
    secret = (await bob.push("the secret", to="ann"))["message"]["id"]
    assert (await his.next())["body"] == "the secret", "the sender's own devices show it"
    await operator.redact(secret, "a password")
    await operator.resume_thread("@ann+@bob")
    assert (await hers.next())["body"] == "redacted by operator: a password"


async def test_the_events_of_a_stream_have_the_ids_of_their_messages(crew: Team) -> None:
    ann = await crew.seat("ann")
    stream = await crew.open(ann)
    assert isinstance(stream, EventReader)
    sent = (await ann.push("x", to="ann"))["message"]["id"]
    async with asyncio.timeout(WAIT_SECONDS):
        while not (line := await stream.reader.readline()).startswith(b"id: "):
            assert line, "it ended"
    assert line == f"id: {sent}\n".encode()


@pytest.mark.parametrize("kind", ["sse", "websocket"])
async def test_a_stream_since_a_message_that_nobody_knows_begins_now(crew: Team, kind: str) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    await bob.push("before", to="ann")
    stream = await crew.follow(ann, "/subscribe?name=ann&since=no-such-message", kind)
    assert (await stream.next())["title"] == "ac7 session online"


async def test_a_stream_that_missed_more_than_a_reader_may_leave_unread_ends_and_continues(crew: Team) -> None:
    ann, bob = await crew.seat("ann"), await crew.seat("bob")
    heard = (await bob.push("heard", to="ann"))["message"]["id"]
    count = 30
    for number in range(count):
        await bob.push(f"{number} {'x' * 50_000}", to="ann")
    got: list[str] = []
    rounds = 0
    while len(got) < count:
        stream = await EventReader.open(ann, f"/subscribe?name=ann&since={heard}")
        rounds += 1
        while (line := await stream.line()).startswith("data: ") and len(got) < count:
            message = json.loads(line.removeprefix("data: "))
            got.append(message["body"].split()[0])
            heard = message["id"]
        await stream.close()
    assert got == [str(number) for number in range(count)]
    assert rounds > 1, "the first ended with 1013"


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


async def test_what_a_reader_got_before_it_hung_up_waits_no_more(held: "Held") -> None:
    held.page(1, 2)
    held.offer(4)
    # In the same turn, before the hub could be told.
    held.stream.leave()
    await turn()
    notes = [note for note in held.hub.asked(c.Offered) if isinstance(note, c.Offered)]
    assert sorted(key for note in notes for key in range(note.first, note.last + 1)) == [1, 2, 3, 4]


# Held and released, before a fake hub


class WatchedHub(FakeHub):
    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        del interest, receiver
        return lambda: None

    async def ask(self, command: Any) -> Any:
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.submit((command,), lambda replies: answered.set_result(replies[0]))
        return await answered


class FakeCarrier:
    """Test double: a carrier (connection of a stream) that records the ids of written messages and the end."""

    takes_events: ClassVar = False

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.ended: list[tuple[int, str]] = []

    def write(self, chunk: bytes) -> None:
        self.ids.append(json.loads(chunk)["id"])

    def end(self, code: int, reason: str) -> None:
        self.ended.append((code, reason))

    async def refuse(self, reply: Answer) -> None:
        raise AssertionError(reply)

    async def run(self) -> None:
        raise AssertionError("nobody reads it")


class Held:
    """Test helper: a stream whose deliveries 1 and 2 are held and 3 is written.

    The stream has asked the hub for the released ones, and the test answers.
    """

    def __init__(self, hub: WatchedHub, stream: Stream, carrier: FakeCarrier) -> None:
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


async def opened(since: str | None = None) -> tuple[Held, asyncio.Task[Refusal | None]]:
    hub, carrier = WatchedHub(), FakeCarrier()
    streams = Streams(hub, ChannelIds(hub, "ac7"), announce=False)
    hub.open.clear()
    stream = Stream(streams)
    stream.carrier = carrier
    opening = asyncio.create_task(streams.open("token", stream, since=since))
    await turn()
    hub.answer(Attached(session=SESSION, member=BOB, speaker="bob"))
    return Held(hub, stream, carrier), opening


@pytest.fixture
async def held() -> Held:
    built, opening = await opened()
    await opening
    stream = built.stream
    built.offer(3)
    stream.released([1, 2])
    return built


async def test_what_was_held_comes_before_what_is_said_after_its_release(held: Held) -> None:
    held.offer(4)
    held.stream.offer(message(5), 0)
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


async def test_what_comes_while_missed_messages_are_read_comes_after_them_and_once(held: Held) -> None:
    held.page(1, 2)
    stream = held.stream
    stream.wait_for_missed()
    assert stream.show_missed(message(4))
    held.offer(4)
    held.offer(6)
    held.stream.released([8])
    assert stream.show_missed(message(5))
    assert not stream.show_missed(message(6))
    assert held.carrier.ids == ["m3", "m1", "m2", "m4", "m5"]
    stream.end_missed()
    held.page(8)
    await turn()
    assert held.carrier.ids == ["m3", "m1", "m2", "m4", "m5", "m6", "m8"]


async def test_a_stream_ends_when_the_hub_fails_to_read_what_its_reader_missed() -> None:
    built, opening = await opened(since="m1")
    await turn()
    built.offer(3)
    built.hub.answer(Refusal(Code.STORE_FAILED, "the disk is full"))
    await opening
    assert built.carrier.ended == [(1013, "the disk is full")]
    assert built.carrier.ids == [], "nothing later comes instead"


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
