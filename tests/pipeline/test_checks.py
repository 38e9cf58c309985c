"""Tests of the catalogue, and of the tests that the tables pass after each commit."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from typer.testing import CliRunner

from tests.cli.printed import assert_shape
from tests.pipeline.lakes import DAY, START, busy, copied, lake_of
from tieline.cli.main import make_app
from tieline.pipeline.alerts import find_alerts
from tieline.pipeline.arrow_tables import ArrowTables
from tieline.pipeline.catalogue import SCHEMAS, STORED, TIMES, about, described, sources
from tieline.pipeline.checks import check_tables, read_checked
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report
from tieline.pipeline.run import run
from tieline.pipeline.tasks import TableWriter

pytestmark = pytest.mark.slow  # each test writes a lake

DOCS = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
MEMBER = {"day_ms": 20_000 * DAY, "member": "bob", "sent": 1, "received": 0, "departed": 0, "exchanges": 0}
STORM = {"minute_ms": START, "sender": "bob", "messages": 1, "deliveries": 1, "storm": False}
EDGE = {"day_ms": 20_000 * DAY, "sender": "a", "recipient": "b", "messages": 0, "answers": 0}


def test_every_table_and_column_has_a_meaning_and_a_source() -> None:
    for name in SCHEMAS:
        assert about(name).startswith("One row for "), name
        assert set(sources(name)) <= {*SCHEMAS, "log main", "log activity"}
        assert all(column["meaning"].endswith(".") for column in described(name)), name


def test_the_documentation_lists_every_table() -> None:
    section = DOCS.read_text().partition("| table | one row for")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \| ", section, re.MULTILINE)
    assert listed == list(SCHEMAS)


def test_a_key_that_is_twice_there_is_found_and_is_an_alert(folder: Path) -> None:
    lake = lake_of(folder, {"edges": [EDGE, EDGE], "storms": [STORM], "members": [MEMBER]})
    (failed,) = check_tables(lake).failed
    assert (failed.table, failed.check) == ("edges", "unique: day_ms, sender, recipient")
    report = make_report(lake)
    assert report.failed_checks == [failed]
    (alert,) = (alert for alert in find_alerts(report) if alert.kind == "check")
    assert alert.what.startswith("A test of the table edges failed: rows of edges have the same day_ms, sender, recip")
    assert alert.what.endswith("'tieline pipeline rebuild --all' mends the tables.")


@pytest.mark.parametrize("table", ["bronze", "messages", "deliveries"])
def test_a_row_that_an_earlier_batch_had_is_found_and_other_files_are_not_read(
    folder: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(offset: int) -> dict[str, Any]:
        return {"log": "main", "offset": offset, "number": 1, "key": offset, "at_ms": START, "sent_ms": START}

    lake = lake_of(folder, {table: [row(offset) for offset in range(5)], "members": [{**MEMBER, "sent": 0}]})
    older = {path.removeprefix(f"{folder}/") for path in lake.files(table)}
    read = set[str]()
    plain = ArrowTables._read

    def noted(self: ArrowTables, files: Any, *rest: Any) -> pa.Table:
        read.update(file.path for file in files)
        return plain(self, files, *rest)

    monkeypatch.setattr(ArrowTables, "_read", noted)
    for first, again in ((5, False), (4, True)):
        check_tables(lake)
        read.clear()
        add(lake, table, [row(offset) for offset in range(first, first + 5)])
        assert [one.table for one in check_tables(lake).failed if one.check.startswith("unique")] == [table] * again
        assert bool(read & older) == again


def add(lake: Lake, table: str, rows: list[dict[str, Any]]) -> None:
    """Add a batch with these rows of one table to a lake, without changing what the lake has."""
    head, schema = lake.head(), to_arrow_schema(STORED[table])
    writer = TableWriter(lake.storage, table, head.number + 1, schema, TIMES[table])
    columns = {name: [row.get(name) for row in rows] for name in schema.names}
    files = list(writer.write(iter([pa.Table.from_pydict(columns, schema)])))
    # The clock must have gone on since the last test of the tables, as it has between two runs.
    while time.time_ns() // 1_000_000 <= head.at_ms:
        pass
    lake.commit_table(table, head.number + 1, schema, files)
    lake.commit(lake.follow(head, [*head.versions], position=head.position))


def test_sums_that_differ_are_found(folder: Path) -> None:
    moves = {"member": "bob", "minute_ms": START, "arrived": 2, "departed": 1}
    waits = {**MEMBER, "received": 1, "departed": 2}
    lake = lake_of(folder, {"storms": [STORM], "backlog": [moves], "members": [waits]})
    assert {(one.table, one.what) for one in check_tables(lake).failed} == {
        ("backlog", "on 2024-10-04 backlog.arrived is 2 and members.received is 1"),
        ("backlog", "on 2024-10-04 backlog.departed is 1 and members.departed is 2"),
        ("members", "more left than arrived for bob"),
        ("members", "members received 1 deliveries, and there are 0"),
    }


def test_only_what_was_written_since_is_tested(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of(folder, {"edges": [EDGE], "storms": [STORM], "members": [MEMBER]})
    assert check_tables(lake).failed == []
    monkeypatch.setattr("tieline.pipeline.checks._Tests.of", lambda *_: pytest.fail("nothing is new"))
    assert check_tables(lake) == read_checked(lake)


def test_the_command_shows_tables_columns_and_tests(folder: Path) -> None:
    busy(folder)
    said = CliRunner().invoke(make_app(), ["pipeline", "tables", "--lake", str(folder), "--json"])
    assert_shape("pipeline tables", said.stdout)
    found = {one["table"]: one for one in json.loads(said.stdout)}
    assert list(found) == list(SCHEMAS)
    assert found["edges"]["rows"] == 3
    assert found["edges"]["from"] == ["deliveries", "messages"]
    assert found["edges"]["newest_day"] == "2024-10-05"
    said = CliRunner().invoke(make_app(), ["pipeline", "tables", "members", "--lake", str(folder)])
    assert "heard_ms" in said.stdout
    assert "Tests (not run):" in said.stdout
    said = CliRunner().invoke(make_app(), ["pipeline", "tables", "--lake", str(folder), "--check"])
    assert said.exit_code == 1
    assert "A test of threads failed" in said.stderr
    said = CliRunner().invoke(make_app(), ["pipeline", "tables", "edgs", "--lake", str(folder)])
    assert (said.exit_code, "there is no table 'edgs'" in said.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tables_of_a_run_and_of_the_next_one_pass(
    spark: SparkSession, filled: Lake, begun: Lake, made_home: Path, tmp_path: Path
) -> None:
    assert check_tables(filled, everything=True).failed == []
    assert set(read_checked(filled).passed) == set(filled.head().versions)
    lake = copied(begun, tmp_path / "lake")
    assert check_tables(lake).failed == []
    run(spark, lake, {"home": str(made_home)})
    assert check_tables(lake).failed == []
    assert read_checked(lake).commit == lake.head().number
