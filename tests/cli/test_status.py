"""Tests of `tieline status` and `stop`: the hub of a home at a glance, and its clean end."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.cli.failure import Exit
from tieline.server.certificate import own_certificate
from tieline.wire.home import RUN_FILE, read_running

pytestmark = pytest.mark.slow


def test_status_shows_the_hub_its_doors_members_and_what_waits() -> None:
    with HubProcess("--no-ac7") as hub:
        hub.add_members("alice", "bob")
        hub.send("alice", "@bob", "one", "two")
        (hub.home / "backup.json").write_text('{"at_ms": 1, "file": "/b/x.tar", "bytes": 2048, "verified": true}')
        (hub.home / "insights.json").write_text(json.dumps({"refreshed_at_ms": time.time_ns() // 10**6}))
        done = hub.cli("status", "--json")
        assert done.returncode == Exit.DONE, done.stderr
        found = json.loads(done.stdout)
        assert (found["hub"]["pid"], found["hub"]["members"], found["hub"]["backlog"]) == (hub.running.pid, 2, 2)
        assert found["hub"]["waiting"] == [{"member": "bob", "backlog": 2, "held": 0}]
        doors = {door["protocol"]: door["places"] for door in found["hub"]["doors"]}
        assert doors["tieline"] == [hub.running.hub_socket]
        assert "ac7" not in doors, "it is switched off"
        assert found["disk"]["used_bytes"] > 0
        assert found["backup"]["verified"]
        text = hub.cli("status").stdout
        for part in ("2, 0 connected", "2 messages; most for bob 2", "/b/x.tar (2 KiB)", "report of", hub.running.http):
            assert part in text
        assert len(text.splitlines()) < 24, "one screen"


def test_status_knows_a_hub_whose_certificate_names_another_address(tmp_path: Path) -> None:
    own_certificate(tmp_path, ("hub.example.org",))
    with HubProcess("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")) as hub:
        done = hub.cli("status", "--json")
        assert (done.returncode, json.loads(done.stdout)["hub"]["problems"]) == (Exit.DONE, [])
        assert f"\nelsewhere {hub.running.public}\n" in hub.cli("status").stdout
        assert "does not answer" not in hub.cli("doctor").stdout


def test_status_shows_the_address_that_others_pin() -> None:
    with HubProcess("--tls") as hub:
        assert f"{hub.running.http}#sha256={hub.running.fingerprint}" in hub.cli("status").stdout


def test_status_of_a_machine_whose_hub_is_elsewhere_does_not_ask_to_start_one(tmp_path: Path) -> None:
    elsewhere = {"TIELINE_URL": "https://10.0.0.5:7117#sha256=1f8a"}
    done = run_cli(tmp_path, "status", env=elsewhere)
    assert done.returncode == 4
    assert "you use the hub at https://10.0.0.5:7117; 'tieline whoami' asks it" in done.stderr
    assert done.stdout.startswith("uses      the hub at https://10.0.0.5:7117\nhome ")
    assert "tieline serve" in run_cli(tmp_path, "status", "--home", str(tmp_path), env=elsewhere).stderr


def test_stop_ends_the_hub_cleanly_and_frees_its_home() -> None:
    with HubProcess() as hub:
        pid = hub.running.pid
        done = hub.cli("stop")
        assert (done.returncode, "has stopped" in done.stdout) == (Exit.DONE, True)
        assert read_running(hub.home) is None
        assert os.waitpid(pid, 0)[1] == 0, "a clean end, so that a service manager does not start it again"
        done = hub.cli("status")
        assert done.returncode == Exit.UNREACHABLE
        assert "tieline serve --home" in done.stderr
        logged = [json.loads(line)["event"] for line in hub.cli("logs", "--json").stdout.splitlines()]
        assert logged == ["the hub started", "the hub stopped"]


def test_stop_ends_no_other_program_that_has_the_hubs_process_id_by_now(tmp_path: Path) -> None:
    left = {"pid": os.getpid(), "version": "1", "http": "", "hub_socket": str(tmp_path / "hub.sock"), "store": "sqlite"}
    (tmp_path / RUN_FILE).write_text(json.dumps(left))
    done = run_cli(tmp_path, "stop")
    assert (done.returncode, "No hub is running" in done.stdout) == (Exit.DONE, True)
