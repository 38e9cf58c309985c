"""Tests of `tieline backup` and `tieline restore`: all that a home keeps comes back, and nothing half is left."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
import typer

from tests.core.doubles import BrokerHarness
from tests.faults.disks import fill, small_disk
from tieline.cli.archive import ArchiveError, Checked, _staging, unpack_archive, write_archive
from tieline.cli.backup import backup, restore
from tieline.cli.backup_file import make_backup
from tieline.cli.doctor_store import backups
from tieline.cli.failure import Failure
from tieline.cli.hub_log import LogFile
from tieline.cli.last_backup import last_backup
from tieline.cli.serve import _run
from tieline.cli.upgrade import prepare_upgrade
from tieline.contract.file import FileChange, FileEntry, FileKind
from tieline.core.audit import verify
from tieline.core.store import StoreError
from tieline.server.home import HalfRestored, Home, HomeBusy
from tieline.server.hub import Options
from tieline.stores.sqlite import SqliteActivity, SqliteFiles, SqliteStore
from tieline.stores.sqlite.database import newest_version, open_for_reading
from tieline.stores.sqlite.inspection import open_inspection
from tieline.stores.sqlite.pages import LogPages

CONTENT = b"the attached plan"
DIGEST = "e587718e2d43d8919e2ccbfff09b5f1197f28ee500795348579b71dc0dc579a9"


STOPPED = """
import os, sys
from pathlib import Path
from tieline.cli.main import main

number, name, *words = sys.argv[1:]
rename = Path.rename

def stopped(path, target):
    if path.name == name:
        os.kill(os.getpid(), int(number))
    return rename(path, target)

Path.rename = stopped
sys.argv = ["tieline", *words]
main()
"""
"""A program that runs `tieline`, and sends a signal to itself just before a file of some name gets its final name."""
TIELINE = (sys.executable, "-m", "tieline.cli.main")


def fill_home(home: Path, *bodies: str) -> None:
    """Write the home of a hub with one message for each body, a file, a key and a configuration."""
    harness = BrokerHarness(lambda: SqliteStore(home, synchronous="OFF"))
    alice = harness.join("alice")
    harness.join("bob")
    for body in bodies:
        harness.send(alice, "@bob", body)
    harness.broker.close()
    SqliteActivity(home, synchronous="OFF").close()
    catalogue = SqliteFiles(home, synchronous="OFF")
    folder = FileEntry("/alice", FileKind.DIRECTORY, "alice", 1, "alice", 1)
    entry = FileEntry("/alice/plan", FileKind.FILE, "alice", 1, "alice", 1, len(CONTENT), "text/plain", DIGEST)
    catalogue.apply(FileChange(put=(folder, entry), at_ms=1))
    catalogue.close()
    blob = home / "files" / DIGEST[:2] / DIGEST
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)
    (home / "key").write_text("secret key")
    (home / "tieline.toml").write_text("")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fixture: the home of a hub that has stopped, with two messages, a file and a room. Tests get copies of it."""
    folder = tmp_path_factory.mktemp("template") / "home"
    fill_home(folder, "one", "two")
    fill_home(folder / "rooms" / ("0" * 32), "in the room")
    with closing(sqlite3.connect(folder / "invitations.sqlite")) as other, other:
        other.execute("CREATE TABLE invitation (code)")
        other.execute("INSERT INTO invitation VALUES ('abc')")
    (folder / "lake").mkdir()
    (folder / "lake" / "table").write_text("made from the logs")
    (folder / "run.json").write_text("{}")
    (folder / "spool-home" / "new").mkdir(parents=True)
    (folder / "spool-home" / "new" / "1.alice").write_text("waits")
    return folder


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    """Fixture: a copy of `template` for one test."""
    return Path(shutil.copytree(template, tmp_path / "home"))


def bodies(home: Path) -> list[str]:
    harness = BrokerHarness(lambda: SqliteStore(home, synchronous="OFF"))
    found = harness.bodies(harness.attach("bob"))
    harness.broker.close()
    return found


def epochs(home: Path) -> set[str]:
    pages = LogPages(home)
    found = {pages.epoch("main"), pages.epoch("activity")}
    pages.close()
    return found


def stopped(number: signal.Signals, name: str, *words: str) -> int:
    """Run `tieline`, which gets a signal before it renames the file `name`. Return its exit code."""
    return subprocess.run(
        [sys.executable, "-c", STOPPED, str(int(number)), name, *words], capture_output=True, check=False
    ).returncode


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_everything_comes_back_with_new_epochs_and_an_intact_chain(home: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "backup.tar.gz", tmp_path / "restored"
    made = make_backup(home, file)
    assert (made.messages, made.bytes) == (3, file.stat().st_size)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(tmp_path) == {"home", "backup.tar.gz"}
    restore(file, restored)
    with closing(open_inspection(restored)) as inspection:
        report = verify(inspection)
    assert report.intact
    assert not epochs(home) & epochs(restored)
    assert bodies(restored) == ["one", "two"]
    assert bodies(restored / "rooms" / ("0" * 32)) == ["in the room"]
    assert (restored / "files" / DIGEST[:2] / DIGEST).read_bytes() == CONTENT
    assert (restored / "key").read_text() == "secret key"
    assert (restored / "spool-home" / "new" / "1.alice").read_text() == "waits"
    with closing(sqlite3.connect(restored / "invitations.sqlite")) as other:
        assert other.execute("SELECT code FROM invitation").fetchall() == [("abc",)]
    assert not names(restored) & {"run.json", "lake", "backup.json"}
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in [restored, *restored.rglob("*")])


def test_the_home_and_the_doctor_know_the_last_backup(home: Path, tmp_path: Path) -> None:
    assert [finding.grade.value for finding in backups(home)] == ["note"]
    file = tmp_path / "backup.tar.gz"
    made = make_backup(home, file)
    assert json.loads((home / "backup.json").read_text()) == {
        "at_ms": made.at_ms, "file": str(file), "bytes": made.bytes, "verified": True,
    }  # fmt: skip
    (finding,) = backups(home)
    assert (finding.grade.value, str(file) in finding.what) == ("ok", True)
    (home / "tieline.toml").write_text('[backup]\nevery = "1h"\nfolder = "/backups"\n')
    record = json.loads((home / "backup.json").read_text())
    (home / "backup.json").write_text(json.dumps({**record, "at_ms": record["at_ms"] - 4 * 3_600_000}))
    (finding,) = backups(home)
    assert (finding.grade.value, "4 hours ago" in finding.what) == ("wrong", True)


def test_in_a_folder_only_the_newest_backups_stay(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "mine.tar.gz").write_text("not ours")
    for _ in range(3):
        backup(folder, keep=2, home=home, json=True)
    assert len(list(folder.glob("tieline-*.tar.gz"))) == 2
    assert (folder / "mine.tar.gz").exists()
    last = last_backup(home)
    assert last is not None
    assert Path(last.file).exists()


def test_backups_of_other_hubs_and_of_older_programs_stay(home: Path, tmp_path: Path) -> None:
    folder, copy = tmp_path / "backups", tmp_path / "copy"
    folder.mkdir()
    old = folder / "tieline-20200101T000000Z.tar.gz"
    make_backup(home, old)
    backup(folder, keep=1, home=home, json=True)
    first = last_backup(home)
    restore(old, copy)
    backup(folder, keep=1, home=copy, json=True)
    second = last_backup(copy)
    assert first is not None
    assert second is not None
    assert {str(path) for path in folder.iterdir()} == {str(old), first.file, second.file}


def test_files_that_are_named_like_databases_and_are_none_come_back(home: Path, tmp_path: Path) -> None:
    (home / "notes.db").write_text("x\n")
    (home / "folder.db").mkdir()
    make_backup(home, tmp_path / "backup.tar.gz")
    restore(tmp_path / "backup.tar.gz", tmp_path / "restored")
    assert (tmp_path / "restored" / "notes.db").read_text() == "x\n"
    assert (tmp_path / "restored" / "folder.db").is_dir()


def test_a_file_that_is_a_link_is_in_the_backup_and_a_linked_folder_is_refused(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (home / "tieline.toml").write_text("# mine")
    for name in ("tieline.toml", "tieline.db"):
        (home / name).rename(elsewhere / name)
        (home / name).symlink_to(elsewhere / name)
    (home / "gone").symlink_to(elsewhere / "gone")
    write_archive(home, tmp_path / "backup.tar.gz")
    restore(tmp_path / "backup.tar.gz", tmp_path / "restored")
    assert (tmp_path / "restored" / "tieline.toml").read_text() == "# mine"
    assert bodies(tmp_path / "restored") == ["one", "two"]
    (home / "rooms").rename(elsewhere / "rooms")
    (home / "rooms").symlink_to(elsewhere / "rooms")
    with pytest.raises(ArchiveError, match="rooms is a link to a folder"):
        write_archive(home, tmp_path / "other.tar.gz")
    assert not (tmp_path / "other.tar.gz").exists()


def test_a_restored_home_is_synced_to_the_last_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr("tieline.cli.archive.sync_folder", lambda path: synced.append(path.name))
    make_backup(home, tmp_path / "backup.tar.gz")
    restore(tmp_path / "backup.tar.gz", tmp_path / "restored")
    assert {"files", DIGEST[:2], "rooms", "new"} <= set(synced)
    assert synced[-1] == "restored"


def test_while_a_home_is_restored_nothing_else_uses_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, restored = tmp_path / "backup.tar.gz", tmp_path / "restored"
    make_backup(home, file)
    ended: list[BaseException] = []

    def unpack_meanwhile(file: Path, home: Path) -> Checked:
        for use in (lambda: restore(file, home), lambda: Home(home)):
            with pytest.raises((typer.Exit, HomeBusy)) as raised:
                use()
            ended.append(raised.value)
        return unpack_archive(file, home)

    monkeypatch.setattr("tieline.cli.archive.unpack_archive", unpack_meanwhile)
    restore(file, restored)
    assert [type(one) for one in ended] == [typer.Exit, HomeBusy]
    assert f"a hub or another restore uses {restored}" in capsys.readouterr().err
    assert bodies(restored) == ["one", "two"]


def test_a_hub_does_not_start_where_a_restore_was_killed(home: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "backup.tar.gz", tmp_path / "restored"
    make_backup(home, file)
    assert stopped(signal.SIGKILL, "tieline.db", "restore", str(file), "--home", str(restored)) == -signal.SIGKILL
    assert not (restored / "tieline.db").exists()
    with pytest.raises(HalfRestored, match="delete it and restore again"):
        Home(restored)
    for command in (["restore", str(file), "--home", str(restored)], ["serve", "--home", str(restored)]):
        done = subprocess.run([*TIELINE, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"tieline: {restored} is half restored")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_a_signal_ends_leaves_nothing_half_written(
    home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    file, restored = tmp_path / "backup.tar.gz", tmp_path / "restored"
    make_backup(home, file)
    for name, words in (
        ("archive", ("backup", str(tmp_path / "other.tar.gz"), "--home", str(home))),
        ("tieline.db", ("restore", str(file), "--home", str(restored))),
    ):
        assert stopped(number, name, *words) == 128 + number
        assert names(tmp_path) == {"home", "backup.tar.gz"}


def test_a_folder_that_others_can_change_is_refused_with_a_sentence(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_backup(home, tmp_path / "backup.tar.gz")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(typer.Exit):
        restore(tmp_path / "backup.tar.gz", tmp_path / "open")
    assert "others can write to" in capsys.readouterr().err
    assert names(tmp_path / "open") == set()


def test_a_disk_of_its_own_is_a_home_although_it_has_a_folder_of_the_system(home: Path, tmp_path: Path) -> None:
    (home / "lost+found").mkdir()
    (home / "lost+found" / "#1").write_text("of root")
    disk = tmp_path / "disk"
    (disk / "lost+found").mkdir(parents=True)
    make_backup(home, tmp_path / "backup.tar.gz")
    restore(tmp_path / "backup.tar.gz", disk)
    assert bodies(disk) == ["one", "two"]
    assert names(disk / "lost+found") == set()


def test_a_restore_that_fails_at_its_end_leaves_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_backup(home, tmp_path / "backup.tar.gz")
    rename = Path.rename

    def fail_at_the_main_database(path: Path, target: Path) -> Path:
        if path.name == "tieline.db":
            raise OSError(5, "Input/output error", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_at_the_main_database)
    with pytest.raises(typer.Exit):
        restore(tmp_path / "backup.tar.gz", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_file_that_was_removed_meanwhile_is_in_no_catalogue_of_the_backup(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests: list[set[str]] = []

    def remove_once(catalogue: Path) -> set[str]:
        with closing(open_for_reading(catalogue)) as connection:
            found = {row[0] for row in connection.execute("SELECT digest FROM entry WHERE digest IS NOT NULL")}
        if catalogue.name == "database" and not digests:
            (home / "files" / DIGEST[:2] / DIGEST).unlink()
            with closing(sqlite3.connect(home / "files.db")) as files, files:
                files.execute("DELETE FROM entry WHERE kind = 'file'")
        digests.append(found)
        return found

    monkeypatch.setattr("tieline.cli.archive._digests", remove_once)
    write_archive(home, tmp_path / "backup.tar.gz")
    assert digests[:2] == [{DIGEST}, set()]


def test_a_home_that_has_lost_the_bytes_of_a_file_is_backed_up_all_the_same(home: Path, tmp_path: Path) -> None:
    (home / "files" / DIGEST[:2] / DIGEST).unlink()
    write_archive(home, tmp_path / "backup.tar.gz")
    (tmp_path / "restored").mkdir()
    assert unpack_archive(tmp_path / "backup.tar.gz", tmp_path / "restored").messages == 3


def test_a_home_with_a_broken_chain_gives_no_backup(home: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home / "tieline.db")) as database, database:
        database.execute("UPDATE log SET at_ms = at_ms + 1 WHERE offset = 1")
    with pytest.raises(Failure, match="audit chain is broken at row 1"):
        make_backup(home, tmp_path / "backup.tar.gz")
    assert names(tmp_path) == {"home"}
    assert last_backup(home) is None


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_and_leaves_nothing(home: Path, tmp_path: Path, cut: float) -> None:
    file = tmp_path / "backup.tar.gz"
    make_backup(home, file)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * cut)])
    with pytest.raises(typer.Exit):
        restore(file, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_file_with_other_bytes_is_refused(home: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "backup.tar.gz", tmp_path / "other.tar.gz"
    make_backup(home, file)
    unpacked = tmp_path / "unpacked"
    with tarfile.open(file) as tar:
        tar.extractall(unpacked, filter="data")
        order = tar.getnames()
    (unpacked / "key").write_text("another key")
    with tarfile.open(other, "w:gz") as tar:
        for name in order:
            tar.add(unpacked / name, name, recursive=False)
    (tmp_path / "restored").mkdir()
    with pytest.raises(ArchiveError, match="not those that its manifest lists"):
        unpack_archive(other, tmp_path / "restored")
    assert names(tmp_path / "restored") == set()


def test_nothing_is_unpacked_outside_of_the_home(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("x")
    with tarfile.open(tmp_path / "file", "w:gz") as tar:
        tar.add(tmp_path / "evil", "../evil2")
    (tmp_path / "restored").mkdir()
    with pytest.raises(ArchiveError, match="not safe"):
        unpack_archive(tmp_path / "file", tmp_path / "restored")


def test_a_home_that_is_not_empty_and_a_file_that_exists_are_refused(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    make_backup(home, file)
    with pytest.raises(typer.Exit):
        restore(file, home)
    assert bodies(home) == ["one", "two"]
    before = file.read_bytes()
    with pytest.raises(Failure, match="there already"):
        make_backup(home, file)
    assert file.read_bytes() == before


def test_a_full_disk_leaves_no_half_file(home: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        fill(disk, leave=64 * 1024)
        with pytest.raises(Failure, match=r"disk of .* is full"):
            make_backup(home, disk / "backup.tar.gz")
        assert names(disk) == {"ballast"}
        file = tmp_path / "backup.tar.gz"
        make_backup(home, file)
        with pytest.raises(typer.Exit):
            restore(file, disk / "restored")
        assert names(disk) == {"ballast"}


def test_what_a_killed_backup_left_is_removed_by_the_next_one(home: Path, tmp_path: Path) -> None:
    # In a container, the next process has the same id.
    left = [tmp_path / f".tieline-backup-{name}" for name in (os.getpid(), os.getppid(), "a1b2")]
    for folder in left:
        folder.mkdir()
    (left[-1] / "lock").touch()
    with _staging(tmp_path) as ours:
        make_backup(home, tmp_path / "backup.tar.gz")
        assert ours.exists(), "a backup that is being made"
    assert names(tmp_path) == {"home", "backup.tar.gz"}


def test_a_folder_without_locks_gets_backups_too(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("tieline.cli.archive.fcntl.flock", fail)
    make_backup(home, tmp_path / "backup.tar.gz")
    assert names(tmp_path) == {"home", "backup.tar.gz"}


def make_older(home: Path) -> None:
    """Give the main database the number of the schema before the newest one."""
    with closing(sqlite3.connect(home / "tieline.db")) as database:
        database.execute(f"PRAGMA user_version = {newest_version('main') - 1}")


def test_an_upgrade_makes_a_backup_first_and_an_older_program_names_it(home: Path, tmp_path: Path) -> None:
    assert prepare_upgrade(home) == ""
    newest = newest_version("main")
    make_older(home)
    line = prepare_upgrade(home)
    (file,) = (home / "before-upgrade").iterdir()
    assert f"tieline.db {newest - 1} → {newest}." in line
    assert str(file) in line
    with closing(sqlite3.connect(home / "tieline.db")) as database:
        database.execute(f"PRAGMA user_version = {newest + 1}")
    assert prepare_upgrade(home) == ""
    with pytest.raises(StoreError) as refused:
        SqliteStore(home)
    assert f"tieline restore {file}" in refused.value.hint
    (tmp_path / "restored").mkdir()
    unpack_archive(file, tmp_path / "restored")
    with closing(sqlite3.connect(tmp_path / "restored" / "tieline.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (newest - 1,)


def test_the_next_try_of_an_upgrade_makes_a_new_backup(home: Path, tmp_path: Path) -> None:
    make_older(home)
    prepare_upgrade(home)
    # The new program did not start after all, and the older one went on.
    (home / "key").write_text("a later key")
    line = prepare_upgrade(home)
    (file,) = (home / "before-upgrade").iterdir()
    assert str(file) in line
    (tmp_path / "restored").mkdir()
    unpack_archive(file, tmp_path / "restored")
    assert (tmp_path / "restored" / "key").read_text() == "a later key"


def test_a_new_backup_replaces_only_those_of_the_same_schemas(home: Path) -> None:
    make_older(home)
    folder = home / "before-upgrade"
    folder.mkdir()
    old = newest_version("main") - 1
    same = f"{old}-{newest_version('activity')}-{newest_version('files')}"
    for name in (f"{same}.tar.gz", f"{same}-20200101T000000Z.tar.gz", "1-1-1.tar.gz"):
        (folder / name).touch()
    prepare_upgrade(home)
    first, second = sorted(names(folder))
    assert first == "1-1-1.tar.gz"
    assert second.startswith(f"{same}-20")
    assert not second.endswith("-20200101T000000Z.tar.gz")


def test_an_upgrade_in_a_container_makes_a_backup_although_the_process_id_is_the_old_one(home: Path) -> None:
    make_older(home)
    running = {"pid": os.getpid(), "version": "0", "http": "", "hub_socket": "", "store": "sqlite"}
    (home / "run.json").write_text(json.dumps(running))
    assert "To go back" in prepare_upgrade(home)


def test_a_program_that_is_too_old_names_the_newest_backup_that_it_can_restore(home: Path) -> None:
    newest = newest_version("main")
    (home / "before-upgrade").mkdir()
    for number, name in enumerate(
        (
            f"{newest}-1-1-20260201T000000Z.tar.gz",
            f"{newest - 1}-1-1-20260101T000000Z.tar.gz",
            f"{newest - 2}-1-1.tar.gz",
            f"{newest + 1}-1-1-20260301T000000Z.tar.gz",
        )
    ):
        (home / "before-upgrade" / name).touch()
        # A copy of a home may have lost the times of its files.
        os.utime(home / "before-upgrade" / name, (number, number))
    with closing(sqlite3.connect(home / "tieline.db")) as database:
        database.execute(f"PRAGMA user_version = {newest + 2}")
    with pytest.raises(StoreError) as refused:
        SqliteStore(home)
    assert f"/{newest}-1-1-20260201T000000Z.tar.gz" in refused.value.hint


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: a hub that starts in this process does not change the garbage collector."""
    monkeypatch.setattr("tieline.server.runtime.suspend_collector", lambda: None)


@pytest.mark.usefixtures("collector")
async def test_a_hub_that_refuses_its_configuration_makes_no_backup_before_an_upgrade(home: Path) -> None:
    make_older(home)
    with pytest.raises(Failure, match="TLS"):
        await _run(Options(home=home, http="0.0.0.0:0"), LogFile(home))
    assert not (home / "before-upgrade").exists()


@pytest.mark.usefixtures("collector")
async def test_a_folder_for_backups_that_cannot_be_used_stops_the_hub_before_it_is_ready(
    home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").touch()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        options = Options(home=home, http="127.0.0.1:0", backup={"every": "6h", "folder": str(folder / "file")})
        with pytest.raises(Failure, match=r"folder for backups .* cannot be used: .* is no folder") as refused:
            await _run(options, LogFile(home))
        assert "--backup-dir" in refused.value.hint
        with pytest.raises(BlockingIOError):
            manager.recv(100, socket.MSG_DONTWAIT)


def test_without_room_for_a_backup_an_upgrade_says_that_there_is_no_way_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_home: Path, _file: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tieline.cli.upgrade.write_archive", fail)
    with closing(sqlite3.connect(home / "tieline.db")) as database:
        database.execute("PRAGMA user_version = 1")
    assert "No space left on device" in prepare_upgrade(home)
