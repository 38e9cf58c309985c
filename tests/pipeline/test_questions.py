"""Tests of the commands that read tables: their output, and the errors for bad queries."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from bench.synth import Generator
from tests.cli.printed import assert_shape
from tests.pipeline.audits import change, copied, drop, link, rows, swap
from tests.server.hubs import running_hub
from tieline.cli.checkpoints import Checkpoints
from tieline.cli.main import make_app
from tieline.core.checkpoints import Checkpoint
from tieline.pipeline import verify as audit
from tieline.pipeline.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Ask = Callable[..., Result]


@pytest.fixture
def ask(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Fixture: a function that runs a `tieline pipeline` command in this process, with the tests' Spark session."""
    monkeypatch.setattr("tieline.pipeline.session.start_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def invoke(*arguments: object) -> Result:
        done = CliRunner().invoke(make_app(), ["pipeline", *map(str, arguments)])
        if "--json" in arguments and done.exit_code == 0:
            assert_shape(f"pipeline {arguments[0]}", done.stdout.splitlines()[-1])
        return done

    return invoke


def sentence(result: Result, code: int) -> str:
    """Return the error line of a command that failed with this exit code. A hint may follow the line."""
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    lines = result.stderr.splitlines()
    assert len(lines) <= 2, lines
    assert lines[0].startswith("tieline: ")
    assert "java" not in result.stderr.lower()
    assert "Traceback" not in result.stderr
    return lines[0].removeprefix("tieline: ")


def test_a_question_is_answered_as_a_table_or_as_json(ask: Ask, filled: Lake) -> None:
    query = "select sender, sum(messages) as n, null as nothing, array(1, 2) as two from edges group by 1 order by 2, 1"
    answered = json.loads(ask("sql", query, "--lake", filled.path, "--json").stdout)
    assert sum(row["n"] for row in answered) == filled.head().rows("deliveries")
    assert answered[0] | {"sender": "", "n": 0} == {"sender": "", "n": 0, "nothing": None, "two": [1, 2]}
    head, *lines = ask("sql", query, "--lake", filled.path).stdout.splitlines()
    assert re.split(r"\s+", head) == ["SENDER", "N", "NOTHING", "TWO"]
    assert [re.split(r"\s+", line) for line in lines] == [[row["sender"], str(row["n"]), "[1,2]"] for row in answered]
    assert ask("sql", "select 1 as a where false", "--lake", filled.path).stdout == "no rows\n"
    assert "edges" in ask("sql", "show tables", "--lake", filled.path).stdout
    many = ask("sql", "select id from range(1001)", "--lake", filled.path, "--json")
    assert len(json.loads(many.stdout)) == 1000
    assert "there are more" in many.stderr


def test_a_question_that_is_none_gets_a_sentence(ask: Ask, filled: Lake, tmp_path: Path) -> None:
    at = ("--lake", filled.path)
    assert "Syntax error at or near" in sentence(ask("sql", "selec 1", *at), 1)
    assert "`no_such`" in sentence(ask("sql", "select no_such from edges", *at), 1)
    assert "Division by zero" in sentence(ask("sql", "select 1 / 0", *at), 1)
    unknown = ask("sql", "select * from edgs", *at)
    assert sentence(unknown, 2) == "there is no table 'edgs'"
    assert "hint: there are activity, backlog, bronze" in unknown.stderr
    assert "there is no table 'edgs'" in sentence(ask("rebuild", "edgs", *at), 2)
    for command in (("sql", "select 1"), ("rebuild", "edges"), ("report",)):
        empty = ask(*command, "--lake", tmp_path / "none")
        assert "is empty" in sentence(empty, 1)
        assert "'tieline pipeline run' fills it" in empty.stderr


def test_a_statement_that_writes_is_refused(ask: Ask, filled: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for statement in (
        f"insert overwrite directory '{out}' using csv select 1",
        f"with one as (select 1) insert overwrite directory '{out}' using csv select * from one",
        f"from edges insert overwrite directory '{out}' using csv select 1 insert into loops select 2",
        f"create table other using parquet location '{out}' as select 1",
        "insert into edges select * from edges",
        "drop view edges",
        "set spark.sql.ansi.enabled = false",
        f"add jar '{out}'",
        f"execute immediate 'insert overwrite directory ''{out}'' using csv select 1'",
    ):
        assert "only questions are answered" in sentence(ask("sql", statement, "--lake", filled.path), 2), statement
    assert not out.exists()


def test_a_question_reaches_nothing_but_the_tables(ask: Ask, filled: Lake, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    java = "('java.lang.System', 'getProperty', 'user.home')"
    for statement, says in (
        (f"select * from text.`{secret}`", "no text files"),
        (f"select * from edges join csv . `{secret}`", "no csv files"),
        (f"select * from `parquet`.`{secret}`", "no parquet files"),
        (f"describe text.`{secret}`", "no text files"),
        (f"explain select * from binaryFile.`{secret}`", "no binaryfile files"),
        (f"select * from read_files('{secret}')", "read_files cannot be used"),
        (f"select reflect{java}", "reflect cannot be used"),
        (f"select `Reflect` /* */ {java}", "reflect cannot be used"),
        (f"select system.builtin.java_method{java}", "java_method cannot be used"),
        (f"select try_reflect{java}", "try_reflect cannot be used"),
        # A raw text ends at its first quote.
        (f"select r'\\', reflect{java}", "reflect cannot be used"),
        (f"select identifier('refl' || 'ect'){java}", "identifier cannot be used"),
        ("create temporary function f as 'java.lang.Object'", "only questions"),
        ("create temporary function f(a int) returns int return a + 1", "only questions"),
        ("declare variable a int", "only questions"),
        ("reset spark.sql.runSQLOnFiles", "only questions"),
        ("set spark.sql.runSQLOnFiles = true", "only questions"),
    ):
        refused = ask("sql", statement, "--lake", filled.path)
        assert (refused.exit_code, refused.stdout) == (2, ""), statement
        assert says in refused.stderr, statement


def test_spark_itself_reads_no_files_as_tables(
    ask: Ask, filled: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("secret\n")
    monkeypatch.setattr("tieline.pipeline.question._require_inside", lambda query: None)
    named = ask("sql", f"select * from text.`{tmp_path}/secret`", "--lake", filled.path)
    assert sentence(named, 2) == f"there is no table 'text.{tmp_path}/secret'"


def test_a_lake_that_another_run_writes_to_is_left_alone(
    ask: Ask, spark: SparkSession, made_home: Path, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    with lake.held():
        said = sentence(ask("run", "--home", made_home, "--lake", lake.path), 1)
    assert said == f"another run is writing to {lake.path}; wait for it, or name another lake"
    assert lake.head().number == 0


def test_a_table_is_rebuilt_and_its_rows_are_told(ask: Ask, spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "h"
    Generator(home, 300, seed=2).run()
    lake = Lake(home / "lake")
    told = ask("run", "--home", home, "--json")
    summary = json.loads(told.stdout)
    assert summary["events_read"] == lake.head().rows("bronze")
    assert told.stderr == ""
    assert json.loads(ask("rebuild", "edges", "--home", home, "--json").stdout) == {
        "table": "edges", "rows": lake.head().rows("edges")
    }  # fmt: skip
    status = json.loads(ask("status", "--home", home, "--json").stdout)
    assert (status["commit"], status["waiting"]) == (2, 0)
    assert status["tables"]["edges"]["rows"] == lake.head().rows("edges")
    assert "0 rows wait" in ask("status", "--home", home).stdout
    assert ask("run", "--home", home).stdout == f"Nothing new: {lake.path} is up to date.\n"
    assert json.loads(ask("run", "--home", home, "--json").stdout)["batches"] == 0


# The audit.


@pytest.fixture
async def kept(folder: Path) -> Path:
    """Fixture: a home with a log and two checkpoints of the log."""
    home = folder / "h"
    async with running_hub(home) as hub:
        await hub.add("ada", "bob")
        ada = await hub.join("ada")
        for number in range(20):
            await ada.send("@bob", f"number {number}")
    with rows(home) as database:
        heads = [head.hex() for (head,) in database.execute("SELECT hash FROM log ORDER BY offset")]
    checkpoints = Checkpoints(home)
    for end in (10, len(heads)):
        checkpoints.add(end, heads[end - 1])
    return home


def audited(ask: Ask, home: Path, *more: object) -> list[tuple[int, str, str]]:
    result = ask("verify", "--home", home, "--json", *more)
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert result.exit_code == (0 if found["intact"] else 1), result.stderr
    return [(one["offset"], one["kind"], one["what"]) for one in found["findings"]]


def test_an_audit_compares_the_log_with_checkpoints_and_those_with_their_key(
    ask: Ask, kept: Path, tmp_path: Path
) -> None:
    path = kept / "checkpoints.jsonl"
    lines = path.read_bytes().splitlines()
    first, second = (msgspec.json.decode(line, type=Checkpoint) for line in lines)
    assert audited(ask, kept) == []
    said = ask("verify", "--home", kept)
    with rows(kept) as database:
        (count,) = database.execute("SELECT count(*) FROM log").fetchone()
    assert said.stdout == f"Intact: {count} rows, 20 messages.\n"
    # A tail that was cut off, with everything that belonged to it.
    cut = copied(kept, tmp_path / "cut", "audit.key", "checkpoints.jsonl")
    with rows(cut) as database:
        database.execute("DELETE FROM log WHERE offset >= ?", (first.rows,))
        database.execute("DELETE FROM message WHERE offset >= ?", (first.rows,))
    short = f"the log is cut off: it ends at row {first.rows}, and had {second.rows} rows at a checkpoint"
    assert audited(ask, cut) == [(first.rows, "checkpoint", short)]
    # The same, by somebody who took the checkpoint away as well; one that was kept elsewhere tells.
    (cut / "checkpoints.jsonl").write_bytes(lines[0] + b"\n")
    assert audited(ask, cut) == []
    (tmp_path / "elsewhere").write_bytes(lines[1])
    lost = f"the home has lost the checkpoint of row {second.rows}"
    assert audited(ask, cut, "--checkpoint", tmp_path / "elsewhere") == [
        (first.rows, "checkpoint", short), (first.rows, "checkpoint", lost)
    ]  # fmt: skip
    # A checkpoint that nobody signed, and one that is missing before another.
    forged = msgspec.structs.replace(second, rows=second.rows - 1)
    path.write_bytes(lines[0] + b"\n" + msgspec.json.encode(forged))
    assert (count, "checkpoint", f"checkpoint 2, of row {forged.rows}, was not signed by this home's key") in audited(
        ask, kept
    )
    path.write_bytes(lines[1])
    assert audited(ask, kept)[0][2] == f"a checkpoint before checkpoint 1, of row {second.rows}, is missing"
    # A history that was written anew is a chain, and not the one of the checkpoint.
    path.write_bytes(b"\n".join(lines))
    with rows(kept) as database:
        change(database, first.rows - 2)
        link(database, first.rows - 2)
    found = {(offset, kind) for offset, kind, _ in audited(ask, kept)}
    assert {(first.rows - 1, "checkpoint"), (second.rows - 1, "checkpoint")} <= found
    assert (first.rows - 2, "chain") not in found


def test_several_things_that_are_wrong_are_all_told_up_to_a_number(
    ask: Ask, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rows(kept) as database:
        (last,) = database.execute("SELECT max(offset) FROM log").fetchone()
        for damage, offset in ((change, 0), (drop, 7), (change, 10), (swap, 14), (drop, last - 1)):
            damage(database, offset)
    kinds = {(offset, kind) for offset, kind, _ in audited(ask, kept)}
    assert {(0, "chain"), (7, "missing"), (8, "chain"), (10, "chain"), (13, "chain"), (14, "chain"),
            (last - 1, "missing"), (last, "chain")} <= kinds  # fmt: skip
    result = ask("verify", "--home", kept)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("  what is stored beside row") or lines[0].startswith("  row")
    assert lines[-1] == "tieline: the audit chain is not intact: row 0 does not follow from the row before it"
    monkeypatch.setattr(audit, "FINDINGS_MAX", 3)
    assert len(audited(ask, kept)) == 3
    assert json.loads(ask("verify", "--home", kept, "--json").stdout)["more"] is True


def test_a_log_that_cannot_be_checked_is_not_called_broken(ask: Ask, kept: Path, tmp_path: Path) -> None:
    (tmp_path / "tieline.db").write_bytes(b"no database" * 1000)
    assert "file is not a database" in sentence(ask("verify", "--home", tmp_path), 2)
    assert "has no readable checkpoints" in sentence(
        ask("verify", "--home", kept, "--checkpoint", tmp_path / "none"), 2
    )
    assert "does not answer" in sentence(ask("verify", "--hub", "127.0.0.1:9", "--token", "x"), 4)
    empty = tmp_path / "empty"
    Generator(empty, 1, seed=0).run()
    with rows(empty) as database:
        for table in ("log", "message", "objective_event"):
            database.execute(f"DELETE FROM {table}")
    assert ask("verify", "--home", empty).stdout == "Intact: 0 rows, 0 messages.\n"
