"""`tieline backup` and `tieline restore`: save all data of a hub in one file, and make a home from such a file.

Used by: a person, a timer, and `tieline serve --backup`. Uses: `archive`. Both commands work on the files of a home. A
running hub does not take part in a backup, so it never waits for one.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import print_json, say
from tieline.cli.session import HomeOption, JsonOption, ended_by

_SIGNALLED = 128
"""Exit code of a process that a signal ended, without the number of the signal, as shells have it."""


def backup(
    place: Annotated[
        Path, typer.Argument(metavar="FILE", help="New file for the backup; or a folder, in which it gets a name.")
    ],
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            metavar="N",
            min=1,
            help="In a folder: remove all but the N newest backups of this hub.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Write everything that the hub keeps to one file, while the hub runs or not, and check that file.

    The file has the messages, members, keys, logins, settings and files of the hub and its rooms. Whoever has it can
    act as any member: keep it where only you can read it. Not in it: the search index, which is made anew, and the
    pipeline's tables.
    """
    ended_by(lambda: _backup(place, keep, home, json=json), json=json)


def _backup(place: Path, keep: int | None, named: Path | None, *, json: bool) -> None:
    from tieline.cli.backup_file import MadeBackup, dated_name, make_backup, remove_old
    from tieline.cli.documents import fill
    from tieline.wire.home import find_home

    home, place = find_home(named), place.expanduser().absolute()
    in_folder = place.is_dir()
    if keep is not None and not in_folder:
        raise Failure(Exit.USAGE, f"--keep needs a folder, and {place} is none", f"mkdir {place}")
    with _sigterm_cleans_up():
        made = make_backup(home, dated_name(home, place) if in_folder else place)
    removed = remove_old(home, place, keep) if keep is not None else []
    if json:
        print_json(fill(MadeBackup, made, removed=[str(path) for path in removed]))
        return
    say(f"The backup is in {made.file}: {made.messages} messages, {made.rows} log rows, {_size(made.bytes)}.")
    say("It was opened again, and its audit chain is intact.")
    if removed:
        say(f"Removed {len(removed)} older {'backup' if len(removed) == 1 else 'backups'}.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that 'tieline backup' wrote.")],
    home: Annotated[Path, typer.Option("--home", metavar="DIR", help="Home folder of the restored hub: new or empty.")],
    json: JsonOption = False,
) -> None:
    """Make the home of a hub from a backup, and check it.

    What happened after the backup is not there: messages are missing, and revoked tokens, and revoked or used
    invitations, work again. The logs get new epochs, so that the pipeline and other readers notice.
    """
    ended_by(lambda: _restore(file.expanduser().absolute(), home.expanduser().absolute(), json=json), json=json)


def _restore(file: Path, home: Path, *, json: bool) -> None:
    import os
    import shlex

    from tieline.cli.archive import ArchiveError, unpack_archive
    from tieline.cli.backup_file import explained
    from tieline.cli.output import local_time, own_name

    if not file.is_file():
        raise Failure(Exit.USAGE, f"there is no file {file}")
    _refuse_used(home)
    os.umask(0o077)
    try:
        with _sigterm_cleans_up(), _locked_home(home), explained(home):
            restored = unpack_archive(file, home)
    except ArchiveError as error:
        raise Failure(Exit.FAILED, str(error), "nothing was restored; try another backup") from error
    if json:
        from tieline.cli.documents import RestoredHome, fill

        print_json(fill(RestoredHome, restored, home=str(home)))
        return
    say(f"{home} is the hub as it was at {local_time(restored.at_ms, exact=True)}: {restored.messages} messages.")
    say("Its audit chain is intact. Its logs have new epochs: for a lake of the old hub, run tieline pipeline rewind.")
    say(f"Start it: {own_name()} serve --home {shlex.quote(str(home))}")


@contextlib.contextmanager
def _sigterm_cleans_up() -> Iterator[None]:
    """Let SIGTERM end the `with` block by an exception, so that it leaves nothing half written, as after Ctrl-C."""
    import signal
    import sys

    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(_SIGNALLED + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_used(home: Path) -> None:
    """Raise `Failure` if the folder `home` already has files, because a restored hub would mix with them."""
    from tieline.cli.archive import DISK_FOLDER
    from tieline.wire.home import LOCK_FILE, RESTORE_FOLDER

    if home.exists() and not home.is_dir():
        raise Failure(Exit.USAGE, f"{home} is no folder", "name a new folder with --home DIR")
    found = {path.name for path in home.iterdir()} if home.exists() else set()
    # A hub that could not start has left its lock. `_locked_home` refuses the folder of another restore.
    if RESTORE_FOLDER not in found and found - {LOCK_FILE, DISK_FOLDER}:
        raise Failure(Exit.USAGE, f"{home} is not empty", "name a new folder with --home DIR, or move that one away")


@contextlib.contextmanager
def _locked_home(home: Path) -> Iterator[None]:
    """Hold the lock of `home` during the `with` block, so that no hub and no other restore uses this folder.

    If the folder was made here and the block fails, the folder is removed again.
    """
    from tieline.server.home import Home, HomeBusy
    from tieline.wire.home import LOCK_FILE

    existed, had_lock = home.exists(), (home / LOCK_FILE).exists()
    try:
        held = Home(home)
    except HomeBusy as error:
        hint = "wait for its end, or name another folder with --home DIR"
        raise Failure(Exit.USAGE, f"a hub or another restore uses {home}", hint) from error
    try:
        _refuse_used(home)
        yield
    except BaseException:
        if not had_lock:
            (home / LOCK_FILE).unlink(missing_ok=True)
        if not existed and not any(home.iterdir()):
            home.rmdir()
        raise
    finally:
        held.release()


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{max(1, count >> 10)} KiB"
