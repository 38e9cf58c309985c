"""Tests of the write-ahead log of the SQLite stores: commits find room in its file, and a copy of it is recovered."""

import shutil
from pathlib import Path

import pytest

from tests.conformance.store.writer import Writer
from tests.core.doubles import content
from tieline.stores.sqlite import SqliteStore, write_ahead_log
from tieline.stores.sqlite.store import MAIN_FILE

MIB = 1024 * 1024
WAL = f"{MAIN_FILE}-wal"


def writer_on(folder: Path, synchronous: str = "FULL") -> Writer:
    return Writer(lambda: SqliteStore(folder, synchronous=synchronous))


def committed(writer: Writer, folder: Path, body: str = "hello") -> int:
    """Commit one message. Return the size of the write-ahead log's file after it."""
    writer.accept(content("@bob", body))
    writer.store.commit()
    return (folder / WAL).stat().st_size


def test_commits_do_not_make_the_file_longer(tmp_path: Path) -> None:
    writer = writer_on(tmp_path)
    first = committed(writer, tmp_path)
    assert first >= MIB
    assert {committed(writer, tmp_path) for _ in range(20)} == {first}
    # A commit that needs more makes the file longer, and the next ones find room again.
    grown = committed(writer, tmp_path, "x" * 2 * MIB)
    assert grown > first + 2 * MIB
    assert {committed(writer, tmp_path) for _ in range(20)} == {grown}
    writer.store.close()


def test_the_file_is_as_long_as_its_pages_where_nothing_is_synced(tmp_path: Path) -> None:
    writer = writer_on(tmp_path, "OFF")
    assert committed(writer, tmp_path) < MIB
    writer.store.close()


def test_a_copy_of_the_files_has_all_commits_and_takes_more(tmp_path: Path) -> None:
    """A copy of the files of a running store is what a crash leaves."""
    here, there = tmp_path / "here", tmp_path / "there"
    writer = writer_on(here)
    for _ in range(10):
        committed(writer, here)
    there.mkdir()
    for name in (MAIN_FILE, WAL):
        shutil.copy(here / name, there / name)
    writer.store.close()
    again = writer_on(there)
    assert again.ledger.end == 10
    committed(again, there)
    assert again.crash().log_end == 11
    again.store.close()


def test_the_file_does_not_become_longer_than_checkpoints_let_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "CHECKPOINT_PAGES", 300)
    writer = writer_on(tmp_path)
    sizes = {committed(writer, tmp_path) for _ in range(300)}
    assert max(sizes) < 3 * MIB
    assert len(sizes) <= 3
    writer.store.close()
