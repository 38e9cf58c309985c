"""The hub's own log: what it did and what failed, as lines of JSON in its home. `tieline logs` shows it.

Used by: `serve`, which writes to the log in addition to stderr, and a person. So the log is there however the hub was
started. Uses: the current file of the log and one older file, which together take at most 16 MiB.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, say
from tieline.cli.session import HomeOption, ended_by

LOG_FILE = "hub.log"
_FILE_BYTES_MAX = 8 * 1024 * 1024
"""Bytes after which the log begins a new file. The file before it is kept, and older ones are deleted."""
_POLL_SECONDS = 0.2  # a person does not notice this delay, and a look at a file costs little
_OWN_FIELDS = ("timestamp", "level", "event")
_STYLES = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "red"}


class LogLevel(StrEnum):
    """Level of a line of the log, from the least to the most important."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFile:
    """The file of the hub's log, for the process of the hub. Threads may write at the same time.

    The file is opened at the first line, so a hub that may not use the home writes nothing into it.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / LOG_FILE
        self._lock = threading.Lock()
        self._file: int | None = None
        self._size = 0

    def write(self, line: str) -> None:
        """Add a line to the log file. If the line cannot be written, drop it: a full disk must not stop the hub."""
        data = f"{line}\n".encode(errors="backslashreplace")
        with self._lock, contextlib.suppress(OSError):
            if self._file is None or self._size + len(data) > _FILE_BYTES_MAX:
                self._open(len(data))
            assert self._file is not None, "opened above"
            self._size += os.write(self._file, data)

    def note(self, event: str, **fields: object) -> None:
        """Add a line for an event that a terminal need not show, for example the start of the hub."""
        from datetime import UTC, datetime

        stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        line = {"event": event, **fields, "level": LogLevel.INFO, "timestamp": stamp}
        self.write(msgspec.json.encode(line).decode())

    def _open(self, size: int) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._path.exists() and self._path.stat().st_size + size > _FILE_BYTES_MAX:
            self._path.replace(_older(self._path))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def logs(
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of the newest lines to show.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Also show new lines, until Ctrl-C.")] = False,
    level: Annotated[LogLevel, typer.Option(help="Show lines of this level and above.")] = LogLevel.DEBUG,
    home: HomeOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the lines of JSON as they are.")] = False,
) -> None:
    """Show what the hub logged: starts, warnings and failures. It works with the hub running or not."""
    from tieline.wire.home import find_home

    path = find_home(home) / LOG_FILE
    ended_by(lambda: _show(path, lines, level, follow=follow, json=json), json=json)


def _show(path: Path, lines: int, level: LogLevel, *, follow: bool, json: bool) -> None:
    if not path.exists() and not follow:
        raise Failure(
            Exit.FAILED, f"there is no {path}", "a hub that has logged nothing has no log; see 'tieline status'"
        )
    order = list(LogLevel)
    wanted = set(order[order.index(level) :]) | {"critical"}
    reading = Reading(path)
    newest = deque((line for line in reading.all_lines() if _level(line) in wanted), maxlen=lines)
    for line in newest:
        _print(line, json=json)
    with contextlib.suppress(KeyboardInterrupt):
        while follow:
            found = [line for line in reading.new_lines() if _level(line) in wanted]
            for line in found:
                _print(line, json=json)
            if not found:
                time.sleep(_POLL_SECONDS)


class Reading:
    """Position of a reader in the log, which stays right when the hub begins a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def all_lines(self) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError):
            yield from _older(self._path).read_bytes().splitlines()
        yield from self.new_lines()

    def new_lines(self) -> Iterator[bytes]:
        """Return the whole lines that were added since the last call."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            inode = os.fstat(file.fileno()).st_ino
            if self._inode not in (0, inode):
                yield from self._rest_of_older()
            if inode != self._inode:
                self._inode, self._offset = inode, 0
            file.seek(self._offset)
            yield from self._whole_lines(file.read())

    def _rest_of_older(self) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError), _older(self._path).open("rb") as file:
            if os.fstat(file.fileno()).st_ino == self._inode:
                file.seek(self._offset)
                yield from self._whole_lines(file.read())

    def _whole_lines(self, data: bytes) -> Iterator[bytes]:
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from whole.splitlines()


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {"event": line.decode(errors="replace")}


def _level(line: bytes) -> str:
    return str(_decoded(line).get("level", LogLevel.INFO))


def _print(line: bytes, *, json: bool) -> None:
    if json:
        say(line.decode(errors="replace"))
        return
    entry = _decoded(line)
    level = str(entry.get("level", LogLevel.INFO))
    fields = "  ".join(f"{name}={value}" for name, value in entry.items() if name not in (*_OWN_FIELDS, "exception"))
    text = f"{_local(str(entry.get('timestamp', '')))}  {level:<7}  {entry.get('event', '')}  {fields}"
    say(neutral_line(text.rstrip()), style=_STYLES.get(level, ""))
    for part in str(entry.get("exception", "")).splitlines():
        say(f"    {neutral_line(part)}", style="dim")


def _local(stamp: str) -> str:
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(stamp).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return stamp
