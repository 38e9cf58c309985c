"""The record of one session of an agent's program: the messages that Tieline's hooks have shown in it.

Used by: `tieline drain --hook`. Uses: one small file, locked while a hook works with it. Hooks are short processes, and
a program runs several of them at once. Without the record, two hooks would show the same message. A message that was
shown may still be unread. So the record keeps the message's id until there is proof that the model has received the
message. If the program dies before that, its record has no effect any more, and the next session shows the message
again.

The file is removed when it has nothing to remember. If a killed program leaves its file behind, the next hook removes
the file.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER_VARIABLE = "TIELINE_RUN_FOLDER"
"""Environment variable with the path of the folder of a run (`tieline run`). The records of the run are in this folder,
and are removed with it."""

PUSHES_VARIABLE = "TIELINE_RUN_PUSHES"
"""Environment variable that is set if `tieline run` also pushes messages to the agent's program."""

READY = "ready"
"""Name of a file in the folder of a run. The file exists once the agent's program has read the list of the hub's
tools."""

FOLDER = "hooks"
"""Name of the folder with the records. This folder is in the folder of a run (`tieline run`). For programs outside of a
run it is in the folder of all runs."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "busybox"})
_START_FIELD = 19  # of /proc/PID/stat, counted behind the name
_PARENT_FIELD = 1
_STATE_FIELD = 0


class Process(Struct, frozen=True):
    """Identity of a process: its id, and its start time, because a later process may have the same id."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """True if the process still runs."""
        return self.pid > 0 and process_of(self.pid) == self


class Record(Struct):
    """Record of one session of an agent's program, stored in a file.

    It has the messages that hooks have shown to the program's model, and the hook that waits.
    """

    program: Process | None = None
    shown: list[str] = []
    """Ids of messages that were shown, and for which there is no proof yet that the model has received them."""
    named: list[str] = []
    """Ids of unread messages that were too long to show. The model was told that they wait, and how to take them."""
    has_shown: bool = False
    """True once a hook has shown a message in this session, even if the model has received this message since."""
    waiter: Process | None = None
    """Process of the hook that waits for the next message; `None` if no hook waits."""
    told: bool = False
    """True once the user was told by which way (push or hook) messages reach this session."""

    def show(self, shown: Iterable[str], named: Iterable[str]) -> None:
        """Add the ids of messages to the record: those that a hook shows now, and those that it only names."""
        self.shown += shown
        self.named += (one for one in named if one not in self.named)
        self.has_shown = bool(self.shown) or self.has_shown

    @property
    def is_over(self) -> bool:
        """True if the program has ended, so that its record has no effect any more."""
        return self.program is not None and not self.program.is_alive


@contextlib.contextmanager
def locked_record(folder: Path, session: str) -> Iterator[Record]:
    """Yield the record of a program's session, locked for one hook at a time. At the end, write it to its file.

    `folder` holds the records, and `session` is the id of the session.
    """
    if not os.environ.get(FOLDER_VARIABLE):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The folder of a run that is over is not made again: `mkdir` raises an error.
    folder.mkdir(mode=0o700, exist_ok=True)
    path = _path(folder, session)
    file = _opened(path)
    try:
        record = _decoded(os.pread(file, _BYTES_MAX, 0))
        if record.program is None or record.is_over:
            # A new session, or a session that a new process of the program continues.
            record = Record(program())
        yield record
        # The folder of a run is removed with the run.
        is_noted = record.told or (record.has_shown and FOLDER_VARIABLE in os.environ)
        is_awaited = record.waiter is not None and record.waiter.is_alive
        if record.program is not None and (record.shown or record.named or is_noted or is_awaited):
            content = msgspec.json.encode(record)
            os.pwrite(file, content, 0)
            os.ftruncate(file, len(content))
        else:
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def forget(folder: Path, session: str) -> None:
    """Remove the record of a session. Used for a session that was only a test of a hook, without a model."""
    _path(folder, session).unlink(missing_ok=True)


def _path(folder: Path, session: str) -> Path:
    return folder / hashlib.sha256(session.encode()).hexdigest()[:32]


def sweep(folder: Path) -> None:
    """Remove the records in `folder` of programs that have ended and of hooks that were killed."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                record = _decoded(os.pread(file, _BYTES_MAX, 0))
                # A hook that was killed before it wrote leaves an empty file.
                if record.program is None or record.is_over:
                    path.unlink(missing_ok=True)
            finally:
                os.close(file)


def program() -> Process | None:
    """Return the process of the agent's program that started this hook; `None` if the program has ended.

    Shells between the program and the hook are skipped.
    """
    pid = os.getppid()
    fields = _fields(pid)
    while fields is not None and fields[0] in _SHELLS:
        pid = int(fields[1 + _PARENT_FIELD])
        fields = _fields(pid)
    # Process 1 becomes the parent of a hook whose program has ended.
    return process_of(pid) if pid > 1 else None


def process_of(pid: int) -> Process | None:
    """Return the running process with this id; `None` if there is none."""
    fields = _fields(pid)
    if fields is not None:
        return Process(pid, fields[1 + _START_FIELD]) if fields[1 + _STATE_FIELD] != "Z" else None
    if Path("/proc/self").exists():
        return None
    # A system without /proc: only the id tells processes apart.
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return Process(pid, "")


def _fields(pid: int) -> list[str] | None:
    """Return the name of a process, then the other fields of its `/proc/PID/stat`; `None` if it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    return [head.partition("(")[2], *rest.split()]


_BYTES_MAX = 1024 * 1024
"""Maximum size of a record's file in bytes. The ids of one session need far less."""


def _decoded(content: bytes) -> Record:
    try:
        return msgspec.json.decode(content, type=Record)
    except msgspec.MsgspecError:
        # A new file, or one that a crash cut off.
        return Record()


def _opened(path: Path) -> int:
    """Open and lock a record's file, and return its descriptor. Try again if another hook has removed this file."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file).st_ino == path.stat().st_ino:
                return file
        os.close(file)
