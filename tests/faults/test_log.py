"""Tests of a broker killed with kill -9 while it moves readers, deletes rows and frees space.

Positions of readers stay, and the deleted rows that a reader missed are counted exactly.
"""

import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.processes import ROOT, SOAK
from tieline.core.audit import verify
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.inspection import open_inspection
from tieline.stores.sqlite.words import SENT

ROUNDS = 40 if SOAK else 3

pytestmark = pytest.mark.slow


def killed_run(folder: Path, lines: int) -> int:
    """Run the process `log_victim` until it has printed `lines` lines, and kill it.

    Return the last position it printed.
    """
    command = [sys.executable, "-m", "tests.faults.log_victim", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        printed = "".join(victim.stdout.readline() for _ in range(lines))
        victim.send_signal(signal.SIGKILL)
        printed += victim.stdout.read()
    return max(int(line) for line in printed.split() if line.isdecimal())


def gone(folder: Path) -> list[int]:
    """Return the log offsets of sent messages whose content was deleted, in order."""
    with closing(sqlite3.connect(folder / "tieline.db")) as database:
        kept = {row[0] for row in database.execute("SELECT offset FROM message")}
    with closing(open_inspection(folder)) as inspection:
        return [row.offset for row in inspection.rows() if row.event.startswith(SENT) and row.offset not in kept]


def test_a_kill_at_any_instant_leaves_positions_gaps_and_the_chain_right(tmp_path: Path) -> None:
    chance = random.Random(7)
    folder = tmp_path / "home"
    missed = 0
    for _ in range(ROUNDS):
        position = killed_run(folder, chance.randrange(25, 60))
        store = SqliteStore(folder)
        store.restore()
        (reader,) = store.readers.rows()
        assert reader.position >= position, "a position that was answered is lost"
        deleted = gone(folder)
        assert store.readers.kept_from == (deleted[-1] + 1 if deleted else 0)
        assert reader.missed >= missed
        if reader.missed:
            assert reader.missed_last in deleted
            assert reader.missed_first in deleted
        # Nobody deleted an unread message without counting it.
        unread = [offset for offset in deleted if offset >= reader.position]
        assert reader.missed - missed >= len(unread) or not unread
        missed = reader.missed
        store.close()
        with closing(open_inspection(folder)) as inspection:
            report = verify(inspection)
        assert report.intact, report.findings
        with closing(sqlite3.connect(folder / "tieline.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert missed, "retention never passed the reader"
