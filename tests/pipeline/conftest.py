"""Fixtures for the pipeline's tests: one Spark session, a generated home, and lakes (the pipeline's tables)."""

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.oracle import Oracle
    from tests.pipeline.plain_oracle import PlainOracle
    from tieline.pipeline.lake import Lake

# The quick loop does without the extra; `make test` has it.
collect_ignore_glob = ["test_*.py"] if find_spec("pyspark") is None else []

EVENTS = 4000

Ask = Callable[..., Result]

QUICK = {"spark.driver.memory": "1g"}


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Fixture: a temporary folder for all tests of a session."""
    path = Path(tempfile.mkdtemp(prefix="tieline-pipeline-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(scratch: Path) -> "Iterator[SparkSession]":
    """Fixture: a Spark session. It is started once, because a start takes longer than most tests."""
    from tieline.pipeline.session import start_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_session("local[2]", scratch=scratch / "spark", brief=True, settings=QUICK)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def made_home(scratch: Path) -> Path:
    """Fixture: a home with the generated log of a team."""
    from bench.synth import Generator

    home = scratch / "home"
    Generator(home, EVENTS, seed=7).run()
    return home


@pytest.fixture(scope="session")
def oracle(made_home: Path) -> "Oracle":
    """Fixture: the expected contents of the tables, computed without the pipeline from `made_home`."""
    from tests.pipeline.oracle import Oracle

    return Oracle(made_home)


@pytest.fixture(scope="session")
def plain_oracle(made_home: Path) -> "PlainOracle":
    """Fixture: the same as `oracle`, computed by plain Python."""
    from tests.pipeline.plain_oracle import PlainOracle

    return PlainOracle(made_home)


@pytest.fixture(scope="session")
def filled(spark: "SparkSession", made_home: Path, scratch: Path) -> "Lake":
    """Fixture: a lake (the pipeline's tables) that one run filled from `made_home`."""
    from tieline.pipeline.lake import Lake
    from tieline.pipeline.run import run

    lake = Lake(scratch / "filled")
    run(spark, lake, {"home": str(made_home)})
    return lake


@pytest.fixture(scope="session")
def begun(spark: "SparkSession", made_home: Path, scratch: Path) -> "Lake":
    """Fixture: a lake (the pipeline's tables) with only the first rows of `made_home`.

    Tests copy it and add more rows.
    """
    from tieline.pipeline.lake import Lake
    from tieline.pipeline.run import run

    lake = Lake(scratch / "begun")
    run(spark, lake, {"home": str(made_home)}, until={"main": 600, "activity": 60})
    return lake


@pytest.fixture
def ask(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Fixture: a function that runs a `tieline pipeline` command in this process, with the tests' Spark session."""
    from tieline.cli.main import make_app

    monkeypatch.setattr("tieline.pipeline.session.start_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    return lambda *arguments: CliRunner().invoke(make_app(), ["pipeline", *map(str, arguments)])
