"""Tests of the whole home of commit 9854711: this version starts on it, and nothing that waited is lost."""

import json
import sqlite3
import tarfile
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, run_cli
from tieline.stores.sqlite.database import newest_version

ROOT = Path(__file__).parents[1]
HOME = ROOT / "stores" / "homes" / "9854711" / "home.tar.gz"

pytestmark = pytest.mark.slow


def schemas(home: Path) -> list[int]:
    """Return the versions of the schemas of a home's two main databases."""
    found = []
    for name in ("tieline.db", "activity.db"):
        with closing(sqlite3.connect(home / name)) as database:
            found.append(database.execute("PRAGMA user_version").fetchone()[0])
    return found


def test_a_hub_starts_on_it_says_so_and_keeps_all_that_waited(tmp_path: Path) -> None:
    hub = HubProcess()
    with tarfile.open(HOME) as tar:
        tar.extractall(hub.folder, filter="data")
    old = schemas(hub.home)
    with hub:
        assert schemas(hub.home) == [newest_version("main"), newest_version("activity")] != old
        first = hub.stdout.splitlines()[0]
        assert f"tieline.db {old[0]} → {newest_version('main')}" in first
        (file,) = (hub.home / "before-upgrade").iterdir()
        assert f"restore {file}" in first
        waiting = json.loads(hub.cli("inbox", "--as", "bob", "--json").stdout)
        bodies = [item["message"]["body"] for item in waiting]
        assert [body for body in bodies if "Ship it" not in body] == [
            "a plan for everybody", "this waits", "see the plan",
        ]  # fmt: skip
        assert len(bodies) == 4
        assert "this waits too" in hub.cli("drain", "--as", "carol").stdout
        assert "hello 2" in hub.cli("search", "hello", "--as", "bob").stdout
        (objective,) = json.loads(hub.cli("objectives", "list", "--as", "owner", "--json").stdout)
        assert (objective["title"], objective["status"]) == ("Ship it", "active")
        token = json.loads(hub.cli("member", "rotate", "bob", "--json").stdout)["token"]
        asked = urllib.request.Request(
            f"{hub.running.http}/fs/read/dana/plan.txt", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked) as answer:
            assert answer.read() == b"the attached plan"
        assert hub.stop() == 0
        assert "Intact" in hub.cli("audit", "verify").stdout
        done = run_cli(hub.home, "restore", str(file), "--home", str(tmp_path / "restored"))
        assert done.returncode == 0, done.stderr
        assert schemas(tmp_path / "restored") == old
