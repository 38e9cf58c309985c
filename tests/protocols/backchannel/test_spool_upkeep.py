"""Tests of a spool's upkeep: files of other programs, waiting for messages, leftovers, and the caller's identity."""

import asyncio
import json
import os
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from tests.protocols.backchannel.spools import draft, files, register_as_bch, send, write_as_bch
from tests.server.hubs import until
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.arrivals import Arrivals
from tieline.protocols.backchannel.codec import SpoolMessage
from tieline.protocols.backchannel.identity import BadConfig, Identity, read_identity, save_identity
from tieline.protocols.backchannel.spool import Spool, SpoolBroken
from tieline.protocols.backchannel.upkeep import SpoolFault, check, repair

# Files of other programs.


def test_files_that_a_real_bch_wrote_are_read(spool: Spool) -> None:
    register_as_bch(spool.root, "bob", tokenHash="ab" * 32)
    register_as_bch(spool.root, "carol", subscriptions=["#dev"])
    message_id = write_as_bch(spool.root, "bob", "hi", scope="acme/api", thread="t", refs=["r"])
    (message,) = spool.inbox("bob")
    assert (message.id, message.sender, message.scope, message.thread, message.refs) == (
        message_id,
        "alice",
        "acme/api",
        "t",
        ("r",),
    )
    assert [record.name for record in spool.agents()] == ["bob", "carol"]
    assert spool.send(draft("bob", "#dev")).recipients == ("carol",)
    assert spool.take("bob", message_id, keep=True) == message
    assert json.loads((spool.root / "agents" / "bob.json").read_text())["tokenHash"] == "ab" * 32


def test_what_is_no_message_is_passed_over_and_reported(spool: Spool) -> None:
    spool.register("bob")
    new = spool.folder("bob") / "new"
    (good,) = send(spool, "good")
    bad = [str(uuid.uuid4()) for _ in range(5)]
    (new / f"{bad[0]}.json").write_text("garbage")
    (new / f"{bad[1]}.json").write_text((new / f"{good}.json").read_text())
    (new / f"{bad[2]}.json").symlink_to("/etc/passwd")
    os.mkfifo(new / f"{bad[3]}.json")
    (new / f"{bad[4]}.json").mkdir()
    (new / "notes.txt").write_text("hello")
    (new / "..json").write_text("{}")
    assert [message.id for message in spool.inbox("bob")] == [good]
    assert [spool.take("bob", message_id) for message_id in bad] == [None] * 5
    assert (new / f"{bad[0]}.json").exists(), "what cannot be read is not claimed either"
    found = Counter(finding.fault for finding in check(spool).findings)
    assert found == {SpoolFault.UNREADABLE_MESSAGE: 5, SpoolFault.STRANGE_NAME: 2}


@pytest.mark.slow
def test_a_malformed_record_is_a_clear_error(spool: Spool) -> None:
    spool.register("bob")
    path = spool.root / "agents" / "bob.json"
    path.write_text("{")
    for work in (
        spool.agents,
        lambda: spool.send(draft()),
        lambda: spool.subscribe("bob", "#x"),
    ):
        with pytest.raises(SpoolBroken, match=r"bob\.json cannot be used"):
            work()
    assert [finding.fault for finding in check(spool).findings] == [SpoolFault.UNREADABLE_RECORD]


def test_a_record_that_is_just_being_written_is_waited_for(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    record = spool.register("bob")
    path = spool.root / "agents" / "bob.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    # Its writer comes to an end while the reader waits.
    monkeypatch.setattr(time, "sleep", lambda _: path.write_bytes(whole))
    assert spool.record("bob") == record


def test_a_folder_that_is_not_there_is_empty_and_stays_so(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "nothing")
    assert (spool.agents(), spool.channels(), spool.inbox("bob"), spool.waiting("bob")) == ([], [], [], [])
    assert check(spool).findings == ()
    assert not spool.root.exists()


def test_a_write_that_fails_leaves_nothing_behind(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bob", "carol"):
        spool.register(name)
        spool.subscribe(name, "#dev")
    create = disk.create

    def full(path: Path, content: bytes) -> int:
        if "carol" in path.parts:
            raise OSError(28, "No space left on device")
        return create(path, content)

    monkeypatch.setattr(disk, "create", full)
    with pytest.raises(OSError, match="No space left"):
        spool.send(draft(to="#dev"))
    assert [files(spool, name, box) for name in ("bob", "carol") for box in ("tmp", "new")] == [[], [], [], []]


# Watching.


async def collect(arrivals: Arrivals, number: int) -> list[SpoolMessage]:
    found: list[SpoolMessage] = []
    async with asyncio.timeout(20):
        async for message in arrivals:
            found.append(message)
            if len(found) == number:
                break
    return found


async def test_what_waits_comes_first_and_then_what_arrives(spool: Spool) -> None:
    spool.register("bob")
    send(spool, "one", "two")
    arrivals = aiter(Arrivals(spool, "bob", rescan_seconds=60))
    async with asyncio.timeout(20):
        assert [(await anext(arrivals)).body for _ in range(2)] == ["one", "two"]
        coming = asyncio.ensure_future(anext(arrivals))
        # That nothing comes can only be seen when its time is over.
        await asyncio.sleep(0.2)
        assert not coming.done()
        send(spool, "three")
        assert (await coming).body == "three"
    await arrivals.aclose()  # type: ignore[attr-defined]


async def test_a_look_from_time_to_time_finds_what_no_notification_told(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(_: Arrivals) -> None:
        await asyncio.Event().wait()

    looks = 0
    look = Arrivals._look

    def counted(arrivals: Arrivals) -> list[SpoolMessage]:
        nonlocal looks
        looks += 1
        return look(arrivals)

    monkeypatch.setattr(Arrivals, "_notify", none)
    monkeypatch.setattr(Arrivals, "_look", counted)
    spool.register("bob")
    arrivals = Arrivals(spool, "bob", rescan_seconds=0.05)
    coming = asyncio.ensure_future(collect(arrivals, 1))
    await until(lambda: looks > 0)
    send(spool, "found")
    assert [message.body for message in await coming] == ["found"]


async def test_a_message_that_was_given_back_arrives_again(spool: Spool) -> None:
    spool.register("bob")
    (message_id,) = send(spool, "again")
    arrivals = Arrivals(spool, "bob", rescan_seconds=0.05)
    bodies = []
    async with asyncio.timeout(20):
        async for message in arrivals:
            bodies.append(message.body)
            if len(bodies) == 3:
                break
            with spool.claims("bob") as claims:
                assert claims.claim(message_id) is not None
            arrivals.again(message_id, 0.1)
    assert bodies == ["again"] * 3


# Left-overs.


def test_files_of_killed_writers_are_removed_and_those_of_live_ones_are_not(spool: Spool) -> None:
    spool.register("bob")
    tmp = spool.folder("bob") / "tmp"
    for name in ("old", "young"):
        (tmp / f"{name}.json").write_text("{}")
    os.utime(tmp / "old.json", (0, 0))
    report = check(spool)
    assert [(finding.fault, Path(finding.path).name) for finding in report.findings] == [
        (SpoolFault.UNFINISHED_WRITE, "old.json")
    ]
    assert repair(spool, report) == list(report.findings)
    assert files(spool, "bob", "tmp") == ["young.json"]


def test_claims_of_killed_readers_are_given_back_and_kept_messages_are_left(spool: Spool) -> None:
    spool.register("bob")
    one, two = send(spool, "one", "two")
    spool.take("bob", two, keep=True)
    reader = spool.claims("bob")
    assert reader.claim(one) is not None
    assert check(spool).findings == (), "the reader is at work"
    assert reader._lock is not None
    os.close(reader._lock)
    report = check(spool)
    assert (report.agents, report.unread, report.kept) == (1, 0, 1)
    assert [finding.fault for finding in report.findings] == [SpoolFault.UNFINISHED_CLAIM]
    assert repair(spool, report) == list(report.findings)
    assert [message.body for message in spool.inbox("bob")] == ["one"]
    assert files(spool, "bob", "cur")[1:] == [f"{two}.json"]
    # The lock is young: a reader may have made it this instant.
    assert check(spool).findings == ()
    later = check(spool, now=lambda: time.time() + 120)
    assert [finding.fault for finding in later.findings] == [SpoolFault.LOOSE_LOCK]
    repair(spool, later)
    assert files(spool, "bob", "cur") == [f"{two}.json"]


def test_strange_folders_lost_records_and_open_doors_are_reported_and_left_alone(spool: Spool) -> None:
    spool.register("bob")
    send(spool, "hello")
    (spool.root / "agents" / "bob.json").unlink()
    (spool.root / "agents" / "-x.json").write_text("{}")
    (spool.root / "spool" / "a b").mkdir()
    spool.root.chmod(0o755)
    report = check(spool)
    assert Counter(finding.fault for finding in report.findings) == {
        SpoolFault.NO_RECORD: 1,
        SpoolFault.STRANGE_NAME: 2,
        SpoolFault.OPEN_TO_OTHERS: 1,
    }
    assert repair(spool, report) == []
    assert check(spool) == report


# Identity.


def test_the_identity_is_kept_as_other_programs_keep_it(tmp_path: Path) -> None:
    root = tmp_path / "home"
    assert read_identity(root) == Identity()
    save_identity(root, Identity(agent="bob"))
    assert (root / "config.json").read_text() == '{\n  "agent": "bob"\n}'
    (root / "config.json").write_text('{"agent": "bob", "url": "http://x", "token": null, "brainRoom": "r"}')
    assert read_identity(root) == Identity("bob", "http://x")
    save_identity(root, Identity("eve", "http://y", "t"))
    assert json.loads((root / "config.json").read_text()) == {
        "agent": "eve",
        "url": "http://y",
        "token": "t",
        "brainRoom": "r",
    }


@pytest.mark.parametrize("text", ["{", "[]", '{"agent": 1}', ""])
def test_a_malformed_configuration_is_told_and_not_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadConfig, match=r"config\.json"):
        read_identity(tmp_path)


def test_variables_override_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKCHANNEL_AGENT", "eve")
    monkeypatch.setenv("BACKCHANNEL_TOKEN", "t")
    assert Identity("bob", "http://x").with_environment() == Identity("eve", "http://x", "t")
    monkeypatch.delenv("BACKCHANNEL_TOKEN")
    assert Identity("bob", "http://x", "mine").with_environment() == Identity("eve", "http://x", "mine")
    monkeypatch.setenv("BACKCHANNEL_URL", "http://y")
    assert Identity("bob", "http://x", "mine").with_environment() == Identity("eve", "http://y", None)
