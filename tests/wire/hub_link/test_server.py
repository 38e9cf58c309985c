"""Tests of the hub's side of a link: bad workers get nothing and disturb nobody, and a slow one delays only itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import KEY, LINK_KEY, Ear, Office
from tests.wire.hub_link.workers import RawWorker, RawWorkers
from tieline.contract import command as c
from tieline.contract.hub import Interest
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.reply import Accepted, Attached, Done, Fetched, Roster
from tieline.contract.target import to_member
from tieline.wire.frames import encode_frame
from tieline.wire.hub_link import codec, connection, server
from tieline.wire.hub_link.greeting import LinkRefused, say_hello
from tieline.wire.hub_link.remote_hub import connect

BOB = MemberName("bob")
ATTACH_BOB = c.Attach(protocol="raw", credential=ByHomeKey(KEY), member=BOB)


@pytest.fixture
async def office(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    """Fixture: a hub that listens for workers, with the members alice and bob."""
    made = Office(folder, getattr(request, "param", Limits()))
    await made.open(remote=True)
    yield made
    await made.close()


@pytest.fixture
def path(office: Office) -> Path:
    """Fixture: the socket at which the hub listens for workers."""
    return office.folder / "link.sock"


@pytest.fixture
async def workers(path: Path) -> AsyncIterator[RawWorkers]:
    """Fixture: workers that speak to the hub in raw frames."""
    made = RawWorkers(path)
    yield made
    await made.close()


async def attach_bob(worker: RawWorker) -> Attached:
    (attached,) = await worker.ask(ATTACH_BOB)
    assert isinstance(attached, Attached)
    return attached


async def protocols_of_bob(office: Office) -> list[str]:
    """Return the protocols of bob's open sessions."""
    roster = await office.hub.ask(c.ListMembers(office.alice, name=BOB))
    assert isinstance(roster, Roster)
    return sorted(roster.members[0].sessions)


# The greeting


async def test_a_worker_without_the_key_is_refused_with_a_sentence(path: Path) -> None:
    with capture_logs() as logs, pytest.raises(LinkRefused, match="the key of this worker is not the key of the hub"):
        await connect(path, "another key")
    assert [entry["event"] for entry in logs] == ["a worker was refused"]


async def test_a_worker_that_gives_commands_before_its_greeting_is_refused(workers: RawWorkers) -> None:
    worker = await workers.dial()
    worker.put(codec.Submit(1, [codec.pack(ATTACH_BOB)]))
    assert msgspec.json.decode(await worker.frame())["type"] == "refused"
    await worker.ended()


@pytest.mark.parametrize("office", [Limits(hello_ms=50)], indirect=True)
@pytest.mark.parametrize(
    "said",
    [b"", b"\0", encode_frame(say_hello(LINK_KEY))[:-1]],
    ids=["nothing", "part of a length", "part of a frame"],
)
async def test_a_worker_that_does_not_finish_its_greeting_is_disconnected(workers: RawWorkers, said: bytes) -> None:
    worker = await workers.dial()
    worker.write(said)
    await worker.ended()


async def test_a_greeting_that_is_too_large_is_refused_before_its_bytes_come(workers: RawWorkers) -> None:
    worker = await workers.dial()
    worker.write((1024 * 1024).to_bytes(4, "big"))
    await worker.ended()


async def test_the_socket_is_for_the_user_of_the_hub_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600


# Items


@pytest.mark.parametrize(
    "data",
    [
        (connection.FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\0\0\0\0",
        encode_frame(b"\xc1"),
        encode_frame(codec.encode(0, [codec.Submit(1, [codec.pack(Done())])])),
        encode_frame(codec.encode(0, [codec.Replies(1, [])])),
        encode_frame(codec.encode(99, [])),
        encode_frame(say_hello(LINK_KEY)),
    ],
    ids=["too large", "empty", "no items", "no command", "an item of the hub", "a bad number", "a second greeting"],
)
async def test_a_worker_that_breaks_the_rules_loses_its_link_and_its_sessions_and_no_other_does(
    office: Office, workers: RawWorkers, data: bytes
) -> None:
    worker = await workers.open()
    await attach_bob(worker)
    assert await protocols_of_bob(office) == ["raw", "test"]
    with capture_logs() as logs:
        worker.write(data)
        await worker.ended()
    assert [entry["event"] for entry in logs] == ["a link between the hub and a worker is broken"]
    await office.accepted()
    assert await protocols_of_bob(office) == ["test"]


async def test_of_a_worker_that_ends_in_the_middle_of_a_frame_only_whole_frames_count(
    office: Office, workers: RawWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.05)
    worker = await workers.open()
    session = (await attach_bob(worker)).session
    ear = Ear()
    office.hub.listen(office.alice, ear, MemberName("alice"))
    await office.hub.ask(c.Fetch(office.alice))
    frames = [
        encode_frame(codec.encode(0, [codec.Submit(0, [codec.pack(c.Send(session, content=content("@alice", body)))])]))
        for body in ("whole", "cut off")
    ]
    worker.write(frames[0] + frames[1][:-1])
    await worker.close()
    await until(lambda: ear.keys == [1])
    while await protocols_of_bob(office) != ["test"]:
        pass
    page = await office.hub.ask(c.Fetch(office.alice))
    assert isinstance(page, Fetched)
    assert [item.message.content.body for item in page.deliveries] == ["whole"]


async def test_a_session_that_opens_after_its_worker_is_gone_ends(
    office: Office, workers: RawWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE_SECONDS", 0)
    worker = await workers.open()
    await office.hold(office.send())
    worker.put(codec.Submit(1, [codec.pack(ATTACH_BOB)]))
    await worker.close()
    office.store.gate.set()
    await office.accepted()
    while await protocols_of_bob(office) != ["test"]:
        pass


async def test_a_session_that_ended_without_a_listener_is_told_and_forgotten(
    office: Office, workers: RawWorkers
) -> None:
    worker = await workers.open()
    session = (await attach_bob(worker)).session
    await office.hub.ask(c.RemoveMember(office.operator, name=BOB))
    item = await worker.item()
    assert isinstance(item, codec.Ended)
    assert item.session == session


# A slow worker


async def test_a_slow_worker_delays_nobody_else_and_is_then_told_what_it_may_fetch(
    office: Office, workers: RawWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNSENT_BYTES_MAX", 100_000)
    slow = await workers.open()
    session = (await attach_bob(slow)).session
    slow.listen(session, "bob")
    await slow.ask(c.Fetch(session))
    ear = office.listen()
    count = 100
    for number in range(count):
        await office.accepted(f"{number} " + "x" * 20_000)
    await until(lambda: ear.keys == [*range(1, count + 1)])
    # The worker reads on.
    offered: list[int] = []
    released: list[int] = []
    while len(offered) + len(released) < count:
        match await slow.item():
            case codec.Offers(_, to):
                assert not released, "in the order of the keys"
                offered += [key for _, key, _ in to]
            case codec.Released(_, keys):
                released += keys
            case _:
                pass
    assert [*offered, *released] == [*range(1, count + 1)]
    assert offered
    assert released
    (page,) = await slow.ask(c.Fetch(session, keys=tuple(released)))
    assert isinstance(page, Fetched)
    assert len(page.deliveries) == len(released)


async def test_the_hub_takes_nothing_more_from_a_worker_that_does_not_read(
    office: Office, workers: RawWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNSENT_BYTES_MAX", 100_000)
    monkeypatch.setattr(server, "_UNANSWERED_MAX", 2)
    await office.accepted("x" * 300_000)
    slow = await workers.open()
    session = (await attach_bob(slow)).session
    before = office.local.counters.accepted
    fetch, send = codec.pack(c.Fetch(session)), codec.pack(c.Send(session, content=content("@alice")))
    count = 20
    for number in range(count):
        slow.put(codec.Submit(number + 2, [fetch]))
    slow.put(codec.Submit(0, [send]))
    for _ in range(count):
        await office.accepted()
    assert office.local.counters.accepted == before + count
    answered = 0
    while answered < count:
        answered += isinstance(await slow.item(), codec.Replies)
    while office.local.counters.accepted == before + count:
        await office.hub.ask(c.Fetch(office.alice))


async def test_a_worker_that_does_not_read_loses_its_link_when_too_many_notices_wait(
    office: Office, workers: RawWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNSENT_BYTES_MAX", 100_000)
    monkeypatch.setattr(server, "_BEHIND_BYTES_MAX", 1_000_000)
    slow = await workers.open()
    await attach_bob(slow)
    slow.put(codec.Watch(1, Interest(targets=(to_member(BOB),))))
    await slow.ask(c.Tick())
    with capture_logs() as logs:
        async with asyncio.timeout(10):
            while await protocols_of_bob(office) != ["test"]:
                await office.accepted("x" * 20_000)
    assert [entry["reason"] for entry in logs] == ["a worker does not read, and too much waits for it"]
    with contextlib.suppress(ConnectionResetError):
        await slow.ended()


async def test_a_worker_has_a_limit_of_commands_that_wait_for_their_replies(
    office: Office, workers: RawWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_UNANSWERED_MAX", 10)
    worker = await workers.open()
    session = (await attach_bob(worker)).session
    send = codec.pack(c.Send(session, content=content("@alice")))
    held = await office.hold(office.send())
    batches = office.local.counters.batches
    count = 100
    for number in range(count):
        worker.put(codec.Submit(number + 2, [send]))
    office.store.gate.set()
    for number in range(count):
        item = await worker.item()
        assert isinstance(item, codec.Replies)
        assert item.number == number + 2
    assert isinstance(held[0], Accepted)
    assert office.local.counters.batches >= batches + count / 10
