"""Tests of regular backups: they are made when they are due, by a process of its own, in a folder that can be used."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.cli.test_backup import fill_home
from tests.server.hubs import until
from tieline.cli.backup_file import make_backup
from tieline.cli.backup_schedule import make_folder, scheduled_backups
from tieline.cli.failure import Failure
from tieline.cli.last_backup import last_backup
from tieline.server.config import BackupSection, ConfigError
from tieline.server.hub import Options, RunningHub


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Fixture: the home of a hub that has stopped."""
    fill_home(tmp_path / "home", "one")
    return tmp_path / "home"


def test_a_folder_for_backups_is_made_and_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = BackupSection(every="6h", folder=str(tmp_path / "a" / "b"))
    make_folder(BackupSection(folder="/proc/none"))
    make_folder(section)
    assert (tmp_path / "a" / "b").is_dir()
    monkeypatch.setattr("tieline.cli.backup_schedule.os.access", lambda *_: False)
    with pytest.raises(Failure, match="cannot write"):
        make_folder(section)


async def test_a_hub_whose_messages_are_in_a_database_makes_no_backups_of_its_home(home: Path, tmp_path: Path) -> None:
    url, backups = "postgresql://ada:secret@db.example/tieline", {"every": "6h", "folder": str(tmp_path)}
    with pytest.raises(ConfigError, match="pg_dump"):
        await RunningHub(Options(home, store=url, backup=backups)).start()
    # The home still has the database of the time before.
    (home / "tieline.toml").write_text(f'[store]\nurl = "{url}"\n')
    with pytest.raises(Failure, match=r"keeps its messages in postgresql://db\.example/tieline$"):
        make_backup(home, tmp_path / "backup.tar.gz")


@pytest.mark.slow
async def test_a_scheduled_backup_is_made_by_a_process_of_its_own(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    async with scheduled_backups(home, BackupSection(every="1h", folder=str(folder), keep=2)):
        await until(lambda: last_backup(home) is not None, seconds=60)
    made = last_backup(home)
    assert made is not None
    assert [str(path) for path in folder.iterdir()] == [made.file]


@pytest.mark.parametrize(("age_hours", "due"), [(0, False), (2, True), (-2, True)])
async def test_a_backup_is_due_when_the_last_one_is_too_old_or_from_the_future(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_hours: int, due: bool
) -> None:
    asked = asyncio.Event()

    async def back_up(*_: object) -> bool:
        asked.set()
        return False

    monkeypatch.setattr("tieline.cli.backup_schedule._back_up", back_up)
    at_ms = int((time.time() - age_hours * 3600) * 1000)
    (home / "backup.json").write_text(json.dumps({"at_ms": at_ms, "file": "x", "bytes": 1, "verified": True}))
    async with scheduled_backups(home, BackupSection(every="1h", folder=str(tmp_path / "backups"))):
        for _ in range(5):
            await asyncio.sleep(0)
        assert asked.is_set() == due


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (BackupSection(every="soon", folder="/backups"), "s, m, h or d"),
        (BackupSection(every="6h"), "need a folder"),
        (BackupSection(keep=0), "at least 1"),
    ],
)
def test_settings_that_make_no_backups_are_refused(section: BackupSection, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        section.check()
    BackupSection(every="30m", folder="/backups").check()
