"""Tests of the recorder of activity: it has its own thread and limits, and does not disturb messages.

Activity is durable before it is answered.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.server.hubs import until
from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Content
from tieline.contract.reader import Reader
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Activity, Attached, Done, LogRows, Readers, Recorded, Reply
from tieline.contract.target import to_member
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.store import ActivityEntry, DiskError, StoreError
from tieline.server import recorder
from tieline.server.clock import Clock
from tieline.server.clock_and_ids import SystemClockAndIds
from tieline.server.local_hub import LocalHub
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.database import IN_MEMORY

KEY = "the key of a home"
ADA = MemberName("ada")


class Gate(SqliteActivity):
    """Test double: a store of activity whose commits wait or fail when the test wants it."""

    def __init__(self) -> None:
        super().__init__(IN_MEMORY)
        self.open = threading.Event()
        self.open.set()
        self.fails = False
        self.failure = StoreError("disk full")
        self.retries = 0
        self.commits: list[int] = []
        self.closed = False

    def append(self, entries: Sequence[ActivityEntry]) -> None:
        self._pending = getattr(self, "_pending", 0) + len(entries)
        super().append(entries)

    def commit(self) -> None:
        assert self.open.wait(20)
        if self.fails:
            raise self.failure
        self.commits.append(getattr(self, "_pending", 0))
        self._pending = 0
        super().commit()

    def retry(self) -> None:
        self.retries += 1
        if self.fails:
            raise self.failure
        super().retry()

    def close(self) -> None:
        self.closed = True
        super().close()


class House:
    """Test helper: a local hub with one member."""

    def __init__(self, store: SqliteActivity, limits: Limits) -> None:
        broker = Broker(SqliteStore(IN_MEMORY), SystemClockAndIds(Clock(limits)), limits, home_key=token_digest(KEY))
        self.hub = LocalHub(broker, store)
        self.hub.start()
        self.ada = SessionId("")

    async def settle(self) -> None:
        operator = await self.attach(None)
        await self.hub.ask(c.AddMember(operator, name=ADA))
        self.ada = await self.attach(ADA)

    async def attach(self, name: MemberName | None) -> SessionId:
        reply = await self.hub.ask(c.Attach(protocol="hub", credential=ByHomeKey(KEY), member=name))
        assert isinstance(reply, Attached)
        return reply.session

    async def record(self, *events: dict[str, Any], size: int = 0) -> Reply:
        return await self.hub.ask(c.RecordActivity(self.ada, events=events, size=size))

    async def events(self) -> list[Any]:
        reply = await self.hub.ask(c.ReadActivity(self.ada, member=ADA, limit=1000))
        assert isinstance(reply, Activity)
        return [msgspec.json.decode(row.event) for row in reply.rows]

    async def send(self) -> Reply:
        content = Content(target=to_member(ADA), body="hello")
        return await self.hub.ask(c.Send(self.ada, content=content))


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def limits() -> Limits:
    return DEFAULT_LIMITS


@pytest.fixture
async def house(gate: Gate, limits: Limits) -> AsyncIterator[House]:
    house = House(gate, limits)
    await house.settle()
    yield house
    gate.open.set()
    await house.hub.stop()


async def test_an_upload_is_answered_after_it_is_durable(house: House, gate: Gate) -> None:
    gate.open.clear()
    waiting = asyncio.create_task(house.record({"n": 1}, {"n": 2}))
    await asyncio.wait((waiting,), timeout=0.05)
    assert not waiting.done()
    gate.open.set()
    assert await waiting == Recorded(2)
    assert await house.events() == [{"n": 2}, {"n": 1}]


async def test_messages_do_not_wait_for_activity(house: House, gate: Gate) -> None:
    gate.open.clear()
    waiting = asyncio.create_task(house.record({"n": 1}))
    async with asyncio.timeout(5):
        for _ in range(20):
            assert isinstance(await house.send(), Accepted)
    assert not waiting.done()
    gate.open.set()
    assert await waiting == Recorded(1)


async def test_what_was_asked_together_is_answered_together_and_in_order(house: House, gate: Gate) -> None:
    got: list[Sequence[Reply]] = []
    content = Content(target=to_member(ADA), body="hello")
    send, keep = c.Send(house.ada, content=content), c.RecordActivity(house.ada, events=({"n": 1},))
    gate.open.clear()
    house.hub.submit((send, keep, send, keep), got.append)
    house.hub.submit((send,), got.append)
    await until(lambda: len(got) == 1)
    assert len(got[0]) == 1
    gate.open.set()
    await until(lambda: len(got) == 2)
    assert [type(reply) for reply in got[1]] == [Accepted, Recorded, Accepted, Recorded]


async def test_what_nobody_waits_for_is_kept_too(house: House) -> None:
    house.hub.submit((c.RecordActivity(house.ada, events=({"n": 1},)),))
    assert await house.events() == [{"n": 1}]


async def test_one_commit_takes_whatever_queued_meanwhile(house: House, gate: Gate) -> None:
    gate.open.clear()
    uploads = [asyncio.create_task(house.record({"n": number})) for number in range(20)]
    await until(lambda: house.hub.recorder.waiting == 20)
    gate.open.set()
    assert await asyncio.gather(*uploads) == [Recorded(1)] * 20
    assert len(gate.commits) <= 3
    assert sum(gate.commits) == 20


@pytest.mark.parametrize("limits", [msgspec.structs.replace(DEFAULT_LIMITS, activity_waiting_max=3)])
async def test_past_so_many_uploads_the_next_is_refused(house: House, gate: Gate) -> None:
    gate.open.clear()
    uploads = [asyncio.create_task(house.record({"n": number})) for number in range(3)]
    await until(lambda: house.hub.recorder.waiting == 3)
    refused = await house.record({"n": 4})
    assert isinstance(refused, Refusal)
    assert refused.code is Code.ACTIVITY_FULL
    gate.open.set()
    assert await asyncio.gather(*uploads) == [Recorded(1)] * 3
    assert await house.record({"n": 5}) == Recorded(1)
    assert sorted(event["n"] for event in await house.events()) == [0, 1, 2, 5]


@pytest.mark.parametrize("limits", [msgspec.structs.replace(DEFAULT_LIMITS, activity_waiting_bytes_max=1000)])
async def test_past_so_many_bytes_the_next_is_refused_but_a_single_large_one_is_taken(house: House, gate: Gate) -> None:
    assert await house.record({"n": 0}, size=5000) == Recorded(1)
    gate.open.clear()
    first = asyncio.create_task(house.record({"n": 1}, size=600))
    await until(lambda: house.hub.recorder.waiting == 1)
    refused = await house.record({"n": 2}, size=600)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.ACTIVITY_FULL
    gate.open.set()
    assert await first == Recorded(1)
    assert await house.record({"n": 3}, size=600) == Recorded(1)


async def test_when_its_store_fails_uploads_are_refused_and_the_hub_goes_on(house: House, gate: Gate) -> None:
    gate.fails = True
    refused = await house.record({"n": 1})
    assert isinstance(refused, Refusal)
    assert refused.code is Code.STORE_FAILED
    assert isinstance(await house.send(), Accepted)
    gate.fails = False
    assert await house.record({"n": 2}) == Recorded(1)
    assert await house.events() == [{"n": 2}]
    assert not house.hub.failure.done()


@pytest.mark.slow
async def test_a_store_that_failed_is_tried_until_it_can_write_again(
    house: House, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tieline.server.recorder._RETRY_SECONDS", 0.001)
    gate.fails, gate.failure = True, DiskError("disk full")
    with capture_logs():
        assert isinstance(await house.record({"n": 1}), Refusal)
        await until(lambda: gate.retries > 1)
    assert house.hub.health.activity.reason == "disk full"
    gate.fails = False
    await until(lambda: not house.hub.health.activity.reason)
    assert gate.commits == [], "without a new upload"


async def test_what_was_submitted_is_kept_when_the_hub_stops(gate: Gate) -> None:
    house = House(gate, DEFAULT_LIMITS)
    await house.settle()
    got: list[Sequence[Reply]] = []
    gate.open.clear()
    for number in range(5):
        house.hub.submit((c.RecordActivity(house.ada, events=({"n": number},)),), got.append)
    stopping = asyncio.create_task(house.hub.stop())
    await asyncio.wait((stopping,), timeout=0.05)
    gate.open.set()
    await stopping
    assert got == [[Recorded(1)]] * 5
    assert gate.closed


async def test_the_activity_log_is_read_through_it(house: House) -> None:
    await house.record({"n": 1})
    operator = await house.attach(None)
    reply = await house.hub.ask(c.ReadLog(operator, log="activity", start=0))
    assert isinstance(reply, LogRows)
    assert [row.event for row in reply.rows] == [b'{"n":1}']


async def test_who_follows_a_member_hears_of_what_it_does_once_durable(house: House, gate: Gate) -> None:
    heard: list[ActivityRow] = []
    assert await house.hub.ask(c.FollowActivity(house.ada, member=ADA)) == Done()
    cut = house.hub.tail(house.ada, ADA, heard.extend)
    gate.open.clear()
    upload = asyncio.create_task(house.record({"n": 1}, {"n": 2}))
    await asyncio.wait((upload,), timeout=0.05)
    assert heard == []
    gate.open.set()
    await upload
    await until(lambda: len(heard) == 2)
    assert [(row.member, row.event) for row in heard] == [(ADA, b'{"n":1}'), (ADA, b'{"n":2}')]
    cut()
    await house.record({"n": 3})
    assert len(heard) == 2


async def test_following_ends_with_the_session(house: House) -> None:
    heard: list[ActivityRow] = []
    other = await house.attach(ADA)
    house.hub.tail(other, ADA, heard.extend)
    house.hub.tail(house.ada, ADA, heard.extend)
    house.hub.forget(other)
    await house.record({"n": 1})
    await until(lambda: len(heard) == 1)
    operator = await house.attach(None)
    await house.hub.ask(c.RemoveMember(operator, name=ADA))
    assert house.hub._tails == {}


async def test_a_follower_that_fails_keeps_nobody_from_hearing(house: House) -> None:
    heard: list[ActivityRow] = []

    def fail(_rows: Sequence[ActivityRow]) -> None:
        raise RuntimeError("full")

    house.hub.tail(house.ada, ADA, fail)
    house.hub.tail(house.ada, ADA, heard.extend)
    assert await house.record({"n": 1}) == Recorded(1)
    await until(lambda: len(heard) == 1)


async def test_activity_is_forgotten_after_its_time(folder: Path) -> None:
    house = House(SqliteActivity(folder), DEFAULT_LIMITS)
    await house.settle()
    for number in range(3):
        assert await house.record(*[{"n": number}] * 500) == Recorded(500)
    await house.hub.stop()
    forgetful = msgspec.structs.replace(DEFAULT_LIMITS, activity_retention_ms=-1)
    doubtful = House(SqliteActivity(folder), forgetful)
    await doubtful.settle()
    await doubtful.record({"n": "new"})
    reply = await doubtful.hub.ask(c.ReadLog(await doubtful.attach(None), log="activity", start=0, limit=10_000))
    assert isinstance(reply, LogRows)
    assert reply.rows[0].offset == 0, "a clock that may be wrong deletes nothing"
    await doubtful.hub.stop()
    again = House(SqliteActivity(folder), msgspec.structs.replace(forgetful, clock_patience_ms=0))
    operator = await again.attach(None)

    rows = 1501
    async with asyncio.timeout(20):
        while rows > 1:
            reply = await again.hub.ask(c.ReadLog(operator, log="activity", start=0, limit=10_000))
            assert isinstance(reply, LogRows)
            assert reply.end == 1501
            rows = len(reply.rows)
    await again.hub.stop()


async def test_activity_on_disk_is_there_after_a_restart(tmp_path: Path) -> None:
    house = House(SqliteActivity(tmp_path), DEFAULT_LIMITS)
    await house.settle()
    assert await house.record({"n": 1}) == Recorded(1)
    await house.hub.stop()
    store = SqliteActivity(tmp_path)
    assert store.restore() == 1
    assert store.read_log(0, 10, 1 << 20)[0][0].event == b'{"n":1}'
    store.close()


async def test_space_that_old_activity_took_is_given_back_while_nobody_uploads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteActivity(folder, synchronous="OFF")
    end = store.restore()
    store.append([ActivityEntry(end + n, 1, 1, "llm", 1, b'{"x":"' + b"x" * 60_000 + b'"}') for n in range(400)])
    store.commit()
    store.close()
    monkeypatch.setattr("tieline.server.recorder._IDLE_SECONDS", 0.001)
    store = SqliteActivity(folder, synchronous="OFF")
    full = store.readers.bytes_used()
    house = House(store, Limits(clock_patience_ms=0))
    await house.settle()
    path = folder / "activity.db"

    def shrunk() -> bool:
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            count, free = (connection.pragma(name) for name in ("page_count", "freelist_count"))
        assert isinstance(count, int)
        assert isinstance(free, int)
        return free <= 1024 and count * 4096 < full // 2

    await until(shrunk)
    assert await house.record({"n": 1}) == Recorded(1)
    await house.hub.stop()


async def test_people_are_told_of_a_reader_of_activity_that_is_late(folder: Path) -> None:
    limits = Limits(clock_patience_ms=0, activity_retention_ms=1000, reader_wait_ms=2 * 10**12)
    store = SqliteActivity(folder, synchronous="OFF")
    store.restore()
    store.append([ActivityEntry(n, 1, 1, "llm", 1, b"{}") for n in range(3)])
    store.readers.save(Reader(name="lake", log="activity", position=1, by="ada", at_ms=1))
    store.commit()
    with capture_logs() as told:
        house = House(store, limits)
        await until(lambda: any("the reader lake" in line["event"] for line in told))
    await house.settle()
    session = await house.attach(None)
    found = await house.hub.ask(c.ListReaders(session))
    assert isinstance(found, Readers)
    assert [(one.name, one.warned, one.missed) for one in found.readers] == [("lake", True, 0)]
    await house.hub.stop()


async def test_what_was_erased_leaves_the_files_while_nobody_uploads(
    house: House, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_RETRY_SECONDS", 0.01)
    gate._write_ahead_log.erases = True
    # The recorder waits for work at this moment. This is work that commits nothing.
    assert await house.events() == []
    await until(lambda: not gate.erasing)
