"""Tests of private folders: a folder that another user could change or redirect is refused with a reason."""

import grp
import os
import pwd
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tieline.wire.folder import NotOurs, own_folder, own_place

EVE = 65534
"""User id of another user of the system."""
NOBODY_KNOWN = 4_000_000
"""A user id that the system's list of users does not contain."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
both = pytest.mark.parametrize("check", [own_folder, own_place])

Check = Callable[[Path], None]


def make(path: Path, mode: int = 0o755, owner: int | None = None) -> Path:
    path.mkdir()
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)
    return path


@both
def test_a_folder_is_made_with_those_above_it_for_its_owner_alone(folder: Path, check: Check) -> None:
    check(folder / "a" / "b")
    check(folder / "a" / "b")
    assert [(folder / name).stat().st_mode & 0o7777 for name in ("a", "a/b")] == [0o700, 0o700]


@both
def test_a_folder_of_ours_in_a_sticky_one_is_ours(folder: Path, check: Check) -> None:
    shared = make(folder / "tmp", 0o1777)
    check(shared / "mine")
    link = folder / "link"
    link.symlink_to(shared / "mine" / ".." / "mine")
    check(link)


@as_root
@both
def test_a_folder_of_ours_in_a_sticky_one_of_the_system_is_ours_for_others_too(folder: Path, check: Check) -> None:
    folder.chmod(0o1777)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(EVE)
            check(folder / "mine")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused_with_the_command_that_closes_it(folder: Path, mode: int) -> None:
    ours = make(folder / "open", mode)
    with pytest.raises(NotOurs, match=re.escape(f"chmod go-w {ours}")):
        own_folder(ours)


@as_root
def test_a_group_of_several_counts_as_others(folder: Path) -> None:
    ours = make(folder / "open", 0o770)
    os.chown(ours, -1, EVE)
    with pytest.raises(NotOurs, match="go-w"):
        own_folder(ours)


@both
def test_a_folder_below_one_that_everybody_can_write_to_is_refused(folder: Path, check: Check) -> None:
    make(folder / "open", 0o777)
    with pytest.raises(NotOurs, match="by others"):
        check(folder / "open" / "mine")
    assert list((folder / "open").iterdir()) == []


@as_root
@both
def test_a_folder_below_one_that_a_group_can_write_to_is_refused_unless_it_is_sticky_or_the_group_our_own(
    folder: Path, check: Check
) -> None:
    above = make(folder / "open", 0o770)
    check(above / "ours")
    os.chown(above, -1, EVE)
    with pytest.raises(NotOurs, match=re.escape(f"chmod go-w {above}")):
        check(above / "mine")
    assert not (above / "mine").exists()
    above.chmod(0o1770)
    check(above / "mine")


@as_root
@both
def test_a_folder_of_somebody_else_is_refused_and_one_below_it_too(folder: Path, check: Check) -> None:
    theirs = make(folder / "theirs", 0o755, EVE)
    for path in (theirs, theirs / "mine"):
        with pytest.raises(NotOurs, match=f"user {EVE}"):
            check(path)
    assert list(theirs.iterdir()) == []


@as_root
def test_an_owner_without_a_name_is_named_by_number(folder: Path) -> None:
    theirs = make(folder / "theirs", 0o755, NOBODY_KNOWN)
    with pytest.raises(NotOurs, match=rf"(?<!\()user {NOBODY_KNOWN}"):
        own_folder(theirs)


@as_root
@both
def test_a_link_that_somebody_else_planted_is_refused_and_ours_is_followed(folder: Path, check: Check) -> None:
    shared = make(folder / "tmp", 0o1777)
    secret = make(folder / "secret", 0o700)
    link = shared / "hub"
    link.symlink_to(secret)
    check(link)
    os.chown(link, EVE, EVE, follow_symlinks=False)
    for path in (link, link / "below"):
        with pytest.raises(NotOurs, match=re.escape(f"{link} is a link that")):
            check(path)
    assert list(secret.iterdir()) == []


@as_root
def test_a_link_of_ours_into_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    theirs = make(folder / "theirs", 0o755, EVE)
    link = folder / "link"
    link.symlink_to(theirs / "x")
    with pytest.raises(NotOurs):
        own_folder(link)


def test_links_without_end_and_files_are_no_folders(folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    with pytest.raises(NotOurs, match="without end"):
        own_folder(folder / "a")
    (folder / "file").touch()
    with pytest.raises(NotADirectoryError):
        own_folder(folder / "file" / "below")


def test_one_file_may_stand_in_a_sticky_folder(folder: Path) -> None:
    own_place(make(folder / "tmp", 0o1777))
    with pytest.raises(NotOurs):
        own_place(make(folder / "open", 0o777))


def _unknown(number: int) -> NoReturn:
    raise KeyError(number)


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        ("pwd.getpwuid", _unknown),
        ("grp.getgrgid", _unknown),
        ("grp.getgrgid", lambda number: grp.struct_group(("staff", "x", number, []))),
        ("grp.getgrgid", lambda number: grp.struct_group((pwd.getpwuid(os.geteuid()).pw_name, "x", number, ["eve"]))),
    ],
    ids=["a user without a name", "a group without a name", "a group of another name", "a group with another member"],
)
def test_the_first_group_of_a_user_counts_as_others_unless_it_is_known_to_be_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ask: str, answer: Callable[[int], grp.struct_group]
) -> None:
    ours = make(folder / "open", 0o770)
    monkeypatch.setattr(f"tieline.wire.folder.{ask}", answer)
    with pytest.raises(NotOurs, match="go-w"):
        own_folder(ours)
