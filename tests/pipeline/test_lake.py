"""The lake: a commit appears whole or not at all, by one writer, and files that nobody needs go away."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tieline.pipeline.lake import Commit, DataFile, Lake, LakeError, follow, replaced


def write(lake: Lake, table: str, number: int, rows: int, part: int | None = None) -> list[DataFile]:
    folder = lake.new_folder(table, number)
    target = folder if part is None else folder / f"part={part}"
    target.mkdir(parents=True)
    parquet.write_table(pa.table({"n": list(range(rows))}), target / "a.parquet")
    return lake.adopt(folder)


def test_an_empty_lake_is_commit_zero(tmp_path: Path) -> None:
    assert Lake(tmp_path / "none").head() == Commit()


def test_readers_see_a_table_only_after_its_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.held():
        files = write(lake, "edges", 1, 3, part=86_400_000)
        assert lake.files("edges") == []
        lake.commit(follow(Commit(), position={"main": 3}, tables={"edges": files}))
    head = lake.head()
    assert (head.number, head.position, head.rows("edges")) == (1, {"main": 3}, 3)
    assert files[0].part == 86_400_000
    (path,) = lake.files("edges")
    assert parquet.read_table(path).num_rows == 3


def test_a_file_says_which_times_it_spans_if_that_is_asked_for(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    folder = lake.new_folder("messages", 1)
    folder.mkdir(parents=True)
    parquet.write_table(pa.table({"sent_ms": [30, 10, 20, 40]}), folder / "a.parquet", row_group_size=2)
    assert [file.span for file in lake.adopt(folder, "sent_ms")] == [(10, 40)]
    assert [file.span for file in lake.adopt(folder)] == [None]


def test_a_second_run_does_not_write_beside_the_first(tmp_path: Path) -> None:
    with Lake(tmp_path).held(), pytest.raises(LakeError, match="another run is writing"), Lake(tmp_path).held():
        pass


def test_a_commit_that_somebody_else_made_first_is_not_overwritten(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.held():
        first = follow(Commit(), position={"main": 1})
        lake.commit(first)
        with pytest.raises(LakeError, match="another run"):
            lake.commit(follow(Commit(), position={"main": 2}))
    assert lake.head() == first


def test_leftovers_are_swept_and_files_of_kept_commits_are_not(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.held():
        files = write(lake, "edges", 1, 3)
        commit = follow(Commit(), tables={"edges": files})
        lake.commit(commit)
        write(lake, "edges", 2, 5)
        assert lake.sweep() == 0
        assert lake.sweep(seconds=-1) == 1
        newer = write(lake, "edges", 2, 4)
        lake.commit(follow(commit, tables=replaced(commit.tables, "edges", files, newer)))
        assert lake.sweep(seconds=-1) == 0
    assert lake.head().rows("edges") == 4
    assert [parquet.read_table(path).num_rows for path in lake.files("edges")] == [4]


def test_old_commits_are_forgotten_when_an_hour_has_passed_since_the_next_one(tmp_path: Path) -> None:
    lake, commits = Lake(tmp_path), tmp_path / "_tieline" / "commits"
    commit = Commit()
    with lake.held():
        for _ in range(14):
            commit = follow(commit)
            lake.commit(commit)
        assert len(list(commits.iterdir())) == 14
        hours_ago = time.time() - 7200
        for number in (1, 2, 3):
            os.utime(commits / f"{number:08d}.json", (hours_ago, hours_ago))
        lake.commit(follow(commit))
    assert min(path.name for path in commits.iterdir()) == "00000003.json"
    assert lake.head().number == 15


def test_a_commit_that_is_damaged_is_told_of(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.held():
        lake.commit(follow(Commit()))
    (path,) = (tmp_path / "_tieline" / "commits").iterdir()
    path.write_text("{")
    with pytest.raises(LakeError, match="is damaged"):
        lake.head()


def test_rows_that_say_their_part_are_stored_in_its_folder(folder: Path) -> None:
    lake = Lake(folder)
    rows = pa.table({"x": [1, 2, 3], "at": [30, 10, 20], "part": [7, 0, 7]})
    files = lake.store("t", 1, rows, "at")
    assert [(file.part, file.rows, file.span) for file in files] == [(0, 1, (10, 10)), (7, 2, (20, 30))]
    assert parquet.read_table(folder / files[1].path, partitioning=None).to_pydict() == {"x": [1, 3], "at": [30, 20]}


def test_no_rows_are_no_file(folder: Path) -> None:
    lake = Lake(folder)
    assert lake.store("t", 1, pa.table({"x": pa.array([], pa.int64())})) == []
    assert not (folder / "t").exists()
