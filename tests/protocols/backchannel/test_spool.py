"""Tests of the spool against its specification: messages, claims, layout, agents and channels."""

import json
import os
import stat
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest

from tests.protocols.backchannel.spools import draft, files, refused, send, write_as_bch
from tieline.contract.refusal import Code
from tieline.protocols.backchannel.identity import Identity, save_identity
from tieline.protocols.backchannel.spool import Spool, SpoolDraft, SpoolRefused

# Message.


def test_to_is_the_original_target_agent_or_channel(spool: Spool) -> None:
    for name in ("alice", "bob"):
        spool.register(name)
    spool.subscribe("bob", "#dev")
    for target in ("@bob", "bob", "#dev"):
        spool.send(draft(to=target))
    assert [message.to for message in spool.inbox("bob")] == ["@bob", "bob", "#dev"]


def test_channel_messages_are_fanned_out_at_send_time_each_subscriber_gets_an_independent_copy(spool: Spool) -> None:
    for name in ("alice", "bob", "carol", "dave"):
        spool.register(name)
    for name in ("alice", "bob", "carol"):
        spool.subscribe(name, "#dev")
    sent = spool.send(draft(to="#dev"))
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
        spool.send(draft(priority=priority))
    assert [message.priority for message in spool.inbox("bob")] == ["normal", "urgent", "normal"]
    assert len(files(spool, "bob", "new")) == 3


def test_scope_matching_happens_reader_side_the_transport_just_stores_the_field(spool: Spool) -> None:
    spool.register("bob")
    spool.send(draft(scope="HTTPS://GitHub.com/Acme/Api.git"))
    assert [message.scope for message in spool.inbox("bob")] == ["HTTPS://GitHub.com/Acme/Api.git"]


def test_any_process_that_can_write_the_folder_can_forge_a_from_field(spool: Spool) -> None:
    spool.register("bob")
    write_as_bch(spool.root, "bob", "I am root", sender="somebody else")
    assert [message.sender for message in spool.inbox("bob")] == ["somebody else"]


def test_a_message_to_oneself_arrives(spool: Spool) -> None:
    spool.register("alice")
    spool.send(draft(to="@alice"))
    assert [message.sender for message in spool.inbox("alice")] == ["alice"]


def test_a_channel_without_its_hash_is_an_agent_when_sending_and_a_channel_when_subscribing(spool: Spool) -> None:
    spool.register("alice")
    spool.subscribe("alice", "dev")
    assert spool.channels() == ["#dev"]
    with pytest.raises(SpoolRefused) as error:
        spool.send(draft(to="dev"))
    assert refused(error) is Code.UNKNOWN_MEMBER


def test_thread_and_refs_are_optional_and_opaque(spool: Spool) -> None:
    spool.register("bob")
    spool.send(SpoolDraft(sender="alice", to="@bob", body="x", thread="any thing", refs=("a b", "c")))
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
    spool.send_many([draft(body=body) for body in bodies])
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
    ids = [sent.message.id for sent in spool.send_many([draft(body=str(number)) for number in range(200)])]
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
    # A message that was neither finished nor released is given back.
    assert [message.body for message in spool.inbox("bob")] == ["two", "three"]
    assert files(spool, "bob", "cur") == []


def test_a_reader_at_work_keeps_its_claims_and_a_gone_one_does_not(spool: Spool) -> None:
    spool.register("bob")
    one, two = send(spool, "one", "two")
    at_work = spool.claims("bob")
    assert at_work.claim(one) is not None
    gone = spool.claims("bob")
    assert gone.claim(two) is not None
    # The end of its process closes the lock in the same way.
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
    assert len(spool.send(draft("a0", "#dev")).recipients) == 50
    assert len(counted) == 100
    counted.clear()
    spool.send_many([draft("a0", "@a1", str(number)) for number in range(50)])
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
            spool.send(draft(to=channel))
        assert refused(error) is Code.NO_RECIPIENTS
        assert str(error.value) == f"channel {channel} has no other subscribers — nothing to deliver"


def test_a_send_to_a_name_nobody_registered_is_refused_with_the_nearest_names(spool: Spool) -> None:
    for name in ("alice", "Bob", "bobby"):
        spool.register(name)
    with pytest.raises(SpoolRefused) as error:
        spool.send(draft(to="@bobb"))
    assert str(error.value) == 'unknown agent "bobb" — they must `bch init bobb` first'
    assert set(error.value.refusal.near) == {"Bob", "bobby"}
    assert not (spool.root / "spool" / "bobb").exists()


def test_one_refused_draft_of_many_keeps_all_of_them_back(spool: Spool) -> None:
    spool.register("bob")
    with pytest.raises(SpoolRefused):
        spool.send_many([draft(), draft(to="@nobody")])
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
        spool.remove_record("alice")
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
        lambda: spool.send(draft(to=f"@{name}")),
        lambda: spool.send(draft(sender=name)),
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
