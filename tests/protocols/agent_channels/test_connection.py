"""Tests of a single connection on a fake transport: the callbacks to its owner, and their times."""

import asyncio
import errno
from typing import Any, cast

import pytest

from tieline.protocols.agent_channels import connection as connection_module
from tieline.protocols.agent_channels.codec import DecodeError, Message, encode
from tieline.protocols.agent_channels.connection import Connection, SlowReader
from tieline.protocols.agent_channels.large import LARGE_BYTES, VALUES_MAX, LargeMessage


class Wire:
    """Test double: a transport that writes nothing before the test says so."""

    def __init__(self) -> None:
        self.unsent = 0
        self.calls: list[str] = []
        self.aborted = asyncio.Event()
        self._closing = False

    def write(self, data: bytes) -> None:
        """Count the bytes as unsent."""
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not written yet."""
        return self.unsent

    def is_closing(self) -> bool:
        """Return true if `close` or `abort` was called."""
        return self._closing

    def get_extra_info(self, name: str) -> None:
        """Return `None`, because there is no socket."""

    def __getattr__(self, name: str) -> Any:
        def call() -> None:
            self.calls.append(name)
            self._closing = self._closing or name in ("close", "abort")
            if name == "abort":
                self.aborted.set()

        return call


class Diary:
    """Test double: the owner of a connection. It records its callbacks."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        # Hangs up when it hears this.
        self.enough: str | None = None

    def connection_opened(self, connection: Connection) -> None:
        self.entries.append(("opened", connection.id))

    def data_arrived(self) -> None:
        """Do nothing, because this test has no other connection that the owner could accept."""

    def message_received(self, connection: Connection, message: Message) -> None:
        self.entries.append(("message", message.msg))
        if message.msg == self.enough:
            connection.close()

    def connection_drained(self, connection: Connection) -> None:
        self.entries.append(("drained", connection.id))

    def connection_failed(self, connection: Connection, error: Exception) -> None:
        self.entries.append(("failed", type(error), connection.open))

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        self.entries.append(("closed", error, connection.open))


@pytest.fixture
def diary() -> Diary:
    """Fixture: an owner that records its callbacks."""
    return Diary()


@pytest.fixture
def wire() -> Wire:
    """Fixture: a fake transport, so that the test decides when bytes are written."""
    return Wire()


@pytest.fixture
def connection(diary: Diary, wire: Wire) -> Connection:
    """Fixture: an open connection with a limit of 100 unsent bytes."""
    connection = Connection(diary, "client-0", 1000, 100)
    assert not connection.open
    connection.connection_made(cast("asyncio.Transport", wire))
    assert connection.open
    diary.entries.clear()
    return connection


def test_the_owner_hears_messages_then_the_failure_then_the_end(
    connection: Connection, diary: Diary, wire: Wire
) -> None:
    connection.data_received(encode({"msg": "one"}) + encode({"msg": "two"}) + bytes(4))
    connection.connection_lost(None)
    assert diary.entries == [
        ("message", "one"),
        ("message", "two"),
        ("failed", DecodeError, True),
        ("closed", None, False),
    ]
    assert wire.calls == ["close"]


def test_an_owner_that_hangs_up_hears_no_more_messages(connection: Connection, diary: Diary) -> None:
    diary.enough = "one"
    connection.data_received(encode({"msg": "one"}) + encode({"msg": "two"}) + bytes(4))
    assert diary.entries == [("message", "one")]


def test_too_much_unsent_fails_and_aborts(connection: Connection, diary: Diary, wire: Wire) -> None:
    assert connection.write(bytes(100))
    assert connection.unsent_bytes == 100
    assert not connection.write(b"x")
    assert not connection.write(b"x")
    assert diary.entries == [("failed", SlowReader, True)]
    assert wire.calls == ["abort"]


async def test_what_is_unsent_at_a_close_gets_a_bounded_time(
    connection: Connection, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_SECONDS_MAX", 0.01)
    connection.write(b"last words")
    connection.close()
    connection.close()
    async with asyncio.timeout(5):
        await wire.aborted.wait()
    assert wire.calls == ["close", "abort"]


async def test_waiting_for_an_end_that_is_never_reported_is_bounded(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_SECONDS_MAX", 0.01)
    connection.close()
    async with asyncio.timeout(5):
        await connection.wait_closed()


async def test_waiting_ends_with_the_connection_for_every_waiter_and_after_it_at_once(connection: Connection) -> None:
    waiting = [asyncio.create_task(connection.wait_closed()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    connection.close()
    connection.connection_lost(None)
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting[1:])
        await connection.wait_closed()


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED])
def test_a_rude_hanging_up_is_a_hanging_up(connection: Connection, diary: Diary, code: int) -> None:
    connection.connection_lost(OSError(code, "rude"))
    assert diary.entries == [("closed", None, False)]


def test_any_other_socket_error_is_told(connection: Connection, diary: Diary) -> None:
    error = OSError(errno.EIO, "broken")
    connection.connection_lost(error)
    assert diary.entries == [("closed", error, False)]


def test_nothing_can_be_done_to_a_connection_that_is_gone(connection: Connection, wire: Wire) -> None:
    connection.connection_lost(None)
    connection.close()
    connection.abort()
    connection.pause_reading()
    connection.resume_reading()
    connection.fail(ValueError("late"))
    assert not connection.write(b"late")
    assert connection.unsent_bytes == 0
    assert wire.calls == []


def test_reading_is_paused_once_and_resumed_once(connection: Connection, wire: Wire) -> None:
    connection.resume_reading()
    connection.pause_reading()
    connection.pause_reading()
    connection.resume_reading()
    connection.resume_reading()
    assert wire.calls == ["pause_reading", "resume_reading"]


def test_the_owner_hears_when_a_full_write_buffer_has_room_again(connection: Connection, diary: Diary) -> None:
    connection.pause_writing()
    assert not connection.writable
    connection.resume_writing()
    assert connection.writable
    assert diary.entries == [("drained", "client-0")]


# Large messages.


LARGE = {"msg": "large", "data": {"n": [0] * VALUES_MAX, "text": "x" * LARGE_BYTES, "more": [0] * VALUES_MAX}}


@pytest.fixture
def accepted(diary: Diary, wire: Wire) -> Connection:
    """Fixture: an open connection that checks large messages in several steps, so that other tasks can run."""

    def receive(connection: Connection, large: LargeMessage) -> None:
        diary.entries.append(("large", large.msg, large.message().data == LARGE["data"]))

    connection = Connection(diary, "client-0", 16 * 1024 * 1024, 100, large=receive)
    connection.connection_made(cast("asyncio.Transport", wire))
    diary.entries.clear()
    return connection


async def turns(diary: Diary, last: tuple[Any, ...]) -> int:
    """Wait until the last recorded callback is `last`. Return the number of turns that other tasks had meanwhile."""
    count = 0
    async with asyncio.timeout(10):
        while diary.entries[-1:] != [last]:
            await asyncio.sleep(0)
            count += 1
    return count


async def test_others_have_turns_while_a_client_sends_many_values_and_its_order_is_kept(
    accepted: Connection, diary: Diary, wire: Wire
) -> None:
    accepted.data_received(encode({"msg": "before"}) + encode(LARGE) + encode({"msg": "after"}))
    assert diary.entries == [("message", "before")]
    assert wire.calls == ["pause_reading"]
    assert await turns(diary, ("message", "after")) > 3
    assert diary.entries[1:] == [("large", "large", True), ("message", "after")]
    await asyncio.sleep(0)
    assert wire.calls == ["pause_reading", "resume_reading"]


async def test_a_client_that_sends_many_values_and_hangs_up_is_heard_before_its_end(
    accepted: Connection, diary: Diary
) -> None:
    accepted.data_received(encode(LARGE) + encode({"msg": "after"}))
    accepted.connection_lost(BrokenPipeError())
    await turns(diary, ("closed", None, False))
    assert diary.entries == [("large", "large", True), ("message", "after"), ("closed", None, False)]


async def test_many_values_with_a_fault_in_the_middle_end_the_connection(
    accepted: Connection, diary: Diary, wire: Wire
) -> None:
    frame = encode(LARGE)
    accepted.data_received(frame[:-30] + b"," + frame[-29:] + encode({"msg": "after"}))
    await turns(diary, ("failed", DecodeError, True))
    assert wire.calls == ["pause_reading", "close"]
    accepted.connection_lost(None)
    assert diary.entries == [("failed", DecodeError, True), ("closed", None, False)]


async def test_a_connection_that_is_closed_meanwhile_forgets_the_rest(
    accepted: Connection, diary: Diary, wire: Wire
) -> None:
    accepted.data_received(encode(LARGE))
    accepted.close()
    accepted.connection_lost(None)
    for _ in range(20):
        await asyncio.sleep(0)
    assert diary.entries == [("closed", None, False)]
    assert wire.calls == ["pause_reading", "close"]


async def test_an_owner_that_pauses_meanwhile_is_not_read_from_afterwards(
    accepted: Connection, diary: Diary, wire: Wire
) -> None:
    accepted.data_received(encode(LARGE))
    accepted.pause_reading()
    await turns(diary, ("large", "large", True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "resume_reading" not in wire.calls
    accepted.resume_reading()
    assert wire.calls[-1] == "resume_reading"
