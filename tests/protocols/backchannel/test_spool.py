"""The spool: one test for each sentence of the protocol about local mode, and what real writers leave there."""

import asyncio
import json
import os
import stat
import threading
import time
import uuid
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tieline.contract.refusal import Code
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.arrivals import Arrivals
from tieline.protocols.backchannel.identity import BadConfig, Identity, read_identity, save_identity
from tieline.protocols.backchannel.message import Message
from tieline.protocols.backchannel.spool import Letter, Spool, SpoolBroken, SpoolRefused
from tieline.protocols.backchannel.upkeep import Fault, check, repair


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Give a spool that nobody has used, with a clock that moves a millisecond with each look."""
    moments = count(1_781_265_600_000)
    return Spool(tmp_path / "home", now_ms=lambda: next(moments))


def letter(sender: str = "alice", to: str = "@bob", body: str = "hello", **more: str) -> Letter:
    return Letter(sender=sender, to=to, body=body, **more)  # type: ignore[arg-type]


def send(spool: Spool, *bodies: str, to: str = "@bob", sender: str = "alice") -> list[str]:
    return [spool.send(letter(sender, to, body)).message.id for body in bodies]


def files(spool: Spool, agent: str, box: str) -> list[str]:
    folder = spool.root / "spool" / agent / box
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def refused(error: "pytest.ExceptionInfo[SpoolRefused]") -> Code:
    return error.value.refusal.code


# As the real program writes it: compact messages, records in two spaces, only `new/` made.


def write_as_bch(
    root: Path, agent: str, body: str, *, sender: str = "alice", ts: str = "2026-06-12T12:00:00.000Z", **more: object
) -> str:
    message_id = str(uuid.uuid4())
    folder = root / "spool" / agent
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    (folder / "new").mkdir(exist_ok=True)
    document = {"id": message_id, "from": sender, "to": f"@{agent}", "body": body, "priority": "normal", **more}
    temporary = folder / "tmp" / f"{message_id}.json"
    temporary.write_text(json.dumps({**document, "ts": ts}, separators=(",", ":")))
    temporary.rename(folder / "new" / temporary.name)
    return message_id


def register_as_bch(root: Path, agent: str, **more: object) -> None:
    (root / "agents").mkdir(parents=True, exist_ok=True)
    (root / "spool" / agent / "new").mkdir(parents=True)
    ts = "2026-06-12T12:00:00.000Z"
    record = {"name": agent, "subscriptions": [], "createdAt": ts, "lastSeen": ts, **more}
    (root / "agents" / f"{agent}.json").write_text(json.dumps(record, indent=2))


# Message.


def test_to_is_the_original_target_agent_or_channel(spool: Spool) -> None:
    for name in ("alice", "bob"):
        spool.register(name)
    spool.subscribe("bob", "#dev")
    for target in ("@bob", "bob", "#dev"):
        spool.send(letter(to=target))
    assert [message.to for message in spool.inbox("bob")] == ["@bob", "bob", "#dev"]


def test_channel_messages_are_fanned_out_at_send_time_each_subscriber_gets_an_independent_copy(spool: Spool) -> None:
    for name in ("alice", "bob", "carol", "dave"):
        spool.register(name)
    for name in ("alice", "bob", "carol"):
        spool.subscribe(name, "#dev")
    sent = spool.send(letter(to="#dev"))
    spool.subscribe("dave", "#dev")
    assert sent.recipients == ("bob", "carol")
    stored = [spool.folder(name) / "new" / f"{sent.message.id}.json" for name in sent.recipients]
    assert len({path.stat().st_ino for path in stored}) == 2
    copies = [spool.inbox(name) for name in ("alice", "bob", "carol", "dave")]
    assert [[message.id for message in copy] for copy in copies] == [[], [sent.message.id], [sent.message.id], []]
    assert spool.take("bob", sent.message.id) == sent.message
    assert spool.inbox("carol") == [sent.message]


def test_urgent_is_a_delivery_hint_not_a_different_code_path(spool: Spool) -> None:
    spool.register("bob")
    for priority in ("normal", "urgent", "normal"):
        spool.send(letter(priority=priority))
    assert [message.priority for message in spool.inbox("bob")] == ["normal", "urgent", "normal"]
    assert len(files(spool, "bob", "new")) == 3


def test_scope_matching_happens_reader_side_the_transport_just_stores_the_field(spool: Spool) -> None:
    spool.register("bob")
    spool.send(letter(scope="HTTPS://GitHub.com/Acme/Api.git"))
    assert [message.scope for message in spool.inbox("bob")] == ["HTTPS://GitHub.com/Acme/Api.git"]


def test_any_process_that_can_write_the_folder_can_forge_a_from_field(spool: Spool) -> None:
    spool.register("bob")
    write_as_bch(spool.root, "bob", "I am root", sender="somebody else")
    assert [message.sender for message in spool.inbox("bob")] == ["somebody else"]


def test_a_message_to_oneself_arrives(spool: Spool) -> None:
    spool.register("alice")
    spool.send(letter(to="@alice"))
    assert [message.sender for message in spool.inbox("alice")] == ["alice"]


def test_a_channel_without_its_hash_is_an_agent_when_sending_and_a_channel_when_subscribing(spool: Spool) -> None:
    spool.register("alice")
    spool.subscribe("alice", "dev")
    assert spool.channels() == ["#dev"]
    with pytest.raises(SpoolRefused) as error:
        spool.send(letter(to="dev"))
    assert refused(error) is Code.UNKNOWN_MEMBER


def test_thread_and_refs_are_optional_and_opaque(spool: Spool) -> None:
    spool.register("bob")
    spool.send(Letter(sender="alice", to="@bob", body="x", thread="any thing", refs=("a b", "c")))
    (message,) = spool.inbox("bob")
    assert (message.thread, message.refs) == ("any thing", ("a b", "c"))


# Claims.


def test_inbox_peeks_take_claims(spool: Spool) -> None:
    spool.register("bob")
    (message_id,) = send(spool, "hello")
    assert [message.body for message in spool.inbox("bob")] == ["hello"]
    assert [message.body for message in spool.inbox("bob")] == ["hello"]
    taken = spool.take("bob", message_id)
    assert taken is not None
    assert taken.body == "hello"
    assert spool.inbox("bob") == []


def test_inbox_is_sorted_by_ts(spool: Spool) -> None:
    spool.register("bob")
    for second in (30, 10, 20):
        write_as_bch(spool.root, "bob", str(second), ts=f"2026-06-12T12:00:{second}.000Z")
    assert [message.body for message in spool.inbox("bob")] == ["10", "20", "30"]


def test_letters_sent_together_are_read_in_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, now_ms=lambda: 1_781_265_600_000)
    spool.register("bob")
    bodies = [str(number) for number in range(300)]
    spool.send_many([letter(body=body) for body in bodies])
    assert [message.body for message in spool.inbox("bob")] == bodies


def test_losers_get_null_and_move_on(spool: Spool) -> None:
    spool.register("bob")
    (message_id,) = send(spool, "hello")
    assert spool.take("bob", message_id) is not None
    assert spool.take("bob", message_id) is None
    assert spool.take("bob", str(uuid.uuid4())) is None
    assert spool.take("bob", "../../agents/bob") is None


def test_when_several_sessions_of_the_same_agent_race_exactly_one_wins_per_message(spool: Spool) -> None:
    spool.register("bob")
    ids = [sent.message.id for sent in spool.send_many([letter(body=str(number)) for number in range(200)])]
    won: list[str] = []
    start = threading.Barrier(8)

    def race() -> None:
        reader = Spool(spool.root)
        start.wait()
        with reader.claims("bob") as claims:
            mine = [each for each in ids if claims.claim(each) is not None]
            won.extend(mine)
            for each in mine:
                claims.finish(each)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(won) == Counter(ids)
    assert files(spool, "bob", "new") == files(spool, "bob", "cur") == []


def test_a_claimed_message_is_out_of_new_until_it_is_finished_or_given_back(spool: Spool) -> None:
    spool.register("bob")
    one, two, three = send(spool, "one", "two", "three")
    with spool.claims("bob") as claims:
        for each in (one, two, three):
            assert claims.claim(each) is not None
        claims.sync()
        assert spool.inbox("bob") == []
        assert spool.take("bob", one) is None
        claims.finish(one)
        claims.release(two)
        assert [message.body for message in spool.inbox("bob")] == ["two"]
    # What was neither is given back.
    assert [message.body for message in spool.inbox("bob")] == ["two", "three"]
    assert files(spool, "bob", "cur") == []


def test_a_reader_at_work_keeps_its_claims_and_a_gone_one_does_not(spool: Spool) -> None:
    spool.register("bob")
    one, two = send(spool, "one", "two")
    at_work = spool.claims("bob")
    assert at_work.claim(one) is not None
    gone = spool.claims("bob")
    assert gone.claim(two) is not None
    # What the end of its process does.
    assert gone._lock is not None
    os.close(gone._lock)
    assert spool.recover("bob") == 1
    assert [message.body for message in spool.inbox("bob")] == ["two"]
    at_work.finish(one)
    at_work.close()
    assert spool.recover("bob") == 0


# Layout.


def test_the_layout_is_that_of_the_protocol(spool: Spool) -> None:
    spool.register("bob")
    (message_id,) = send(spool, "hello")
    assert files(spool, "bob", "new") == [f"{message_id}.json"]
    assert files(spool, "bob", "tmp") == []
    stored = json.loads((spool.folder("bob") / "new" / f"{message_id}.json").read_text())
    assert list(stored) == ["id", "from", "to", "body", "priority", "ts"]
    record = json.loads((spool.root / "agents" / "bob.json").read_text())
    assert list(record) == ["name", "subscriptions", "createdAt", "lastSeen"]
    assert {path.name for path in spool.folder("bob").iterdir()} == {"tmp", "new", "cur"}


def test_ack_deletes_from_new_or_moves_to_cur_with_keep(spool: Spool) -> None:
    spool.register("bob")
    one, two = send(spool, "one", "two")
    spool.take("bob", one)
    assert files(spool, "bob", "cur") == []
    spool.take("bob", two, keep=True)
    assert files(spool, "bob", "cur") == [f"{two}.json"]
    assert files(spool, "bob", "new") == []


def test_readers_never_see_partial_messages(spool: Spool) -> None:
    spool.register("bob")
    body = "x" * 200_000
    stop = threading.Event()
    partial: list[str] = []

    def read() -> None:
        folder = spool.folder("bob") / "new"
        while not stop.is_set():
            for path in folder.iterdir():
                text = path.read_text()
                if not text.endswith("}"):
                    partial.append(text)

    reader = threading.Thread(target=read)
    reader.start()
    send(spool, *[body] * 20)
    stop.set()
    reader.join()
    assert partial == []
    assert len(spool.inbox("bob")) == 20


def test_what_we_make_is_for_its_owner_alone(spool: Spool) -> None:
    old = os.umask(0)
    try:
        spool.register("bob")
        send(spool, "hello")
        save_identity(spool.root, Identity(agent="bob", token="secret"))
    finally:
        os.umask(old)
    for path in [spool.root, *spool.root.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_message_and_its_name_are_synced_before_it_is_accepted(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.register("bob")
    told: list[str] = []
    fsync = os.fsync

    def telling(descriptor: int) -> None:
        told.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", telling)
    monkeypatch.setattr(spool, "touch", lambda _: None)
    (message_id,) = send(spool, "hello")
    folder = spool.folder("bob").resolve()
    assert told == [str(folder / "tmp" / f"{message_id}.json"), str(folder / "new")]


def test_a_message_to_fifty_costs_one_sync_a_file_and_one_a_folder(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(51):
        spool.register(f"a{number}")
        spool.subscribe(f"a{number}", "#dev")
    counted: list[int] = []
    fsync = os.fsync

    def counting(descriptor: int) -> None:
        counted.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counting)
    monkeypatch.setattr(spool, "touch", lambda _: None)
    assert len(spool.send(letter("a0", "#dev")).recipients) == 50
    assert len(counted) == 100
    counted.clear()
    spool.send_many([letter("a0", "@a1", str(number)) for number in range(50)])
    assert len(counted) == 51, "fifty files and one folder"


# Agents and channels.


def test_channel_membership_lives_on_the_agent_record(spool: Spool) -> None:
    spool.register("bob")
    spool.subscribe("bob", "dev")
    spool.subscribe("bob", "#dev")
    spool.subscribe("bob", "#ops")
    assert json.loads((spool.root / "agents" / "bob.json").read_text())["subscriptions"] == ["#dev", "#ops"]
    spool.unsubscribe("bob", "dev")
    assert json.loads((spool.root / "agents" / "bob.json").read_text())["subscriptions"] == ["#ops"]


def test_a_channel_exists_iff_someone_subscribes_to_it(spool: Spool) -> None:
    for name in ("alice", "bob"):
        spool.register(name)
        spool.subscribe(name, "#dev")
    spool.subscribe("bob", "#a")
    assert spool.channels() == ["#a", "#dev"]
    spool.unsubscribe("alice", "#dev")
    assert spool.channels() == ["#a", "#dev"]
    spool.unsubscribe("bob", "#dev")
    assert spool.channels() == ["#a"]


def test_sending_to_a_channel_with_no_other_subscribers_is_an_error_not_a_silent_no_op(spool: Spool) -> None:
    spool.register("alice")
    spool.subscribe("alice", "#dev")
    for channel in ("#dev", "#nobody"):
        with pytest.raises(SpoolRefused) as error:
            spool.send(letter(to=channel))
        assert refused(error) is Code.NO_RECIPIENTS
        assert str(error.value) == f"channel {channel} has no other subscribers — nothing to deliver"


def test_a_send_to_a_name_nobody_registered_is_refused_with_the_nearest_names(spool: Spool) -> None:
    for name in ("alice", "Bob", "bobby"):
        spool.register(name)
    with pytest.raises(SpoolRefused) as error:
        spool.send(letter(to="@bobb"))
    assert str(error.value) == 'unknown agent "bobb" — they must `bch init bobb` first'
    assert set(error.value.refusal.near) == {"Bob", "bobby"}
    assert not (spool.root / "spool" / "bobb").exists()


def test_one_refused_letter_of_many_keeps_all_of_them_back(spool: Spool) -> None:
    spool.register("bob")
    with pytest.raises(SpoolRefused):
        spool.send_many([letter(), letter(to="@nobody")])
    assert spool.inbox("bob") == []


def test_whoever_keeps_the_records_says_all_channels_at_once(spool: Spool) -> None:
    spool.register("bob")
    path = spool.root / "agents" / "bob.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenHash": "kept"}))
    (spool.root / "agents" / "eve.json").write_text("{")
    spool.describe({"bob": ["#dev"], "alice": ("#ops", "#art"), "eve": ()})
    assert {record.name: record.subscriptions for record in spool.agents()} == {
        "alice": ("#ops", "#art"),
        "bob": ("#dev",),
        "eve": (),
    }
    assert json.loads(path.read_text())["tokenHash"] == "kept"
    for _ in range(2):
        spool.strike("alice")
        assert spool.names() == ["bob", "eve"]


def test_subscribing_needs_a_record_and_unsubscribing_does_not(spool: Spool) -> None:
    with pytest.raises(SpoolRefused, match='unknown agent "eve"'):
        spool.subscribe("eve", "#dev")
    spool.unsubscribe("eve", "#dev")


@pytest.mark.parametrize("name", ["../evil", "a/b", ".hidden", "", "a\0"])
def test_names_are_checked_before_they_touch_a_path(spool: Spool, name: str, tmp_path: Path) -> None:
    spool.register("bob")
    before = sorted(tmp_path.rglob("*"))
    for work in (
        lambda: spool.register(name),
        lambda: spool.send(letter(to=f"@{name}")),
        lambda: spool.send(letter(sender=name)),
        lambda: spool.subscribe(name, "#dev"),
        lambda: spool.inbox(name),
        lambda: spool.take(name, str(uuid.uuid4())),
    ):
        with pytest.raises(SpoolRefused, match="invalid agent name"):
            work()
    assert sorted(tmp_path.rglob("*")) == before


def test_two_names_that_differ_only_in_case_are_refused(spool: Spool) -> None:
    spool.register("Bob")
    spool.register("Bob")
    with pytest.raises(SpoolRefused) as error:
        spool.register("bob")
    assert refused(error) is Code.NAME_TAKEN


def test_being_here_is_noted_and_not_with_every_message(tmp_path: Path) -> None:
    now = [1_781_265_600_000]
    spool = Spool(tmp_path, now_ms=lambda: now[0])
    assert spool.register("bob").last_seen == "2026-06-12T12:00:00.000Z"
    now[0] += 9_000
    spool.inbox("bob")
    assert spool.agents()[0].last_seen == "2026-06-12T12:00:00.000Z"
    now[0] += 1_000
    spool.inbox("bob")
    (record,) = spool.agents()
    assert (record.created_at, record.last_seen) == ("2026-06-12T12:00:00.000Z", "2026-06-12T12:00:10.000Z")


def test_subscriptions_made_at_the_same_time_are_all_kept(spool: Spool) -> None:
    spool.register("bob")
    threads = [threading.Thread(target=Spool(spool.root).subscribe, args=("bob", f"#c{n}")) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spool.agents()[0].subscriptions) == 16


# What other programs wrote.


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
    assert spool.send(letter("bob", "#dev")).recipients == ("carol",)
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
    assert found == {Fault.UNREADABLE_MESSAGE: 5, Fault.STRANGE_NAME: 2}


def test_a_malformed_record_is_a_clear_error(spool: Spool) -> None:
    spool.register("bob")
    path = spool.root / "agents" / "bob.json"
    path.write_text("{")
    for work in (
        spool.agents,
        lambda: spool.send(letter()),
        lambda: spool.subscribe("bob", "#x"),
    ):
        with pytest.raises(SpoolBroken, match=r"bob\.json cannot be used"):
            work()
    assert [finding.fault for finding in check(spool).findings] == [Fault.UNREADABLE_RECORD]


def test_a_record_that_is_just_being_written_is_waited_for(spool: Spool) -> None:
    record = spool.register("bob")
    path = spool.root / "agents" / "bob.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])

    def finish() -> None:
        time.sleep(0.03)
        path.write_bytes(whole)

    writer = threading.Thread(target=finish)
    writer.start()
    assert spool.record("bob") == record
    writer.join()


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
        spool.send(letter(to="#dev"))
    assert [files(spool, name, box) for name in ("bob", "carol") for box in ("tmp", "new")] == [[], [], [], []]


# Watching.


async def collect(arrivals: Arrivals, number: int) -> list[Message]:
    found: list[Message] = []
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
        await asyncio.sleep(0.2)
        assert not coming.done()
        send(spool, "three")
        assert (await coming).body == "three"
    await arrivals.aclose()  # type: ignore[attr-defined]


async def test_a_look_from_time_to_time_finds_what_no_notification_told(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(_: Arrivals) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(Arrivals, "_notify", none)
    spool.register("bob")
    arrivals = Arrivals(spool, "bob", rescan_seconds=0.05)
    coming = asyncio.ensure_future(collect(arrivals, 1))
    await asyncio.sleep(0.1)
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
        (Fault.UNFINISHED_WRITE, "old.json")
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
    assert [finding.fault for finding in report.findings] == [Fault.UNFINISHED_CLAIM]
    assert repair(spool, report) == list(report.findings)
    assert [message.body for message in spool.inbox("bob")] == ["one"]
    assert files(spool, "bob", "cur")[1:] == [f"{two}.json"]
    # The lock is young: a reader may have made it this instant.
    assert check(spool).findings == ()
    later = check(spool, now=lambda: time.time() + 120)
    assert [finding.fault for finding in later.findings] == [Fault.LOOSE_LOCK]
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
        Fault.NO_RECORD: 1,
        Fault.STRANGE_NAME: 2,
        Fault.OPEN_TO_OTHERS: 1,
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
