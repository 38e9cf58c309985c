"""Tests of `tieline pipeline` without Spark: its output if there is no log, nothing new, or no lake (tables)."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tieline.cli.main import make_app
from tieline.pipeline import java

pytest.importorskip("pyspark", reason="the quick loop does without the extra")

runner = CliRunner()


def tieline(*arguments: object) -> tuple[int, str, str]:
    done = runner.invoke(make_app(), ["pipeline", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_a_home_without_a_log_is_told_of(tmp_path: Path) -> None:
    code, _, told = tieline("run", "--home", tmp_path)
    assert code == 2
    assert "there is no log in" in told


def test_without_spark_the_page_about_the_tables_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    code, _, told = tieline("tables", "--home", tmp_path)
    assert code == 1
    assert "the pipeline needs pyspark" in told
    assert "hint: /docs/reference/tables/ of a hub describes every table and column" in told


def test_two_places_to_read_from_are_refused(tmp_path: Path) -> None:
    assert tieline("run", "--home", tmp_path, "--hub", "http://127.0.0.1:1", "--token", "x")[0] == 2


def test_a_hub_elsewhere_needs_a_token() -> None:
    code, _, told = tieline("run", "--hub", "127.0.0.1:1")
    assert code == 2
    assert "log.read" in told


def test_a_hub_that_does_not_answer_is_unreachable(tmp_path: Path) -> None:
    code, _, told = tieline("run", "--hub", "127.0.0.1:1", "--token", "x", "--lake", tmp_path / "lake")
    assert code == 4
    assert "does not answer" in told


def test_an_empty_lake_says_how_to_fill_it(tmp_path: Path) -> None:
    from bench.synth import Generator

    home = tmp_path / "home"
    Generator(home, 800, seed=0).run()
    assert "'tieline pipeline run' fills it" in tieline("status", "--home", home)[1]
    code, _, told = tieline("sql", "select 1", "--home", home)
    assert code == 1
    assert "is empty" in told
    status = json.loads(tieline("status", "--home", home, "--json")[1])
    assert status["commit"] == 0
    assert status["waiting"] > 1000


def test_a_run_over_nothing_new_needs_no_spark(tmp_path: Path) -> None:
    from bench.synth import Generator
    from tieline.pipeline.lake import Commit, Lake

    answers = Generator(tmp_path, 800, seed=1).run()
    lake = Lake(tmp_path / "lake")
    with lake.held():
        lake.commit(lake.follow(Commit(), (), position={"main": answers.main, "activity": answers.activity}))
    code, failed, error = tieline("report", "--lake", tmp_path / "none", "--json")
    assert (code, failed, json.loads(error)["error"]["exit"]) == (1, "", 1)
    code, told, _ = tieline("run", "--home", tmp_path, "--json")
    assert code == 0
    assert json.loads(told.splitlines()[-1]) == {"events_read": 0, "batches": 0, "tables": {}, "seconds": 0.0}
    assert "Nothing new" in tieline("run", "--home", tmp_path)[1]


def test_a_table_that_is_not_there_cannot_be_rebuilt(tmp_path: Path) -> None:
    from tieline.pipeline.lake import Commit, Lake

    lake = Lake(tmp_path / "lake")
    with lake.held():
        lake.commit(lake.follow(Commit(), ()))
    code, _, told = tieline("rebuild", "nonsense", "--lake", lake.path)
    assert code == 2
    assert "latency" in told
