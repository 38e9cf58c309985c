"""Tests of the choice of an engine: its default, what is told if it is missing, and the archive for its workers."""

import importlib.util
import socket
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tieline.cli.main import make_app
from tieline.pipeline import engines
from tieline.pipeline.engines import LOCAL, SAIL, connect, default_master, packed
from tieline.pipeline.java import MissingPart
from tieline.pipeline.session import start_session


def test_workers_get_all_modules_and_statements(tmp_path: Path) -> None:
    with zipfile.ZipFile(packed(tmp_path)) as archive:
        names = set(archive.namelist())
    assert {"tieline/pipeline/tasks.pyc", "tieline/pipeline/tables/statements.sql"} <= names
    root = Path(engines.__file__).parents[1]
    modules = {f"tieline/{path.relative_to(root).with_suffix('.pyc').as_posix()}" for path in root.rglob("*.py")}
    assert modules <= names


def test_a_server_that_does_not_answer_is_told_of_at_once(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(MissingPart, match=r"no Spark Connect server answers at 127.0.0.1:\d+ .* --master"):
            connect(address, {}, tmp_path)
    with pytest.raises(MissingPart, match="is not the address"):
        connect("sc://host:port", {}, tmp_path)


def test_sail_is_the_default_only_where_spark_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_master() == LOCAL
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert default_master() == LOCAL, "neither is installed: the error tells how to install Spark"
    with pytest.raises(MissingPart, match=r"--engine sail .*\.whl\[pipeline\]'"):
        start_session(scratch=tmp_path)
    found = importlib.util.find_spec("json")
    monkeypatch.setattr(engines, "find_spec", lambda name: found if name == "pysail" else None)
    assert default_master() == SAIL


def test_sail_that_is_missing_is_told_of_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(MissingPart, match=r"Sail is not installed; .*pip install 'dist/tieline-.*\.whl\[sail\]'"):
        start_session(SAIL, scratch=tmp_path)


def test_sail_and_a_master_exclude_each_other(tmp_path: Path) -> None:
    arguments = ["pipeline", "sql", "select 1", "--lake", str(tmp_path), "--engine", "sail", "--master", "local[2]"]
    done = CliRunner().invoke(make_app("pipeline"), arguments)
    assert done.exit_code == 2
    assert "exclude each other" in done.output
