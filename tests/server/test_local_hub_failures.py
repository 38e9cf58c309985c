"""Tests of a local hub whose store fails: what waited for it is refused, and sessions stay until it is lost."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import ALONE, running_hub, until
from tests.server.offices import KEY, Ear, Office
from tests.server.stores import StubbornStore
from tests.stores.postgres_server import on_postgres
from tieline.client import HubRefused
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Done, Fetched, History, Reply, Roster
from tieline.core.store import DamagedError, DiskError, StoreError
from tieline.stores.postgres.activity import PostgresActivity
from tieline.stores.sqlite import SqliteActivity


async def test_what_a_failed_commit_held_is_refused_and_nothing_of_it_is_kept(office: Office) -> None:
    ear = office.listen()
    rows = office.rows()
    office.store.failures = 1
    with capture_logs() as logs:
        reply = await office.hub.ask(office.send("lost"))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.STORE_FAILED
    assert "no space left" in reply.message
    assert ear.keys == []
    assert office.rows() == rows
    assert any(entry["log_level"] == "error" for entry in logs)


async def test_sessions_stay_when_a_commit_fails_and_go_on_with_what_they_had(office: Office) -> None:
    await office.accepted("kept")
    ear, other = office.listen(), Ear()
    office.hub.listen(office.alice, other)
    office.store.failures = 1
    with capture_logs():
        assert isinstance(await office.hub.ask(office.send("lost")), Refusal)
    await office.accepted("again")
    assert ear.keys == [2], "the key of what was lost is given again"
    assert (ear.ended, other.ended) == ([], [])
    page = await office.hub.ask(c.Fetch(office.bob))
    assert isinstance(page, Fetched)
    assert [item.message.content.body for item in page.deliveries] == ["kept", "again"]


async def test_a_failed_commit_refuses_what_waited_for_it_and_nothing_else(office: Office) -> None:
    await office.accepted("kept")
    replies: list[Reply] = []
    office.store.failures = 1
    attach = c.Attach(protocol="test", credential=ByHomeKey(KEY), member=MemberName("bob"))
    commands = (office.send("lost"), c.ListMembers(office.bob), c.Advance(office.bob, ranges=((1, 1),)), attach)
    with capture_logs():
        office.hub.submit(commands, replies.extend)
        await until(lambda: len(replies) == 4)
    assert isinstance(replies[0], Refusal)
    assert [type(reply) for reply in replies[1:]] == [Roster, Done, Attached]
    assert isinstance(replies[3], Attached)
    page = await office.hub.ask(c.Fetch(replies[3].session))
    assert isinstance(page, Fetched)
    assert page.deliveries == (), "what was acknowledged with it stays acknowledged"


async def test_everything_that_shared_the_failed_commit_is_refused_and_what_came_after_is_decided(
    office: Office,
) -> None:
    first = await office.hold(office.send("first"))
    rest: list[Reply] = []
    for number in range(20):
        office.hub.submit((office.send(str(number)),), rest.extend)
    office.store.failures = 1
    with capture_logs():
        office.store.gate.set()
        await until(lambda: len(rest) == 20 and len(first) == 1)
    assert isinstance(first[0], Refusal)
    assert first[0].code is Code.STORE_FAILED
    assert all(isinstance(reply, Accepted) for reply in rest)
    page = await office.hub.ask(c.Fetch(office.bob))
    assert isinstance(page, Fetched)
    assert [item.key for item in page.deliveries] == list(range(1, 21))


@pytest.mark.parametrize("office", [Limits(lazy_commit_ms=10)], indirect=True)
async def test_a_lazy_commit_that_fails_is_tried_again_and_the_acknowledgement_stays(office: Office) -> None:
    await office.accepted()
    ear, rows = office.listen(), office.rows()
    office.store.failures = 2
    with capture_logs():
        await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),)))
        await until(lambda: office.rows() == rows + 1)
    assert ear.ended == []
    page = await office.hub.ask(c.Fetch(office.bob))
    assert isinstance(page, Fetched)
    assert page.deliveries == ()


async def test_a_command_that_raises_is_refused_alone_and_the_rest_of_its_batch_is_decided(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = office.listen()
    accept = office.store.accept

    def raise_for_poison(row: object, message: Message, *rest: object) -> None:
        accept(row, message, *rest)  # type: ignore[arg-type]
        if message.content.body == "poison":
            raise RuntimeError("a bug in a rule")

    monkeypatch.setattr(office.store, "accept", raise_for_poison)
    first = await office.hold(office.send("first"))
    replies: dict[str, list[Reply]] = {}
    bodies = ["one", "poison", "two", "poison", "three"]
    for place, body in enumerate(bodies):
        got = replies[f"{place} {body}"] = []
        office.hub.submit((office.send(body), c.Advance(office.bob, ranges=((1, 1),))), got.extend)
    with capture_logs() as logs:
        office.store.gate.set()
        await until(lambda: all(len(got) == 2 for got in replies.values()) and len(first) == 1)
    for name, got in replies.items():
        if name.endswith("poison"):
            assert isinstance(got[0], Refusal)
            assert got[0].code is Code.INTERNAL_ERROR
        else:
            assert isinstance(got[0], Accepted)
        assert isinstance(got[1], Done)
    assert ear.keys == [1, 2, 3, 4]
    assert ear.ended == []
    assert office.local.health.faults == 2
    lines = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(lines) == 1, "faults of one kind are one line"


async def test_a_row_that_the_database_refuses_is_the_fault_of_its_own_command(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, clock_and_ids = 0, office.local._broker.clock_and_ids

    def same_id_twice(now_ms: int) -> MessageId:
        nonlocal made
        made += 1
        return MessageId(f"{now_ms}-{'twice' if made in (2, 3) else made}")

    monkeypatch.setattr(clock_and_ids, "message_id", same_id_twice)
    first = await office.hold(office.send("first"))
    replies: list[Reply] = []
    for body in ("one", "two", "three"):
        office.hub.submit((office.send(body),), replies.extend)
    with capture_logs():
        office.store.gate.set()
        await until(lambda: len(replies) == 3 and len(first) == 1)
    # Decided again, each has an id of its own.
    assert all(isinstance(reply, Accepted) for reply in replies)


async def test_a_log_position_beyond_64_bits_ends_nobodys_session(office: Office) -> None:
    ear = office.listen()
    reply = await office.hub.ask(c.ReadHistory(office.alice, after=2**63 - 1, forward=True))
    assert reply == History(())
    await office.accepted()
    assert ear.keys == [1]
    assert ear.ended == []


async def test_after_a_failed_attempt_all_others_of_its_number_fail_until_the_next(office: Office) -> None:
    def said(body: str, attempt: int) -> c.Send:
        return c.Send(office.alice, content=content("@bob", body), attempt=attempt)

    ear = office.listen()
    office.store.failures = 1
    with capture_logs():
        for attempt, answer in ((0, Refusal), (0, Refusal), (1, Accepted), (0, Accepted)):
            assert isinstance(await office.hub.ask(said("one", attempt)), answer)
        office.store.failures = 1
        assert isinstance(await office.hub.ask(said("two", 0)), Refusal)
        # Nobody else is concerned, nor what a wire says that has refusals.
        assert isinstance(await office.hub.ask(c.Send(office.bob, content=content("@bob"), attempt=0)), Accepted)
        assert isinstance(await office.hub.ask(office.send()), Accepted)
        assert office.local._failed == {office.alice: 0}
        await office.hub.ask(c.Detach(office.alice))
        assert office.local._failed == {}
    assert ear.keys == [1, 2, 3, 4]


@pytest.mark.slow
async def test_a_store_that_fails_again_and_again_is_left_alone_for_a_while_and_reads_go_on(office: Office) -> None:
    office.store.failures = 3
    with capture_logs() as logs:
        for _ in range(3):
            assert isinstance(await office.hub.ask(office.send()), Refusal)
        tried = office.store.tried
        for _ in range(50):
            reply = await office.hub.ask(office.send())
            if isinstance(reply, Accepted):
                break
            assert isinstance(await office.hub.ask(c.ListMembers(office.alice)), Roster)
        assert office.store.tried <= tried + 2
        await until(lambda: not office.local.health.store.rest_seconds)
        await office.accepted()
        await until(lambda: not office.local.health.problems)
    assert [entry["event"] for entry in logs] == [
        "writing fails; what cannot be kept is refused",
        "writing works again",
    ]
    assert office.local.health.store.failures == 3


async def test_a_disk_that_fails_under_a_command_is_told_as_a_problem(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DiskError("held by another process", "end it")

    with capture_logs(), monkeypatch.context() as patch:
        patch.setattr(office.store, "find_message", fail)
        assert isinstance(await office.hub.ask(c.ReadReceipts(office.alice, message_id=MessageId("x"))), Refusal)
        (problem,) = office.local.health.problems
        assert (problem.reason, problem.do) == ("held by another process", "end it")


@pytest.mark.parametrize("error", [StoreError("SQL logic error"), DamagedError("the file is damaged")])
async def test_a_store_that_cannot_be_tried_again_is_reported_and_the_hub_goes_on(
    office: Office, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(office.store, "retry", fail)
    office.store.failures = 1
    with capture_logs():
        assert isinstance(await office.hub.ask(office.send()), Refusal)
        await until(lambda: office.local.health.store.reason == str(error) or office.local.failure.done())
        assert not office.local.failure.done()
        assert str(error) in [problem.reason for problem in office.local.health.problems]
        assert isinstance(await office.hub.ask(c.ListMembers(office.alice)), Roster)


async def test_a_store_that_is_lost_for_good_is_reported_and_everybody_is_refused(office: Office) -> None:
    office.store.failures = 1
    office.store.restore_fails = True
    with capture_logs():
        refused = await office.hub.ask(office.send())
        assert isinstance(refused, Refusal)
        assert refused.code is Code.STORE_FAILED
        async with asyncio.timeout(10):
            lost = await office.local.failure
        assert "the disk is gone" in str(lost)
        later = await office.hub.ask(c.ListMembers(office.alice))
        assert isinstance(later, Refusal)
        assert later.code is Code.SHUTTING_DOWN


async def test_a_hub_that_lost_its_store_writes_nothing_more_when_it_stops(folder: Path) -> None:
    office = Office(folder, Limits())
    await office.open()
    await office.accepted()
    before = office.rows()
    office.store.failures = 1
    office.store.restore_fails = True
    with capture_logs():
        assert isinstance(await office.hub.ask(office.send("never accepted")), Refusal)
        async with asyncio.timeout(10):
            await office.local.failure
        await office.local.stop()
    assert office.rows() == before
    again = StubbornStore(folder)
    try:
        foundation = again.restore()
        assert foundation.snapshot_end <= foundation.log_end == before
        assert not foundation.images, "no snapshot of what was never committed"
    finally:
        again.close()


async def test_a_redaction_that_cannot_erase_activity_is_refused_and_can_be_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DiskError("the disk is full")

    async with running_hub(folder, **ALONE) as there:
        await there.add("alice", "bob")
        alice, operator = await there.join("alice"), await there.operator()
        await alice.record_activity({"kind": "tool", "said": "I send a leaked password"})
        sent = await alice.send("@bob", "a leaked password")
        with monkeypatch.context() as patched:
            patched.setattr(PostgresActivity if on_postgres() else SqliteActivity, "erase", fail)
            with pytest.raises(HubRefused, match="the disk is full"):
                await operator.redact(sent.id, "a password")
        assert [message.body for message in await alice.history()] == ["a leaked password"]
        await operator.redact(sent.id, "a password")
        assert [message.body for message in await alice.history()] == ["redacted by operator: a password"]
        (row,) = await alice.activity("alice")
        assert "leaked" not in str(row.event)
