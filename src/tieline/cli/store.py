"""`tieline store copy`: moves a hub from the files of its home to a database of PostgreSQL, and back.

Used by: a person. Uses: `store_copy`. The hub must not run.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import own_name, print_json, say, warn
from tieline.cli.session import JsonOption, ended_by

if TYPE_CHECKING:
    from tieline.cli.store_copy import Copied, Progress
    from tieline.server.storage import Storage

store_app = typer.Typer(help="Copy what a hub keeps to another kind of store.", no_args_is_help=True)

_FILES = "sqlite:"
_LINE_SECONDS = 10.0
"""Time between two lines of progress without a terminal."""
_DRAW_SECONDS = 0.2
"""Time between two drawings of the progress on a terminal."""


# The group has one command, and keeps its name: there will be others.
@store_app.callback()
def _store() -> None:
    """Copy what a hub keeps to another kind of store."""


@store_app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="'sqlite:HOME', or 'postgresql://…'.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The other kind of store: an empty one.")],
    json: JsonOption = False,
) -> None:
    """Copy everything that a hub keeps: messages, members, logs, files and logins, also those of its rooms.

    One of both is 'sqlite:HOME', the files of a hub's home, and the other one a database of PostgreSQL. The hub must be
    stopped. Each row is read again in the copy and compared. Then use only the copy: both have the same log.
    """
    ended_by(lambda: _copy(source, target, json=json), json=json)


def _copy(source: str, target: str, *, json: bool) -> None:
    from tieline.cli.store_copy import ERRORS, StoreCopy, check_rooms, room_homes
    from tieline.core.store import StoreError
    from tieline.server.config import ConfigError
    from tieline.server.home import Home, HomeBusy
    from tieline.server.storage import DatabaseStorage, HomeStorage, in_database, public_url

    into_database = in_database(target)
    files, url = (source, target) if into_database else (target, source)
    if not files.startswith(_FILES) or not in_database(url):
        raise Failure(Exit.USAGE, "one store is sqlite:HOME, and the other one a URL that begins with postgresql://")
    home = _home_of(files, must_exist=into_database)
    with contextlib.ExitStack() as stack:
        try:
            stack.callback(Home(home).release)
            if not into_database:
                check_rooms(home, DatabaseStorage(url, home))
            pairs: list[tuple[Storage, Storage]] = []
            for folder in room_homes(home):
                in_files, in_tables = HomeStorage(folder, "FULL"), DatabaseStorage(url, folder)
                pairs.append((in_files, in_tables) if into_database else (in_tables, in_files))
            # A room that nobody used has no store yet.
            used = [pair for number, pair in enumerate(pairs) if not number or pair[0].has_tables()]
            with _progress(quiet=json) as progress, StoreCopy(used, progress) as made:
                copied = made.make()
        except (HomeBusy, StoreError, ConfigError, OSError, *ERRORS) as error:
            hint = getattr(error, "hint", "")
            raise Failure(Exit.FAILED, str(error), hint or "nothing was copied; the source is as it was") from error
    if json:
        print_json(copied)
        return
    _tell(copied)
    use = f"--store {public_url(url)}, or url in [store] of tieline.toml" if into_database else "--store sqlite"
    say(f"Use only the copy now: {own_name()} serve --home {shlex.quote(str(home))} with {use}.")


def _home_of(store: str, *, must_exist: bool) -> Path:
    """Return the home that the store `sqlite:HOME` names. Without HOME, it is the home of other commands."""
    from tieline.wire.home import find_home

    home = find_home(store.removeprefix(_FILES) or None)
    if must_exist and not home.is_dir():
        raise Failure(Exit.USAGE, f"there is no home {home}")
    return home


def _tell(copied: "Copied") -> None:
    rooms = f" and {copied.rooms} rooms" if copied.rooms else ""
    say(f"Copied the hub{rooms} in {copied.seconds} s, and read everything again: both stores are the same.")
    logs = f"{copied.log_rows} log rows, {copied.activity_rows} of activity"
    say(f"{copied.messages} messages, {logs}, {copied.files} files.")
    if copied.missing:
        warn(f"{len(copied.missing)} files are named in the source, but it does not have their content any more.")


@contextlib.contextmanager
def _progress(*, quiet: bool) -> "Iterator[Progress]":
    """Yield a function that shows the progress on stderr: one line on a terminal, else a line from time to time."""
    live = sys.stderr.isatty()
    every = _DRAW_SECONDS if live else _LINE_SECONDS
    next_at = time.monotonic() + every

    def show(doing: str, done: int, total: int) -> None:
        nonlocal next_at
        if quiet or time.monotonic() < next_at:
            return
        next_at = time.monotonic() + every
        begin, end = ("\r\x1b[K", "") if live else ("", "\n")
        print(f"{begin}{doing}: {done:,} of {total:,}", end=end, file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if live and not quiet:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
