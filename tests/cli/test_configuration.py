"""Tests of `tieline config show`: of a running hub, of a stopped one, and of a home without one."""

import json
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli

pytestmark = pytest.mark.slow


def test_config_show_tells_what_the_hub_runs_with_and_that_the_file_changed() -> None:
    with HubProcess() as hub:
        config = hub.home / "tieline.toml"
        done = hub.cli("config", "show", "--origin", env={"TIELINE_STORE": "memory"})
        assert [line.split() for line in done.stdout.splitlines()][:2] == [
            ["SETTING", "VALUE", "ORIGIN"],
            ["http.listen", '"127.0.0.1:0"', "flag"],
        ]
        assert '"memory"' not in done.stdout, "the environment of this command is not the hub's"
        assert done.stderr == ""
        config.write_text(config.read_text().replace("announce = true", "announce = false"))
        done = hub.cli("config", "show", "--json")
        values = {one["name"]: one["value"] for one in json.loads(done.stdout)["settings"]}
        assert values["ac7.announce"] is True
        assert "was changed after the hub started" in done.stderr
        hub.stop()
        found = json.loads(hub.cli("config", "show", "--json").stdout)
        assert not found["running"]
        assert {"name": "ac7.announce", "value": False, "origin": "file"} in found["settings"]


def test_a_home_without_configuration_stays_without_one(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "config", "show")
    assert (done.returncode, "tieline serve" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
