"""Tests of a link that loses its connection: its clients wait, and each command is answered exactly once."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import KEY, LINK_KEY, TO_BOB, Eye, Office
from tests.wire.hub_link.cable import CutCable
from tests.wire.hub_link.workers import RawWorkers
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Fetched, Reply, Roster
from tieline.wire.frames import encode_frame
from tieline.wire.hub_link import codec, remote_hub, server
from tieline.wire.hub_link.greeting import LinkRefused, read_answer, say_hello
from tieline.wire.hub_link.remote_hub import RemoteHub, connect
from tieline.wire.hub_link.server import LinkServer

BOB = MemberName("bob")


@pytest.fixture
async def cable(folder: Path) -> AsyncIterator[CutCable]:
    """Fixture: a cable before the hub, which the test can cut."""
    made = CutCable(folder / "cable.sock", folder / "link.sock")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def office(folder: Path, cable: CutCable) -> AsyncIterator[Office]:
    """Fixture: a hub with the members alice and bob, which the test uses over a cable."""
    made = Office(folder, Limits())
    await made.open(remote=True, link=cable.path)
    yield made
    await made.close()


def link_of(office: Office) -> RemoteHub:
    assert isinstance(office.hub, RemoteHub)
    return office.hub


async def sessions_of(office: Office, member: str) -> int:
    """Return the number of open sessions of a member, as the local hub knows it."""
    attached = await office.local.ask(c.Attach(protocol="test", credential=ByHomeKey(KEY), member=None))
    assert isinstance(attached, Attached)
    roster = await office.local.ask(c.ListMembers(attached.session, name=MemberName(member)))
    office.local.submit((c.Detach(attached.session),))
    assert isinstance(roster, Roster)
    return len(roster.members[0].sessions)


async def test_commands_before_and_after_a_cut_are_answered_once_and_sessions_stay(
    office: Office, cable: CutCable
) -> None:
    ear, eye = office.listen(), Eye()
    office.hub.watch(TO_BOB, eye)
    early = await office.hold(office.send("early"))
    with capture_logs() as logs:
        await cable.cut()
        office.store.gate.set()
        late: list[Reply] = []
        office.hub.submit((office.send("late"),), late.extend)
        await until(lambda: bool(early) and bool(late))
    assert [entry["event"] for entry in logs] == ["the connection to the hub is lost; its clients wait"]
    assert [type(reply) for reply in (*early, *late)] == [Accepted] * 2
    await until(lambda: len(eye.messages) == 2)
    assert eye.messages == ["early", "late"]
    assert sorted([*ear.keys, *ear.free]) == [1, 2]
    assert ear.ended == []
    assert cable.count == 2


async def test_while_a_worker_is_away_its_offers_wait_and_are_released_when_it_is_back(
    office: Office, cable: CutCable
) -> None:
    other = await connect(office.folder / "link.sock", LINK_KEY)
    ear, eye = office.listen(), Eye()
    office.hub.watch(TO_BOB, eye)
    await office.accepted("before")
    cable.broken = True
    with capture_logs():
        await cable.cut()
        attached = await other.ask(c.Attach(protocol="test", credential=ByHomeKey(KEY), member=MemberName("alice")))
        assert isinstance(attached, Attached)
        for number in range(5):
            sent = await other.ask(c.Send(attached.session, content=content("@bob", f"away {number}")))
            assert isinstance(sent, Accepted)
        cable.broken = False
        await until(lambda: len(ear.keys) + len(ear.free) == 6)
    await office.accepted("after")
    assert ear.keys[0] == 1
    assert [*ear.keys[:-1], *ear.free, ear.keys[-1]] == [1, 2, 3, 4, 5, 6, 7]
    assert eye.messages == ["before", *[f"away {number}" for number in range(5)], "after"]
    page = await office.hub.ask(c.Fetch(office.bob, keys=tuple(ear.free)))
    assert isinstance(page, Fetched)
    assert len(page.deliveries) == len(ear.free)
    other.close()


@pytest.mark.parametrize("seed", range(3))
async def test_under_load_nothing_is_lost_or_done_twice_however_often_the_cable_is_cut(
    office: Office, cable: CutCable, seed: int
) -> None:
    chance = random.Random(seed)
    ear, eye = office.listen(), Eye()
    office.hub.watch(TO_BOB, eye)
    count = 400
    replies: list[Reply] = []
    order: list[int] = []

    def take(number: int, answered: Sequence[Reply]) -> None:
        order.append(number)
        replies.extend(answered)

    with capture_logs():
        for number in range(count):
            office.hub.submit((office.send(str(number)),), partial(take, number))
            if number % 40 == 20:
                connections = cable.count
                await cable.cut()
                await until(lambda connections=connections: cable.count > connections)  # type: ignore[misc]
                if chance.random() < 0.5:
                    # The worker may be in the middle of its greeting.
                    await cable.cut()
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        await until(lambda: len(replies) == count and len(eye.messages) == count)
    assert order == [*range(count)]
    assert [type(reply) for reply in replies] == [Accepted] * count
    assert office.local.counters.accepted == count
    assert eye.messages == [str(number) for number in range(count)]
    await until(lambda: len(ear.keys) + len(ear.free) == count)
    assert sorted([*ear.keys, *ear.free]) == [*range(1, count + 1)]
    assert cable.count > 10


async def test_a_worker_that_stays_away_loses_its_sessions_and_is_not_taken_back(
    office: Office, cable: CutCable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.05)
    ear = office.listen()
    cable.broken = True
    with capture_logs() as logs:
        await cable.cut()
        asked = asyncio.create_task(office.hub.ask(office.send()))
        while await sessions_of(office, "bob"):
            pass
        assert office.links.links == {}
        cable.broken = False
        reply = await asked
    assert isinstance(reply, Refusal)
    assert reply.code is Code.SHUTTING_DOWN
    assert [why.code for why in ear.ended] == [Code.SHUTTING_DOWN]
    assert (
        logs[-2]["reason"]
        == logs[-1]["reason"]
        == "the hub does not know this link any more, and its sessions have ended"
    )


async def test_a_hub_that_does_not_come_back_ends_all_sessions(
    office: Office, cable: CutCable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hub, "HOLD_SECONDS", 0.1)
    ear = office.listen()
    cable.broken = True
    with capture_logs() as logs:
        await cable.cut()
        reply = await office.hub.ask(office.send())
    assert isinstance(reply, Refusal)
    assert reply.code is Code.SHUTTING_DOWN
    assert len(ear.ended) == 1
    assert link_of(office).lost.done()
    assert logs[-1]["event"] == "the hub did not come back"


async def test_a_hub_that_was_started_anew_does_not_know_the_link(office: Office, cable: CutCable) -> None:
    ear = office.listen()
    # The socket is there again, and nobody remembers anything.
    anew = LinkServer(office.local, LINK_KEY)
    (office.folder / "link.sock").unlink()
    await anew.listen(office.folder / "link.sock")
    with capture_logs():
        await cable.cut()
        await until(lambda: bool(ear.ended))
    assert ear.ended[0].code is Code.SHUTTING_DOWN
    await anew.close()


async def test_closing_ends_the_sessions_without_a_grace(office: Office) -> None:
    assert await sessions_of(office, "bob") == 1
    link_of(office).close()
    async with asyncio.timeout(5):
        while await sessions_of(office, "bob"):
            pass


async def test_a_worker_takes_its_link_over_from_a_connection_that_hangs(office: Office) -> None:
    workers = RawWorkers(office.folder / "link.sock")
    hanging = await workers.open()
    attach = c.Attach(protocol="raw", credential=ByHomeKey(KEY), member=BOB)
    (attached,) = await hanging.ask(attach)
    assert isinstance(attached, Attached)
    again = await workers.dial()
    again.write(encode_frame(say_hello(LINK_KEY, hanging.link, 0)))
    welcome = read_answer(await again.frame())
    assert (welcome.link, welcome.received) == (hanging.link, 1)
    assert await again.item() == codec.Replies(1, [codec.pack(attached)]), "the worker said that it did not have it"
    await hanging.ended()
    assert await sessions_of(office, "bob") == 2
    await workers.close()


async def test_a_worker_that_claims_frames_that_were_never_sent_is_refused(office: Office) -> None:
    workers = RawWorkers(office.folder / "link.sock")
    worker = await workers.dial()
    worker.write(encode_frame(say_hello(LINK_KEY, "", 7)))
    with capture_logs():
        await worker.ended()
    assert len(office.links.links) == 1
    stranger = await workers.dial()
    stranger.write(encode_frame(say_hello(LINK_KEY, "a guess", 0)))
    with capture_logs(), pytest.raises(LinkRefused, match="does not know this link"):
        read_answer(await stranger.frame())
    await workers.close()
