"""Tests of the sender's identity without a hub, and of the error when it is not known."""

import json
from pathlib import Path

import pytest

from tests.cli.place import Place

pytestmark = pytest.mark.slow


def test_init_stores_who_speaks_and_flags_and_variables_are_stronger(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    nobody = place.run("inbox")
    assert nobody.returncode == 2
    assert "tieline init" in nobody.stderr
    assert "You are bob here now" in place.cli("init", "bob")
    assert (place.root / "config.json").read_text() == '{\n  "agent": "bob"\n}'
    assert place.spool.names() == ["bob"]

    def who(*args: str, env: dict[str, str] | None = None) -> str:
        return str(json.loads(place.cli("whoami", "--json", *args, env=env))["speaker"])

    both = {"TIELINE_AGENT": "tie", "BACKCHANNEL_AGENT": "back"}
    assert who() == "bob"
    assert who(env={"BACKCHANNEL_AGENT": "back"}) == "back"
    assert who(env=both) == "tie"
    assert who("--as", "flag", env=both) == "flag"
    place.cli("send", "@bob", "to myself")
    assert place.waiting() == ["to myself"]


def test_a_malformed_configuration_is_said_and_not_passed_over(place: Place) -> None:
    (place.root / "config.json").write_text("{")
    for args in (("inbox",), ("inbox", "--as", "bob")):
        done = place.run(*args)
        assert done.returncode == 1
        assert "config.json" in done.stderr


def test_a_token_without_a_hub_is_not_passed_over(place: Place) -> None:
    for args, env in ((("--token", "t"), {}), ((), {"TIELINE_TOKEN": "t"})):
        done = place.run("inbox", "--as", "bob", *args, env=env)
        assert (done.returncode, done.stdout) == (4, "")
    assert place.run("inbox", "--as", "bob", "--spool", str(place.root), env={"TIELINE_TOKEN": "t"}).returncode == 0


def test_a_folder_that_is_not_ours_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = Place(tmp_path / "home").run("inbox", "--as", "bob", "--spool", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


def test_a_malformed_record_is_said_by_its_file(place: Place) -> None:
    (place.root / "agents" / "bob.json").write_text("{")
    done = place.run("send", "@bob", "hello", "--as", "alice")
    assert (done.returncode, done.stdout) == (1, "")
    assert "bob.json" in done.stderr


def test_a_hook_of_an_agent_without_a_name_prints_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "home")
    done = place.run("drain", "--hook")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert place.run("drain").returncode == 2, "a person is told"
