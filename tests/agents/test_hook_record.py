"""Tests of the record file that all hooks of one agent session share.

Only one hook at a time uses the record. The record does not count any more when the agent's program has ended.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tieline.agents.hook_record import FOLDER_VARIABLE, Process, Record, locked_record, process_of, sweep


@pytest.fixture(autouse=True)
def outside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def ended() -> Process:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = process_of(child.pid)
        assert process is not None
        assert process.is_alive
    assert not process.is_alive
    return process


def test_what_one_hook_writes_the_next_one_reads(tmp_path: Path) -> None:
    with locked_record(tmp_path / "hooks", "s") as record:
        record.shown.append("a")
    with locked_record(tmp_path / "hooks", "s") as record:
        assert record.shown == ["a"]
        record.shown.clear()
    assert list((tmp_path / "hooks").iterdir()) == [], "nothing to remember"


def test_sessions_are_apart_whatever_their_names_are(tmp_path: Path) -> None:
    for session in ("../../x", "a/b", "x" * 10_000):
        with locked_record(tmp_path / "hooks", session) as record:
            assert record.shown == []
            record.shown.append(session)
    assert len(list((tmp_path / "hooks").iterdir())) == 3


def test_hooks_at_the_same_time_take_turns(tmp_path: Path) -> None:
    def hook(name: str) -> None:
        for number in range(50):
            with locked_record(tmp_path, "s") as record:
                record.shown.append(f"{name}{number}")

    hooks = [threading.Thread(target=hook, args=(name,)) for name in "abcd"]
    for one in hooks:
        one.start()
    for one in hooks:
        one.join()
    with locked_record(tmp_path, "s") as record:
        assert len(set(record.shown)) == 200


def test_a_record_of_a_program_that_ended_counts_no_more(tmp_path: Path) -> None:
    with locked_record(tmp_path, "s") as record:
        record.program, record.shown = ended(), ["a"]
    with locked_record(tmp_path, "t") as record:
        record.shown = ["b"]
    with locked_record(tmp_path, "s") as record:
        assert record == Record(record.program)
        record.program, record.shown = ended(), ["a"]
    assert len(list(tmp_path.iterdir())) == 2
    sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"shown": 1}'])
def test_a_file_that_was_cut_off_is_a_new_record(tmp_path: Path, content: bytes) -> None:
    with locked_record(tmp_path, "s") as record:
        record.shown = ["a"]
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with locked_record(tmp_path, "s") as record:
        assert record.shown == []


def test_a_file_of_a_hook_that_was_killed_before_it_wrote_is_removed_unless_it_is_open(tmp_path: Path) -> None:
    (tmp_path / "left").touch()
    with locked_record(tmp_path, "s") as record:
        sweep(tmp_path)
        record.shown = ["a"]
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size > 0


def test_the_folder_of_a_run_that_is_over_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "run"))
    with pytest.raises(FileNotFoundError), locked_record(tmp_path / "run" / "hooks", "s"):
        pass
    sweep(tmp_path / "run" / "hooks")
    assert list(tmp_path.iterdir()) == []


def test_another_process_with_the_same_id_is_another() -> None:
    me = process_of(os.getpid())
    assert me is not None
    assert me.is_alive
    assert not Process(me.pid, "1").is_alive
    assert not Process(0, "").is_alive
