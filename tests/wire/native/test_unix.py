"""Tests of the hub's own protocol on a real socket: bad input ends the connection of its client, and no other."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.hubs import running_hub, until
from tieline.client import HubRefused
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, Issued
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.server.clock_and_ids import SystemClockAndIds
from tieline.server.local_hub import LocalHub
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.database import IN_MEMORY
from tieline.wire import stream
from tieline.wire.frames import encode_frame
from tieline.wire.home import HUB_SOCKET
from tieline.wire.native import frames as f
from tieline.wire.native.unix import NativeListener
from tieline.wire.unfinished import Unfinished

WAIT_SECONDS = 10
KEY = "the key of the home"


class Place:
    """Test helper: a listener of a real hub, with one member."""

    def __init__(self, hub: LocalHub, listener: NativeListener, path: Path, token: str) -> None:
        self.hub = hub
        self.listener = listener
        self.path = path
        self.token = token


class Caller:
    """Test client: a raw connection in the hub's own protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames: list[f.HubFrame] = []

    @classmethod
    async def call(cls, path: Path, *hello: f.Frame) -> "Caller":
        caller = cls(*await asyncio.open_unix_connection(path))
        if hello:
            caller.say(*hello)
            assert isinstance(await caller.hear(), f.Welcome)
        return caller

    def say(self, *frames: f.Frame) -> None:
        self.writer.write(encode_frame(f.encode_batch(frames)))

    async def hear(self) -> f.HubFrame:
        """Return the next frame. Raise `EOFError` when the hub closed the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self._frames:
                try:
                    size = int.from_bytes(await self._reader.readexactly(4), "big")
                    self._frames += f.decode_hub_batch(await self._reader.readexactly(size))
                except (asyncio.IncompleteReadError, ConnectionError) as error:
                    raise EOFError from error
        return self._frames.pop(0)

    async def refused(self) -> f.Refused:
        """Wait for a refusal, after which the hub must close the connection. Return the refusal."""
        frame = await self.hear()
        assert isinstance(frame, f.Refused)
        with pytest.raises(EOFError):
            await self.hear()
        self.writer.close()
        return frame


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[Place]:
    limits = Limits(frame_bytes_max=100_000)
    broker = Broker(SqliteStore(IN_MEMORY), SystemClockAndIds(), limits, home_key=token_digest(KEY))
    hub = LocalHub(broker, SqliteActivity(IN_MEMORY))
    hub.start()
    attached = await hub.ask(c.Attach(protocol="test", credential=ByHomeKey(KEY)))
    assert isinstance(attached, Attached)
    issued = await hub.ask(c.AddMember(attached.session, name=MemberName("bob")))
    assert isinstance(issued, Issued)
    listener = await NativeListener.start(hub, folder / "hub.sock")
    yield Place(hub, listener, folder / "hub.sock", issued.token)
    listener.stop()
    await hub.stop()


async def test_the_socket_is_for_its_owner_alone(place: Place) -> None:
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600


async def test_a_client_is_welcomed_and_answered(place: Place) -> None:
    caller = await Caller.call(place.path, f.Hello(token=place.token))
    caller.say(f.ListMembers(4))
    roster = await caller.hear()
    assert isinstance(roster, f.Roster)
    assert [member.name for member in roster.members] == ["bob"]
    caller.writer.close()


async def test_batches_may_come_in_any_pieces(place: Place) -> None:
    caller = await Caller.call(place.path)
    everything = encode_frame(f.encode_batch([f.Hello(token=place.token), f.ListMembers(1)]))
    everything += encode_frame(f.encode_batch([f.ListMembers(2)]))
    for index in range(len(everything)):
        caller.writer.write(everything[index : index + 1])
        await caller.writer.drain()
    assert isinstance(await caller.hear(), f.Welcome)
    for n in (1, 2):
        roster = await caller.hear()
        assert isinstance(roster, f.Roster)
        assert roster.n == n
    caller.writer.close()


async def test_the_first_frame_is_small_and_those_behind_it_may_be_large(place: Place) -> None:
    greeting = Limits().greeting_bytes_max
    stranger = await Caller.call(place.path)
    stranger.writer.write((greeting + 1).to_bytes(4, "big"))
    assert (await stranger.refused()).code is Code.INVALID_REQUEST
    caller = await Caller.call(place.path)
    large = encode_frame(f.encode_batch([f.Send(1, "@bob", "x" * (greeting + 1))]))
    caller.writer.write(encode_frame(f.encode_batch([f.Hello(token=place.token)])) + large + large)
    assert isinstance(await caller.hear(), f.Welcome)
    assert [type(await caller.hear()) for _ in range(2)] == [f.Accepted] * 2
    caller.writer.close()


async def test_a_batch_that_says_nothing_makes_no_room_for_a_large_one_before_hello(place: Place) -> None:
    stranger = await Caller.call(place.path)
    stranger.writer.write(encode_frame(b"[]") + (Limits().greeting_bytes_max + 1).to_bytes(4, "big"))
    assert (await stranger.refused()).code is Code.INVALID_REQUEST
    caller = await Caller.call(place.path)
    caller.writer.write(encode_frame(b"[]") + encode_frame(f.encode_batch([f.Hello(token=place.token)])))
    assert isinstance(await caller.hear(), f.Welcome)
    caller.writer.close()


async def test_all_who_have_not_said_hello_hold_no_more_than_their_bound(folder: Path, place: Place) -> None:
    unfinished = Unfinished(Limits(strangers_bytes_max=100_000))
    listener = await NativeListener.start(place.hub, folder / "other.sock", unfinished)
    first = await Caller.call(folder / "other.sock")
    first.writer.write((60_000).to_bytes(4, "big") + b"x" * 59_000)
    second = await Caller.call(folder / "other.sock")
    second.writer.write((60_000).to_bytes(4, "big") + b"x" * 50_000)
    assert (await first.refused()).code is Code.MESSAGE_TOO_LARGE
    assert unfinished.size <= 100_000
    second.writer.close()
    listener.stop()


BAD_INPUT = {
    "a frame of no bytes": b"\0\0\0\0",
    "a frame that is too large": (100_001).to_bytes(4, "big") + b"x" * 10,
    "a length of garbage": b"GET / HTTP/1.1\r\n\r\n",
    "not JSON": encode_frame(b"hello"),
    "not an array": encode_frame(b"{}"),
    "an unknown type": encode_frame(b'[{"t":"dance"}]'),
    "a missing field": encode_frame(b'[{"t":"claim","n":1}]'),
    "a second hello": encode_frame(b'[{"t":"hello"}]'),
}


@pytest.mark.parametrize("bad", BAD_INPUT.values(), ids=BAD_INPUT.keys())
async def test_bad_input_ends_that_connection_with_a_refusal_and_no_other(place: Place, bad: bytes) -> None:
    good = await Caller.call(place.path, f.Hello(token=place.token))
    broken = await Caller.call(place.path, f.Hello(token=place.token))
    broken.writer.write(bad)
    assert (await broken.refused()).code is Code.INVALID_REQUEST
    good.say(f.ListMembers(1))
    assert isinstance(await good.hear(), f.Roster)
    good.writer.close()


async def test_batches_before_a_bad_one_are_answered_when_they_came_before_it(place: Place) -> None:
    caller = await Caller.call(place.path, f.Hello(token=place.token))
    caller.say(f.ListMembers(1))
    assert isinstance(await caller.hear(), f.Roster)
    caller.writer.write(encode_frame(b"no"))
    assert (await caller.refused()).code is Code.INVALID_REQUEST


async def test_half_a_frame_and_then_silence_delays_nobody(place: Place) -> None:
    silent = await Caller.call(place.path, f.Hello(token=place.token))
    silent.writer.write(b"\0\0")
    other = await Caller.call(place.path, f.Hello(token=place.token))
    other.say(f.ListMembers(1))
    assert isinstance(await other.hear(), f.Roster)
    assert place.listener.connection_count == 2
    silent.writer.close()
    other.writer.close()


async def test_a_process_of_another_user_is_turned_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "peer_uid", lambda _: os.geteuid() + 1)
    caller = await Caller.call(place.path)
    assert (await caller.refused()).code is Code.UNAUTHORIZED


async def test_stopping_hangs_up_saying_why_and_removes_the_socket(place: Place) -> None:
    caller = await Caller.call(place.path, f.Hello(token=place.token))
    place.listener.stop()
    assert (await caller.refused()).code is Code.SHUTTING_DOWN
    assert not place.path.exists()
    place.listener.stop()


async def test_sessions_end_with_their_connections(place: Place) -> None:
    first = await Caller.call(place.path, f.Hello(token=place.token))
    second = await Caller.call(place.path, f.Hello(token=place.token))

    async def sessions() -> int:
        second.say(f.ListMembers(1))
        roster = await second.hear()
        assert isinstance(roster, f.Roster)
        return len(roster.members[0].sessions)

    assert await sessions() == 2
    first.writer.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while await sessions() != 1:
            pass
    second.writer.close()


@pytest.mark.slow
async def test_a_batch_of_questions_is_answered_as_its_reader_reads_and_holds_nobody_up(folder: Path) -> None:
    (folder / "tieline.toml").write_text("[limits]\nunsent_bytes_max = 65536\n")
    async with running_hub(folder, store="sqlite:unsafe") as there:
        await there.add("alice", "mallory", *(f"member-{number}" for number in range(100)))
        assert there.hub.local_hub is not None
        directory = there.hub.local_hub._broker.directory
        asked, roster = 0, directory.roster

        def counted(*arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            return roster(*arguments)

        directory.roster = counted  # type: ignore[method-assign, assignment]
        alice = await there.join("alice")
        reader, writer = await asyncio.open_unix_connection(str(folder / HUB_SOCKET))
        try:
            writer.write(encode_frame(f.encode_batch([f.Hello(token=there.tokens["mallory"])])))
            await reader.readexactly(4)
            writer.write(encode_frame(f.encode_batch([f.ListMembers(n) for n in range(3000)])))
            await until(lambda: asked > 0)
            for number in range(50):
                # Each of these would be decided behind all of those, if they stood before it.
                await alice.send("@mallory", str(number))
            # The limit covers the socket's buffers without a reader, and the requests that may wait.
            assert asked < 100
        finally:
            writer.close()


async def test_refusals_at_the_door_past_what_may_be_in_flight_are_all_answered(folder: Path) -> None:
    (folder / "tieline.toml").write_text("[limits]\ninflight_max = 16\n")
    async with running_hub(folder, store="sqlite:unsafe") as there:
        await there.add("alice")
        alice = await there.join("alice")
        sends = (alice.send("nowhere", str(number)) for number in range(100))
        answers = await asyncio.gather(*sends, return_exceptions=True)
        assert {answer.code for answer in answers if isinstance(answer, HubRefused)} == {Code.INVALID_TARGET}
        assert len(answers) == 100
        assert (await alice.send("@alice", "hello")).recipients == 1


async def test_a_batch_that_is_more_than_may_be_in_flight_is_answered_whole_and_in_order(folder: Path) -> None:
    (folder / "tieline.toml").write_text("[limits]\ninflight_max = 16\n")
    async with running_hub(folder, store="sqlite:unsafe") as there:
        await there.add("alice", "bob")
        alice = await there.join("alice")
        sent = await asyncio.gather(*(alice.send("@bob", str(number)) for number in range(500)))
        offsets = [accepted.offset for accepted in sent]
        assert offsets == sorted(offsets)
        assert [message.body for message in await alice.history(limit=3)] == ["499", "498", "497"]
