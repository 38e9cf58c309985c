"""Tests of a home from an older version of the hub (commit 9854711).

It starts, its audit chain is valid, and no waiting message is lost.
"""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import namedtuple
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from structlog.testing import capture_logs

from tests.core.doubles import BrokerHarness
from tieline.cli.doctor_log import logs
from tieline.contract import command as c
from tieline.contract.reply import Readers
from tieline.core.audit import AuditReport, verify
from tieline.core.store import StoreError
from tieline.stores.sqlite import SqliteActivity, SqliteStore
from tieline.stores.sqlite.database import INCREMENTAL, newest_version
from tieline.stores.sqlite.inspection import open_inspection

ROOT = Path(__file__).parents[2]
DUMPS = Path(__file__).with_name("homes") / "9854711"
OLD_ROWS = 13
WAITING = [(3, 6), (4, 10)]
"""Key and log offset of each delivery that bob has not acknowledged."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Fixture: the home of an older version of the hub, which has stopped."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("tieline", "activity"):
        with closing(sqlite3.connect(folder / f"{name}.db")) as database:
            database.executescript((DUMPS / f"{name}.sql").read_text())
    return folder


def audited(home: Path) -> AuditReport:
    with closing(open_inspection(home)) as inspection:
        return verify(inspection)


def modes(home: Path) -> list[object]:
    found = []
    for name in ("tieline.db", "activity.db"):
        with closing(apsw.Connection(str(home / name))) as connection:
            found.append(connection.pragma("auto_vacuum"))
    return found


def test_it_verifies_before_its_first_start(home: Path) -> None:
    report = audited(home)
    assert report.intact, report.findings
    assert (report.rows, report.messages, report.times_from) == (OLD_ROWS, 4, OLD_ROWS)


def test_it_starts_keeps_what_waited_and_verifies_with_times_from_then_on(home: Path) -> None:
    harness = BrokerHarness(lambda: SqliteStore(home, synchronous="OFF"))
    bob = harness.attach("bob")
    assert [(delivery.key, delivery.message.offset) for delivery in harness.fetch(bob)] == WAITING
    assert harness.bodies(bob)[0] == "hello 2"
    harness.send(harness.attach("alice"), "@bob", "new")
    harness.advance(bob, 3)
    harness.restart()
    assert harness.bodies(harness.attach("bob"))[-1] == "new"
    harness.broker.close()
    report = audited(home)
    assert report.intact, report.findings
    assert report.times_from == OLD_ROWS
    assert report.rows > OLD_ROWS
    with closing(sqlite3.connect(home / "tieline.db")) as database, database:
        database.execute("UPDATE log SET at_ms = at_ms + 10800000 WHERE offset = ?", (OLD_ROWS,))
    assert [finding.offset for finding in audited(home).findings] == [OLD_ROWS]


def test_its_logs_get_epochs_and_can_shrink(home: Path) -> None:
    assert modes(home) == [0, 0]
    with capture_logs() as told:
        harness = BrokerHarness(lambda: SqliteStore(home, synchronous="OFF"))
        activity = SqliteActivity(home, synchronous="OFF")
    assert [line["database"] for line in told if "rewritten once" in line["event"]] == ["tieline.db", "activity.db"]
    main = harness.expect(Readers, c.ListReaders(harness.operator)).logs[0]
    assert (len(main.epoch), main.kept_from, main.end) == (32, 0, OLD_ROWS)
    assert activity.restore() == 1
    assert len(activity.readers.epoch) == 32
    activity.close()
    harness.broker.close()
    assert modes(home) == [INCREMENTAL, INCREMENTAL]


def test_messages_that_were_deleted_before_the_upgrade_are_known_to_be_gone(home: Path) -> None:
    with closing(sqlite3.connect(home / "tieline.db")) as database, database:
        database.execute("DELETE FROM message WHERE offset = 3")
    store = SqliteStore(home, synchronous="OFF")
    assert store.readers.kept_from == 4
    store.close()


def test_on_a_full_disk_it_starts_without_being_rewritten_and_the_doctor_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(1 << 30, 1 << 30, 100_000))
    with capture_logs() as told:
        for store in (SqliteStore(home, synchronous="OFF"), SqliteActivity(home, synchronous="OFF")):
            store.restore()
            store.close()
    assert [line["log_level"] for line in told if "too little room" in line["event"]] == ["warning"] * 1
    assert modes(home)[0] == 0
    found = [finding for finding in logs(home) if "cannot give free space back" in finding.what]
    assert "MiB more on its disk" in found[0].do
    monkeypatch.undo()
    SqliteStore(home, synchronous="OFF").close()
    assert modes(home)[0] == INCREMENTAL


def test_an_older_program_refuses_the_newer_home_with_a_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(home, synchronous="OFF").close()
    known = newest_version("main")
    with closing(apsw.Connection(str(home / "tieline.db"))) as connection:
        assert connection.pragma("user_version") == known > 5
        connection.pragma("user_version", known + 1)
    with pytest.raises(StoreError, match="newer Tieline"):
        SqliteStore(home, synchronous="OFF")


REWRITER = """
import sys
from pathlib import Path
from tieline.stores.sqlite import SqliteStore

print("begin", flush=True)
SqliteStore(Path(sys.argv[1]), synchronous="OFF").close()
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_kill_while_a_home_is_rewritten_loses_nothing(home: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home / "tieline.db")) as database, database:
        database.execute("CREATE TABLE ballast (filling BLOB)")
        database.executemany("INSERT INTO ballast VALUES (randomblob(100000))", [()] * 400)
    cut = 0
    for delay in (0.0, 0.05, 0.1):
        copy = tmp_path / f"copy-{delay}"
        shutil.copytree(home, copy)
        command = [sys.executable, "-c", REWRITER, str(copy)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "begin\n"
            try:
                victim.wait(delay)
            except subprocess.TimeoutExpired:
                cut += 1
            victim.send_signal(signal.SIGKILL)
        store = SqliteStore(copy, synchronous="OFF")
        assert store.restore().log_end == OLD_ROWS
        store.close()
        assert audited(copy).intact
        assert modes(copy)[0] == INCREMENTAL
    assert cut, "no kill hit the rewriting"
