"""Tests of the wrapper of inotify: it returns the numbers of the folders that have changed."""

import select
import sys
from pathlib import Path

import pytest

from tieline.protocols.backchannel.inotify import Inotify

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")


def told(inotify: Inotify) -> set[tuple[int, bool]]:
    ready, _, _ = select.select([inotify.file], [], [], 10)
    assert ready, "nothing was told"
    return set(inotify.read())


def test_what_appears_is_written_or_goes_in_a_folder_is_told_of_it_alone(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    inotify = Inotify()
    one, other = (inotify.add(str(tmp_path / name)) for name in ("one", "other"))
    assert set(inotify.read()) == set()
    (tmp_path / "one" / "a").write_text("x")
    assert told(inotify) == {(one, False)}
    (tmp_path / "one" / "a").rename(tmp_path / "other" / "a")
    assert told(inotify) == {(one, False), (other, False)}
    (tmp_path / "other" / "a").unlink()
    assert told(inotify) == {(other, False)}
    inotify.close()


def test_a_folder_that_is_removed_or_let_go_is_told_of_as_over(tmp_path: Path) -> None:
    inotify = Inotify()
    numbers = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        numbers.append(inotify.add(str(tmp_path / name)))
    (tmp_path / "one").rmdir()
    assert (numbers[0], True) in told(inotify)
    inotify.remove(numbers[1])
    assert told(inotify) == {(numbers[1], True)}
    inotify.remove(numbers[1])
    inotify.close()


def test_what_is_no_folder_cannot_be_watched(tmp_path: Path) -> None:
    inotify = Inotify()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("x")
    for name in ("link", "file", "nothing"):
        with pytest.raises(OSError, match="directory"):
            inotify.add(str(tmp_path / name))
    inotify.close()
