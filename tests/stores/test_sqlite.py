"""Tests of the SQLite store beyond the Store port: files, syncs, migrations, and kill -9."""

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.conformance.store.writer import Writer
from tests.core.doubles import BrokerHarness, content
from tests.faults.processes import ROOT, SOAK
from tieline.contract import command as c
from tieline.contract.chain import GENESIS, link
from tieline.contract.channel import Role
from tieline.contract.event import Acknowledged
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Member
from tieline.core.store import ActivityEntry, ActivityQuery, MemberRow, Span, StoreError
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import open_database, open_for_reading
from tieline.stores.sqlite.store import MAIN_FILE

PAGE_BYTES = 1 << 30
"""Size limit of a page of rows, larger than anything that a test stores."""

ROUNDS = 30 if SOAK else 6
SCHEMAS = {MAIN_FILE: "main", ACTIVITY_FILE: "activity"}


OPENERS: dict[str, Callable[[Path], object]] = {MAIN_FILE: SqliteStore, ACTIVITY_FILE: SqliteActivity}


def writer_on(folder: Path, *, synchronous: str = "OFF", vfs: str | None = None) -> Writer:
    return Writer(lambda: SqliteStore(folder, synchronous=synchronous, vfs=vfs))


def activity_on(folder: Path, *, synchronous: str = "OFF", vfs: str | None = None) -> SqliteActivity:
    activity = SqliteActivity(folder, synchronous=synchronous, vfs=vfs)
    activity.restore()
    return activity


def entries(start: int, count: int, event: bytes = b"{}") -> list[ActivityEntry]:
    return [ActivityEntry(offset, 0, 1, "llm", 0, event) for offset in range(start, start + count)]


# Files and settings


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Fixture: set a umask with which new files are readable by all, unless the code restricts them."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_nobody_else_can_read_any_of_the_files(tmp_path: Path) -> None:
    writer = writer_on(tmp_path / "home")
    writer.record()
    writer.store.commit()
    activity = activity_on(tmp_path / "home")
    activity.append(entries(0, 1))
    activity.commit()
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home").iterdir()}
    assert {MAIN_FILE, f"{MAIN_FILE}-wal", ACTIVITY_FILE, f"{ACTIVITY_FILE}-wal"} <= files.keys()
    assert set(files.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700
    writer.store.close()
    activity.close()


@pytest.mark.parametrize(("name", "schema"), SCHEMAS.items())
def test_a_database_is_opened_with_a_write_ahead_log_and_synced_at_each_commit(
    tmp_path: Path, name: str, schema: str
) -> None:
    connection = open_database(tmp_path / name, schema)
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2, "2 is FULL"
    assert connection.pragma("foreign_keys") == 1
    connection.close()


def test_a_clean_close_leaves_two_files_and_no_write_ahead_log(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    writer.record()
    writer.store.commit()
    writer.store.close()
    activity_on(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [ACTIVITY_FILE, MAIN_FILE]


def test_another_process_reads_the_log_while_the_store_writes_and_neither_waits(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    writer.record()
    writer.store.commit()
    reader = open_for_reading(tmp_path / MAIN_FILE)
    writer.accept()
    writer.store.messages([1], PAGE_BYTES)[0]  # the write transaction is open now
    count = "select count(*) from log"
    assert reader.execute(count).get == 1
    writer.store.commit()
    assert reader.execute(count).get == 2
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("delete from log")
    reader.close()
    writer.store.close()


def test_reading_a_database_that_is_not_there_is_refused_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no database"):
        open_for_reading(tmp_path / MAIN_FILE)
    assert list(tmp_path.iterdir()) == []


# Schema


@pytest.mark.parametrize(("name", "schema"), SCHEMAS.items())
def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path, name: str, schema: str) -> None:
    connection = open_database(tmp_path / name, schema)
    current = connection.pragma("user_version")
    assert isinstance(current, int)
    connection.pragma("user_version", current + 1)
    connection.close()
    with pytest.raises(StoreError) as refusal:
        OPENERS[name](tmp_path)
    text = str(refusal.value)
    assert name in text
    assert f"schema {current + 1}" in text
    assert "newer Tieline" in text
    assert "upgrade" in text


@pytest.mark.parametrize(("name", "schema"), SCHEMAS.items())
def test_an_older_schema_is_brought_up_to_date(tmp_path: Path, name: str, schema: str) -> None:
    old = apsw.Connection(str(tmp_path / name))
    assert old.pragma("user_version") == 0
    old.execute("create table left_alone (x)")
    old.close()
    connection = open_database(tmp_path / name, schema)
    version = connection.pragma("user_version")
    tables = {row[0] for row in connection.execute("select name from sqlite_master where type = 'table'")}
    assert version == max(
        int(script.stem[-4:]) for script in (ROOT / "src/tieline/stores/sqlite/schema").glob(f"{schema}_*.sql")
    )
    assert {"left_alone", "log" if schema == "main" else "activity"} <= tables
    connection.close()


def test_subscriptions_and_tokens_of_an_older_schema_become_channels_with_roles_and_tokens_with_ids(
    tmp_path: Path,
) -> None:
    old = apsw.Connection(str(tmp_path / MAIN_FILE))
    for script in ("main_0001.sql", "main_0002.sql"):
        old.execute((ROOT / "src/tieline/stores/sqlite/schema" / script).read_text())
    old.pragma("user_version", 2)
    for number, name in ((1, "ada"), (2, "bob")):
        old.execute("insert into member values (?, ?, 'agent', ?, 'token', 5, 0, null)", (number, name, b"[]"))
        old.execute("insert into token values (?, ?, 5, null)", (bytes([number]) * 32, number))
    for channel, number in (("dev", 2), ("dev", 1), ("ops", 2)):
        old.execute("insert into subscription values (?, ?)", (channel, number))
    old.close()
    writer = writer_on(tmp_path)
    foundation = writer.restore()
    names = {row.id: row.name for row in foundation.channels}
    assert sorted(names.values()) == ["dev", "ops"]
    assert {row.name: (row.created_by, row.spans) for row in foundation.channels} == {
        "dev": ("ada", (Span("#dev"),)),
        "ops": ("bob", (Span("#ops"),)),
    }
    assert sorted((names[one.channel], one.number, one.role) for one in foundation.subscriptions) == [
        ("dev", 1, Role.ADMIN),
        ("dev", 2, Role.MEMBER),
        ("ops", 2, Role.ADMIN),
    ]
    assert len({row.id for row in foundation.tokens}) == 2
    assert [row.member.title for row in foundation.members] == ["", ""]
    writer.store.close()


def test_activity_of_an_older_schema_is_found_by_kind_and_time(tmp_path: Path) -> None:
    old = apsw.Connection(str(tmp_path / ACTIVITY_FILE))
    old.execute((ROOT / "src/tieline/stores/sqlite/schema/activity_0001.sql").read_text())
    old.pragma("user_version", 1)
    for offset, event in enumerate((b'{"kind":"llm"}', b'{"kind":7}', b"{}")):
        old.execute("insert into activity values (?, 9, 1, ?)", (offset, event))
    old.close()
    activity = activity_on(tmp_path)
    found = activity.select(ActivityQuery(1, 9, 9, (), 10, PAGE_BYTES))
    assert [(entry.offset, entry.kind, entry.ts_ms) for entry in found] == [(2, "", 9), (1, "", 9), (0, "llm", 9)]
    activity.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / MAIN_FILE)
    # The first script makes `log` and `message` before it comes to this name.
    foreign.execute("create table snapshot (mine)")
    foreign.commit()
    foreign.close()
    with pytest.raises(StoreError):
        SqliteStore(tmp_path)
    after = sqlite3.connect(tmp_path / MAIN_FILE)
    assert [row[0] for row in after.execute("select name from sqlite_master where type = 'table'")] == ["snapshot"]
    assert after.execute("pragma user_version").fetchone() == (0,)
    after.close()


def test_a_migration_that_fails_in_a_later_version_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    scripts = ("CREATE TABLE one (x);", "CREATE TABLE two (x);", "CREATE TABLE two (x);")
    monkeypatch.setattr("tieline.stores.sqlite.database._migrations", lambda _: scripts[:1])
    open_database(path, "x").close()
    monkeypatch.setattr("tieline.stores.sqlite.database._migrations", lambda _: scripts)
    with pytest.raises(StoreError):
        open_database(path, "x")
    after = sqlite3.connect(path)
    assert after.execute("pragma user_version").fetchone() == (1,)
    assert after.execute("SELECT name FROM sqlite_schema").fetchall() == [("one",)]
    after.close()


@pytest.mark.parametrize("name", [MAIN_FILE, ACTIVITY_FILE])
@pytest.mark.parametrize("garbage", [b"this is a letter to my aunt " * 200, b"SQLite format 3\x00" + b"\xff" * 4000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, name: str, garbage: bytes) -> None:
    (tmp_path / name).write_bytes(garbage)
    with pytest.raises(StoreError, match=name):
        OPENERS[name](tmp_path)
    assert (tmp_path / name).read_bytes() == garbage


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        SqliteStore(tmp_path / "file")
    (tmp_path / "home" / MAIN_FILE).mkdir(parents=True)
    with pytest.raises(StoreError):
        SqliteStore(tmp_path / "home")


def test_a_second_writer_cannot_slip_rows_in_between(tmp_path: Path) -> None:
    first, second = writer_on(tmp_path), writer_on(tmp_path)
    first.record()
    first.store.commit()
    second.record()
    with pytest.raises(StoreError):
        second.store.commit()
    assert second.restore().log_head == first.ledger.head
    second.record()
    second.store.commit()
    first.store.close()
    second.store.close()


# Syncs


class CountingFile(apsw.VFSFile):
    """Test double: a file for SQLite that reports each of its syncs."""

    def __init__(self, vfs: "CountingVfs", name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._vfs = vfs
        self._name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary").name

    def xSync(self, flags: int) -> None:  # noqa: N802  # SQLite's name
        self._vfs.syncs.append(self._name)
        super().xSync(flags)


class CountingVfs(apsw.VFS):
    """Test double: the usual file system for SQLite, which records the file name of each sync."""

    def __init__(self) -> None:
        self.syncs: list[str] = []
        self.name = f"counting-{id(self)}"
        super().__init__(self.name, base="")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return CountingFile(self, name, flags)


@pytest.fixture
def vfs() -> Iterator[CountingVfs]:
    """Fixture: a file system for SQLite that records every sync."""
    vfs = CountingVfs()
    yield vfs
    vfs.unregister()


@pytest.mark.parametrize("messages", [1, 10, 500])
def test_a_commit_makes_exactly_one_sync_however_much_is_in_it(tmp_path: Path, vfs: CountingVfs, messages: int) -> None:
    writer = writer_on(tmp_path, synchronous="FULL", vfs=vfs.name)
    writer.store.save_member(MemberRow(1, Member(MemberName("ada"))))
    writer.record()
    writer.store.commit()  # the first one also syncs the header of the new write-ahead log
    for _ in range(3):
        vfs.syncs.clear()
        for key in range(messages):
            writer.accept()
            if key % 100 == 0:
                writer.store.messages([0], PAGE_BYTES)[0]  # a read in between brings rows into the transaction early
        writer.advance(Acknowledged, (writer.ledger.end, writer.ledger.end))
        assert vfs.syncs == []
        writer.store.commit()
        assert vfs.syncs == [f"{MAIN_FILE}-wal"]
    vfs.syncs.clear()
    writer.store.commit()
    assert vfs.syncs == [], "nothing to commit, nothing to sync"
    writer.store.close()


@pytest.mark.parametrize("messages", [24, 25, 26, 76])
def test_a_batch_is_stored_whole_however_many_rows_go_into_one_statement(tmp_path: Path, messages: int) -> None:
    writer = writer_on(tmp_path)
    sent = [writer.accept(wire_id=f"w{number}") for number in range(messages)]
    writer.store.commit()
    writer.crash()
    found, _ = writer.store.messages(range(messages), PAGE_BYTES)
    assert list(found.values()) == sent
    rows, end = writer.store.read_log(0, messages + 1)
    assert ([row.offset for row in rows], end) == (list(range(messages)), messages)
    writer.store.close()


def test_a_batch_of_accepted_messages_makes_one_sync_through_the_broker(tmp_path: Path, vfs: CountingVfs) -> None:
    harness = BrokerHarness(lambda: SqliteStore(tmp_path, vfs=vfs.name))
    ada, bob = harness.join("ada"), harness.join("bob")
    vfs.syncs.clear()
    sends = [c.Send(ada, content=content("@bob", str(number)), wire_id=str(number)) for number in range(100)]
    harness.ask_all(*sends, c.Fetch(bob), c.Offered(bob, first=1, last=100), c.Advance(bob, ranges=((1, 50),)))
    assert vfs.syncs == [f"{MAIN_FILE}-wal"]
    harness.store.close()


def test_activity_is_synced_on_its_own_file_alone(tmp_path: Path, vfs: CountingVfs) -> None:
    activity = activity_on(tmp_path, synchronous="FULL", vfs=vfs.name)
    activity.append(entries(0, 1))
    activity.commit()
    vfs.syncs.clear()
    activity.append(entries(1, 2))
    activity.commit()
    assert vfs.syncs == [f"{ACTIVITY_FILE}-wal"]
    activity.close()


# The write-ahead log is moved in time

BOUND_BYTES = 3 * 16 * 1024 * 1024
"""Limit of the size of the write-ahead log, a few times the size at which the store moves it into the database."""
BIG = "x" * 100_000


@pytest.mark.slow
def test_the_write_ahead_log_of_messages_does_not_grow_without_bound(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    largest = 0
    for _ in range(40):
        for _ in range(25):
            writer.accept(content("@bob", BIG))
        writer.store.commit()
        largest = max(largest, (tmp_path / f"{MAIN_FILE}-wal").stat().st_size)
    assert (tmp_path / MAIN_FILE).stat().st_size > BOUND_BYTES, "it was moved into the database"
    assert largest < BOUND_BYTES
    writer.store.close()


@pytest.mark.slow
def test_the_write_ahead_log_of_activity_does_not_grow_without_bound(tmp_path: Path) -> None:
    activity = activity_on(tmp_path)
    for batch in range(40):
        activity.append(entries(25 * batch, 25, BIG.encode()))
        activity.commit()
    assert (tmp_path / f"{ACTIVITY_FILE}-wal").stat().st_size < BOUND_BYTES
    activity.close()


def test_a_reader_that_stays_does_not_stop_the_store(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    writer.accept()
    writer.store.commit()
    reader = open_for_reading(tmp_path / MAIN_FILE)
    rows = reader.execute("select offset from log")
    assert rows.fetchone() == (0,)  # the read transaction stays open
    for _ in range(10):
        for _ in range(25):
            writer.accept(content("@bob", BIG))
        writer.store.commit()
    reader.close()
    assert len(writer.store.read_log(0, 1000)[0]) == 251
    writer.store.close()


# Losing the process

VICTIM = """
import sys
from pathlib import Path
from tests.conformance.store.writer import Writer
from tests.core.doubles import content
from tests.stores.test_sqlite import entries
from tieline.stores.sqlite import SqliteActivity, SqliteStore

writer = Writer(lambda: SqliteStore(Path(sys.argv[1])))
activity = SqliteActivity(Path(sys.argv[1]))
end = activity.restore()
while True:
    for _ in range(3):
        writer.accept(content("@bob", "x" * 2000), wire_id=str(writer.ledger.end))
    writer.store.commit()
    activity.append(entries(end, 2))
    activity.commit()
    end += 2
    sys.stdout.write(f"{writer.ledger.end} {end}\\n")
    sys.stdout.flush()
"""


def killed_run(folder: Path, lines: int) -> tuple[int, int]:
    """Run a writing process until it has printed `lines` commits, and kill it.

    Return the two numbers of its last line: the ends of the main log and the activity log.
    """
    command = [sys.executable, "-c", VICTIM, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        reported = "".join(victim.stdout.readline() for _ in range(lines))
        victim.send_signal(signal.SIGKILL)
        # Lines that the victim reported between our last read and its death count too.
        reported += victim.stdout.read()
    end, activity = reported.splitlines()[-1].split()
    return int(end), int(activity)


@pytest.mark.parametrize("rounds", [3, pytest.param(ROUNDS, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_kill_nine_loses_nothing_that_was_reported_committed(tmp_path: Path, rounds: int) -> None:
    for number in range(rounds):
        end, activity = killed_run(tmp_path, 1 + 7 * number % 20)
        writer = writer_on(tmp_path)
        foundation = writer.restore()
        assert foundation.log_end >= end
        assert foundation.log_end % 3 == 0, "a commit is there as a whole or not at all"
        kept = activity_on(tmp_path)
        rows, activity_end = kept.read_log(0, 1 << 30, PAGE_BYTES)
        assert activity_end == len(rows) >= activity
        assert activity_end % 2 == 0, "an upload is there as a whole or not at all"
        kept.close()
        assert len(writer.store.messages(range(foundation.log_end), PAGE_BYTES)[0]) == foundation.log_end
        previous = GENESIS
        for row in writer.store.read_log(0, foundation.log_end)[0]:
            assert row.hash == link(previous, row.at_ms, row.event)
            previous = row.hash
        assert previous == foundation.log_head
        writer.store.close()


def test_a_failed_commit_is_reported_and_leaves_what_was_committed(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    writer.record()
    writer.store.commit()
    blocker = apsw.Connection(str(tmp_path / MAIN_FILE))
    blocker.execute("create trigger full_disk before insert on message begin select raise(abort, 'disk full'); end")
    writer.accept()
    writer.store.save_member(MemberRow(1, Member(MemberName("ada"))))
    with pytest.raises(StoreError, match="disk full"):
        writer.store.commit()
    blocker.execute("drop trigger full_disk")
    blocker.close()
    foundation = writer.restore()
    assert foundation.log_end == 1
    assert list(foundation.members) == []
    writer.accept()
    writer.store.commit()
    assert writer.restore().log_end == 2
    writer.store.close()


@pytest.mark.parametrize(("platform", "is_full"), [("linux", 0), ("darwin", 1)])
def test_on_macos_a_commit_also_empties_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, is_full: int
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with contextlib.closing(open_database(tmp_path / "tieline.db", "main")) as connection:
        assert connection.pragma("fullfsync") == is_full
