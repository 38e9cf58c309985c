"""Tests of the lake: a batch becomes visible in all tables at once. There is one writer. Unused files are deleted."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import create_table_with_add_actions
from pyarrow import parquet

from tieline.pipeline.lake import COMMITS, SCHEMA_VERSION, Commit, Lake, LakeError
from tieline.pipeline.storage import DataFile, Storage
from tieline.pipeline.table import DAY_MS, HOUR_MS
from tieline.pipeline.tasks import TableWriter

SCHEMA = pa.schema([("n", pa.int64()), ("at_ms", pa.int64())])


def write(lake: Lake, number: int, *times: int) -> list[DataFile]:
    rows = pa.table({"n": [*range(len(times))], "at_ms": [*times]}, SCHEMA)
    return list(TableWriter(lake.storage, "edges", number, SCHEMA, "at_ms").write(iter([rows])))


def test_an_empty_lake_is_commit_zero(tmp_path: Path) -> None:
    assert Lake(tmp_path / "none").head() == Commit()
    assert Lake(tmp_path / "none").files("edges") == []


def test_readers_see_a_table_only_after_the_commit_of_all_tables(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.held():
        files = write(lake, 1, DAY_MS, DAY_MS + 1, 2 * DAY_MS)
        assert lake.note("edges", 1) is None
        lake.commit_table("edges", 1, SCHEMA, files, note={"end": {"main": 3}})
        assert lake.files("edges") == []
        assert lake.note("edges", 1) == {"end": {"main": 3}}
        lake.commit(lake.follow(Commit(), ["edges", "loops"], position={"main": 3}, engine="test"))
    head = lake.head()
    assert (head.number, head.position, head.rows("edges"), head.engine) == (1, {"main": 3}, 3, "test")
    assert head.versions == {"edges": 0}
    assert sorted((file.day, file.rows) for file in lake.data_files("edges")) == [("1970-01-02", 2), ("1970-01-03", 1)]
    assert sum(parquet.read_table(path, partitioning=None).num_rows for path in lake.files("edges")) == 3


def test_any_reader_of_delta_reads_a_table_and_the_commits(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit_table("edges", 1, SCHEMA, write(lake, 1, DAY_MS, 2 * DAY_MS))
    lake.commit(lake.follow(Commit(), ["edges"], position={"main": 2}))
    lake.commit_table("edges", 2, SCHEMA, write(lake, 2, 3 * DAY_MS))
    edges = lake.table("edges").to_pyarrow_dataset()
    assert duckdb.execute("SELECT count(*), min(day)::VARCHAR FROM edges").fetchall() == [(2, "1970-01-02")]
    assert edges.count_rows() == 2, "the second batch is not complete"
    commits = lake.table(COMMITS).to_pyarrow_dataset()
    assert duckdb.execute("SELECT number, position['main'] FROM commits").fetchall() == [(1, 2)]
    assert commits.count_rows() == 1


def test_a_reader_that_filters_gets_all_rows_also_by_columns_without_statistics_and_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = pa.schema([("word", pa.string()), ("cost", pa.int64()), ("at_ms", pa.int64())])
    wide = pa.schema([*narrow, ("late", pa.int64())])
    lake = Lake(tmp_path)

    def add(number: int, schema: pa.Schema) -> None:
        values = {"word": ["a", None], "cost": [None, 2], "at_ms": [DAY_MS, DAY_MS], "late": [None, 3]}
        rows = pa.table({name: values[name] for name in schema.names}, schema)
        files = list(TableWriter(lake.storage, "edges", number, schema, "at_ms").write(iter([rows])))
        lake.commit_table("edges", number, schema, files)

    with monkeypatch.context() as older:
        # The tables of an older program do not say which columns their statistics describe.
        def create(*args: Any, configuration: object, **options: Any) -> None:
            create_table_with_add_actions(*args, **options)

        older.setattr("tieline.pipeline.lake.create_table_with_add_actions", create)
        add(1, narrow)
    add(2, narrow)
    add(3, wide)
    edges = DeltaTable(tmp_path / "edges").to_pyarrow_dataset()  # DuckDB finds it by this name
    found = "SELECT count(*) FROM edges WHERE "
    for where, rows in {"word = 'a'": 3, "word IS NULL": 3, "cost IS NULL": 3, "cost = 2": 3, "late = 3": 1}.items():
        assert duckdb.execute(found + where).fetchone() == (rows,), where
    assert edges.count_rows() == 6


def test_a_file_says_which_values_it_spans(tmp_path: Path) -> None:
    (file,) = write(Lake(tmp_path), 1, 30, 10, 20, 40)
    assert (file.span("at_ms"), file.span("n")) == ((10, 40), (0, 3))
    assert file.is_of(1)
    assert not file.is_of(2)


def test_recent_rows_are_cut_by_the_hour_and_older_ones_by_the_day(tmp_path: Path) -> None:
    writer = TableWriter(Storage(str(tmp_path)), "edges", 1, SCHEMA, "at_ms", HOUR_MS, DAY_MS)
    times = [0, HOUR_MS, DAY_MS, DAY_MS + HOUR_MS, DAY_MS + HOUR_MS + 1]
    files = list(writer.write(iter([pa.table({"n": times, "at_ms": times}, SCHEMA)])))
    assert sorted((file.day, file.rows) for file in files) == [("1970-01-01", 2), ("1970-01-02", 1), ("1970-01-02", 2)]


def test_a_second_run_does_not_write_beside_the_first(tmp_path: Path) -> None:
    with Lake(tmp_path).held(), pytest.raises(LakeError, match="another run is writing"), Lake(tmp_path).held():
        pass


def test_a_commit_that_somebody_else_made_first_is_not_overwritten(tmp_path: Path) -> None:
    lake, other = Lake(tmp_path), Lake(tmp_path)
    first = lake.follow(Commit(), (), position={"main": 1})
    lake.commit(first)
    with pytest.raises(LakeError, match="another run"):
        other.commit(other.follow(Commit(), (), position={"main": 2}))
    assert lake.head() == first


def test_a_file_that_another_run_replaced_is_not_replaced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.commit_table("edges", 1, SCHEMA, write(lake, 1, 1))
    old = lake.data_files("edges")
    opened = lake._open("edges")
    lake.commit_table("edges", 2, SCHEMA, write(lake, 2, 2), old)
    files = write(lake, 2, 3)
    monkeypatch.setattr(lake, "_open", lambda *_: opened)
    with pytest.raises(LakeError, match="another run"):
        lake.commit_table("edges", 2, SCHEMA, files, old)
    monkeypatch.undo()
    assert [file.span("at_ms") for file in lake.data_files("edges")] == [(2, 2)]


def test_a_batch_that_another_run_committed_is_not_committed_again(tmp_path: Path) -> None:
    # Object stores have no lock: two runs may compute the same batch.
    lake = Lake(tmp_path)
    first, second = write(lake, 1, 1, 2), write(lake, 1, 1, 2)
    lake.commit_table("edges", 1, SCHEMA, first)
    with pytest.raises(LakeError, match="another run"):
        lake.commit_table("edges", 1, SCHEMA, second)
    assert [file.path for file in lake.data_files("edges")] == [file.path for file in first]
    lake.commit_table("edges", 1, SCHEMA, second, first, again=True)
    assert [file.path for file in lake.data_files("edges")] == [file.path for file in second]


def test_a_file_that_was_merged_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(1, 11):
        lake.commit_table("edges", number, SCHEMA, write(lake, number, number))
    read = lake.data_files("edges")
    lake.compact(["edges"], "1970-01-02")
    with pytest.raises(LakeError, match="edges has changed since this run read it"):
        lake.commit_table("edges", 11, SCHEMA, write(lake, 11, 1), read)
    assert sum(file.rows for file in lake.data_files("edges")) == 10


def test_a_table_of_a_batch_in_progress_cannot_be_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(lake.follow(Commit(), ()))
    lake.commit_table("edges", 2, SCHEMA, write(lake, 2, 1))
    with pytest.raises(LakeError, match="no table 'edges'"):
        lake.table("edges")


def test_leftovers_are_swept_and_files_of_the_tables_are_not(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit_table("edges", 1, SCHEMA, write(lake, 1, 1, 2, 3))
    commit = lake.commit(lake.follow(Commit(), ["edges"]))
    write(lake, 2, 1, 2, 3, 4, 5)
    assert lake.sweep(["edges", "loops"]) == 0
    assert lake.sweep(["edges", "loops"], hours=0) == 1
    lake.commit_table("edges", 2, SCHEMA, write(lake, 2, 1, 2, 3, 4), lake.data_files("edges"))
    lake.commit(lake.follow(commit, ["edges"]))
    assert lake.sweep(["edges"]) == 0
    assert lake.head().rows("edges") == 4
    assert [parquet.read_table(path, partitioning=None).num_rows for path in lake.files("edges")] == [4]


def test_small_files_of_a_day_become_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for number in range(1, 11):
        lake.commit_table("edges", number, SCHEMA, write(lake, number, number, DAY_MS + number))
    lake.compact(["edges"], "1970-01-02")
    assert [(file.day, file.rows) for file in lake.data_files("edges") if file.day == "1970-01-01"] == [
        ("1970-01-01", 10)
    ]
    assert len([file for file in lake.data_files("edges") if file.day == "1970-01-02"]) == 10
    assert lake.data_files("edges")[0].span("at_ms")[1] > 0


def test_the_last_commits_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tieline.pipeline.lake._COMMITS_KEPT", 4)
    lake = Lake(tmp_path)
    commit = Commit()
    for _ in range(6):
        commit = lake.commit(lake.follow(commit, ()))
    assert [one.number for one in lake._commits()] == [3, 4, 5, 6]


def test_a_damaged_lake_is_told_of_with_the_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(lake.follow(Commit(), ()))
    (path,) = (tmp_path / COMMITS).glob("*.parquet")
    path.write_text("{")
    with pytest.raises(LakeError, match=f"{path.name} is damaged"):
        lake.head()
    path.unlink()
    with pytest.raises(LakeError, match=f"{path.name} is damaged or missing"):
        lake.head()
    (log,) = (tmp_path / COMMITS / "_delta_log").glob("*.json")
    log.write_text("{")
    with pytest.raises(LakeError, match="is damaged"):
        lake.head()
    shutil.rmtree(tmp_path / COMMITS)
    assert lake.head() == Commit()


def test_a_lake_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(msgspec.structs.replace(lake.follow(Commit(), ()), schema_version=SCHEMA_VERSION + 1))
    with pytest.raises(LakeError, match="newer version"):
        lake.head()


def test_a_lake_of_an_older_version_says_which_tables_have_other_columns(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.commit(msgspec.structs.replace(lake.follow(Commit(), ()), schema_version=2))
    with pytest.raises(LakeError, match=r"activity, deliveries, failures.*'tieline pipeline rebuild --all'"):
        lake.head()
    assert lake.newest().number == 1


def test_a_table_of_an_older_version_gets_its_new_columns_with_the_rows(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    old, new = pa.schema([("day_ms", pa.int64())]), pa.schema([("day_ms", pa.int64()), ("more", pa.string())])
    with lake.held():
        (first,) = TableWriter(lake.storage, "edges", 1, old, "day_ms").write(iter([pa.table({"day_ms": [1]}, old)]))
        lake.commit_table("edges", 1, old, [first])
        rows = pa.table({"day_ms": [1], "more": ["x"]}, new)
        files = list(TableWriter(lake.storage, "edges", 2, new, "day_ms").write(iter([rows])))
        lake.commit_table("edges", 2, new, files, [first])
        lake.commit(lake.follow(Commit(), ["edges"]))
    assert lake.table("edges").to_pyarrow_table(columns=["day_ms", "more"]).to_pylist() == rows.to_pylist()
    assert lake.note("edges", 2) == {}


def test_small_files_of_the_lake_appear_whole(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert storage.read("report.json") is None
    storage.write("_tieline/told.json", b"{}")
    storage.write("_tieline/told.json", b"{1}")
    assert storage.read("_tieline/told.json") == b"{1}"
    assert [path.name for path in (tmp_path / "_tieline").iterdir()] == ["told.json"]
