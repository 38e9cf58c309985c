"""Tests of the search for Java: an installed Java is preferred to the one in the wheel.

If none is found, an error says so.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tieline.pipeline import java
from tieline.pipeline.java import MissingPart, find_java, install_command, java_version, require_extra


def fake_java(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("25", 25), ("1.8.0_412", 1)])
def test_a_java_says_its_version(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path / "bin" / "java", text)) == version


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_a_named_java_that_will_do_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "bin" / "java", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java(tmp_path / "scratch") is None


def test_a_java_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fake_java(tmp_path / "bin" / "java", "17.0.1")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(found.parent))
    assert find_java(tmp_path / "scratch") == tmp_path


def test_without_a_java_that_will_do_the_wheel_s_is_started_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "old" / "bin" / "java", "1.8.0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not Path("/usr/bin/java").exists() else "/nowhere")
    home = find_java(tmp_path / "scratch")
    assert home is not None
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    started = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(started, check=True, capture_output=True, text=True)
    assert "version" in done.stderr


@pytest.mark.parametrize(
    ("file", "command"),
    [("", "pip"), ("pipx_metadata.json", "pipx install --force"), ("uv-receipt.toml", "uv tool install --force")],
)
def test_the_pipeline_is_installed_by_the_tool_that_installed_tieline(
    file: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / (file or "pyvenv.cfg")).touch()
    assert install_command("pipeline").startswith(f"{command} ")


def test_a_missing_part_is_named_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(
        MissingPart, match=r"needs pyspark, pyarrow, pandas, deltalake: pip install 'dist/tieline-.*\.whl\[pipeline\]'"
    ):
        require_extra()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingPart, match="Java 17 or newer"):
        find_java(tmp_path)
