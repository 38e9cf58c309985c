"""Tests that a program's settings file is changed in one step and can be restored byte for byte.

After a kill at any moment, the file is complete: in the old or in the new version.
"""

import multiprocessing
import os
import signal
import stat
from pathlib import Path

import pytest

from tieline.cli import program_settings
from tieline.cli.failure import Failure
from tieline.cli.program_settings import SettingsFile, write

AFTER = b'{"new": true}'


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("before", [None, b"", b"{}", b"\xff\x00 anything"])
def test_a_change_is_undone_byte_for_byte(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "settings.json"
    if before is not None:
        path.write_bytes(before)
    first = SettingsFile(path)
    assert (first.is_changed, first.is_ours, first.original()) == (False, False, None)
    first.change(AFTER, before or b"")
    assert path.read_bytes() == AFTER
    again = SettingsFile(path)
    assert (again.is_changed, again.is_ours, again.original()) == (True, True, before or b"")
    again.change(b"{}", b"not the original")
    last = SettingsFile(path)
    last.restore(last.original() or b"")
    assert tree(tmp_path) == ({} if before is None else {"settings.json": before})


def test_a_file_of_ours_that_somebody_filled_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    SettingsFile(path).change(AFTER, b"")
    path.write_bytes(b'{"theirs": 1}')
    file = SettingsFile(path)
    assert (file.is_changed, file.is_ours, file.original()) == (True, False, None)
    file.restore(b'{"theirs": 1}')
    assert tree(tmp_path) == {"settings.json": b'{"theirs": 1}'}


def test_a_folder_that_was_made_is_removed_and_others_stay(tmp_path: Path) -> None:
    one, two = tmp_path / "made" / "a.json", tmp_path / "made" / "b.json"
    SettingsFile(one).change(AFTER, b"")
    SettingsFile(two).change(AFTER, b"")
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    SettingsFile(two).restore(b"")
    SettingsFile(one).restore(b"")
    assert tree(tmp_path) == {}


def test_a_file_that_changes_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b"{}")
    file = SettingsFile(path)
    path.write_bytes(b'{"theirs": 1}')
    with pytest.raises(Failure, match="changed meanwhile"):
        file.change(AFTER, b"{}")
    with pytest.raises(Failure, match="changed meanwhile"):
        file.restore(b"{}")
    assert tree(tmp_path) == {"settings.json": b'{"theirs": 1}'}


@pytest.mark.parametrize("before", [None, b"{}"])
def test_a_file_that_changes_while_the_new_one_is_written_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    path = tmp_path / "settings.json"
    if before is not None:
        path.write_bytes(before)
    sync = os.fsync

    def slow_disk(handle: int) -> None:
        path.write_bytes(b'{"theirs": 1}')
        sync(handle)

    file = SettingsFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", slow_disk)
        with pytest.raises(Failure, match="changed meanwhile"):
            file.change(AFTER, before or b"")
    assert tree(tmp_path) == {"settings.json": b'{"theirs": 1}'}
    SettingsFile(path).change(AFTER, b'{"theirs": 1}')
    kept = tree(tmp_path)
    path.write_bytes(b"{}")
    file = SettingsFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", slow_disk)
        with pytest.raises(Failure, match="changed meanwhile"):
            file.change(AFTER, b"{}")
    assert tree(tmp_path) == {**kept, "settings.json": b'{"theirs": 1}'}


def test_a_link_to_itself_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "settings.json").symlink_to("settings.json")
    with pytest.raises(OSError, match="symbolic links"):
        SettingsFile(tmp_path / "settings.json")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b"{}")
    os.chown(path, 12345, 12345)
    with pytest.raises(Failure, match="belongs to another user"):
        SettingsFile(path).change(AFTER, b"{}")
    assert tree(tmp_path) == {"settings.json": b"{}"}


@pytest.mark.parametrize("copy", [b'{"before": ', b'{"before": "abc", "after": ""}', b'{"before": "!", "after": ""}'])
def test_a_damaged_copy_counts_as_none(tmp_path: Path, copy: bytes) -> None:
    (tmp_path / "settings.json").write_bytes(b"{}")
    (tmp_path / ".settings.json.before-tieline").write_bytes(copy)
    assert not SettingsFile(tmp_path / "settings.json").is_changed


@pytest.mark.parametrize("nameless", [True, False])
def test_a_written_file_has_its_mode_and_nothing_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        monkeypatch.setattr(program_settings, "_open_nameless", lambda _folder: None)
    path = tmp_path / "file"
    for content, mode in ((b"one", 0o600), (b"two", 0o640)):
        write(path, content, mode)
        assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (content, mode)
        assert list(tree(tmp_path)) == ["file"]


def test_a_file_with_the_name_of_the_new_one_is_never_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync = tmp_path / "file", os.fsync

    def meanwhile(handle: int) -> None:
        (tmp_path / ".file.new-by-tieline").write_bytes(b"of somebody else")
        sync(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(FileExistsError):
        write(path, b"ours", 0o600)
    assert not path.exists()


@pytest.mark.parametrize("moment", ["fsync", "link", "replace"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_kill_at_any_moment_leaves_a_whole_file_and_can_be_undone(tmp_path: Path, moment: str, which: int) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'{"old": 1}')

    def change_and_die() -> None:
        calls = [0]
        holder = Path if moment == "replace" else os
        real = getattr(holder, moment)

        def kill(*args: object, **named: object) -> object:
            calls[0] += 1
            if calls[0] > which:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)

        setattr(holder, moment, kill)
        SettingsFile(path).change(AFTER, b'{"old": 1}')

    process = multiprocessing.get_context("fork").Process(target=change_and_die)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert path.read_bytes() == b'{"old": 1}'
    left = set(tree(tmp_path)) - {"settings.json", ".settings.json.before-tieline"}
    # Only between the two last steps is there a name, which the next command removes.
    assert (not left) if moment != "replace" else all(name.endswith(".new-by-tieline") for name in left)
    file = SettingsFile(path)
    file.restore(file.original() if file.is_ours else file.before)  # type: ignore[arg-type]
    assert tree(tmp_path) == {"settings.json": b'{"old": 1}'}
