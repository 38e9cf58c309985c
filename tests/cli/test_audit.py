"""Tests that the audit chain (the hashes of the log) is checked and exported by commands while the hub runs."""

import json
from pathlib import Path

import apsw
import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.stores.sqlite.words import Words

pytestmark = pytest.mark.slow


def test_the_chain_of_a_running_hub_is_intact_and_exported_whole(
    hub: HubProcess, alice: str, bob: str, tmp_path: Path
) -> None:
    hub.send(alice, f"@{bob}", "kept")
    hub.cli("drain", "--as", bob)
    checked = hub.cli("audit", "verify", "--json")
    assert checked.returncode == 0, checked.stderr
    report = json.loads(checked.stdout)
    assert (report["intact"], report["findings"]) == (True, [])
    assert hub.cli("audit", "verify").stdout.startswith("Intact: ")
    target = tmp_path / "log.jsonl"
    assert hub.cli("audit", "export", "--out", str(target)).returncode == 0
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    assert len(rows) >= report["rows"]
    assert target.stat().st_mode & 0o077 == 0
    printed = hub.cli("audit", "export", "--format", "jsonl").stdout.splitlines()
    assert json.loads(printed[0]) == rows[0]


def test_a_changed_row_is_named() -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        hub.send("alice", "@bob", "one", "two")
        assert hub.stop() == 0
        connection = apsw.Connection(str(hub.home / "tieline.db"))
        packed = connection.execute("SELECT event FROM log WHERE offset = 2").get
        forged = Words(connection).unpack(packed).replace(b"alice", b"mallory")
        assert b"mallory" in forged
        connection.execute("UPDATE log SET event = ? WHERE offset = 2", (forged,))
        connection.close()
        done = hub.cli("audit", "verify")
        assert (done.returncode, done.stdout) == (1, "")
        assert "broken at row 2" in done.stderr
        document = json.loads(hub.cli("audit", "verify", "--json").stdout)
        assert document["intact"] is False
        assert document["findings"][0]["offset"] == 2


def test_a_home_without_a_log_cannot_be_checked(tmp_path: Path) -> None:
    for args in (("audit", "verify"), ("audit", "export")):
        done = run_cli(tmp_path, *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert str(tmp_path) in done.stderr
