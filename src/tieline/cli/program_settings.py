"""The settings files of an agent program on this machine: finds them, changes each in one step, and restores them.

Used by: `hooks`, `connect` and `disconnect`. Uses: the file system. A settings file belongs to its user: it is changed
only on request, and only if nobody else changes it meanwhile. A copy of the original is kept beside the file until the
change is undone. A killed process leaves the complete old file or the complete new file.
"""

import base64
import binascii
import contextlib
import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.agents.hooks import FORMS, Program
from tieline.cli.failure import Exit, Failure

_MARK = ".before-tieline"
_NEW = ".new-by-tieline"


def settings_folder(program: Program, named: Path | None) -> tuple[Path, bool]:
    """Return the settings folder of an agent program, and true if it is the default folder.

    The argument `named`, or an environment variable of the program, can name another folder.
    """
    form = FORMS[program]
    other = named or (os.environ.get(form.variable) if form.variable else None)
    return (Path(other).expanduser().absolute(), False) if other else (Path.home() / form.folder, True)


def executable_of(program: Program) -> str | None:
    """Return the path of an agent program's executable; `None` if the program is not installed."""
    form = FORMS[program]
    return shutil.which(os.environ.get(form.path_variable) or form.executable)


def can_wake(program: Program) -> bool:
    """True if a hook can wake the installed version of an agent program when it is idle."""
    from tieline.agents import hooks
    from tieline.agents.program import version_of

    executable = executable_of(program)
    if executable is None or not FORMS[program].wakes_at:
        return False
    return hooks.can_wake(program, version_of(executable, os.environ))


def tieline_path() -> str:
    """Return the path of the command `tieline`, so that a command in a program's settings does not depend on PATH."""
    beside = Path(sys.executable).with_name("tieline")
    return str(beside) if beside.exists() else shutil.which("tieline") or "tieline"


class _Kept(Struct, frozen=True):
    """Record for undoing Tieline's change of a settings file: the content before, and the hash of the new content."""

    before: str | None
    """Content of the file before Tieline's change, in base64; `None` if there was no file."""
    after: str
    """Hash of the content that Tieline wrote."""
    made_folder: bool = False
    """True if Tieline also created the program's settings folder."""


class SettingsFile:
    """A settings file of an agent program, and the record beside it that can undo Tieline's change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Target of a symbolic link: the link stays, and the target is changed.
        self._real = Path(os.path.realpath(path))
        content = _read(path)
        self.before = content or b""
        self._existed = content is not None
        # File beside it that can undo Tieline's change. It exists as long as the change does.
        self.record = _hidden(path, _MARK)
        self._kept = self._read_kept()

    @property
    def text(self) -> str:
        """Content of the file when this object was made."""
        return self.before.decode()

    @property
    def is_changed(self) -> bool:
        """True if Tieline has changed the file, and the change is not undone yet."""
        return self._kept is not None

    @property
    def is_ours(self) -> bool:
        """True if nobody has changed the file since Tieline wrote it."""
        return self._kept is not None and self._kept.after == sha256(self.before).hexdigest()

    def original(self) -> bytes | None:
        """Return the content before Tieline's change; empty if there was no file.

        Return `None` if Tieline has not changed the file, or if another program has changed it since.
        """
        return self._kept_bytes() if self.is_ours else None

    def original_text(self) -> str:
        """Return the content before Tieline's change, even if another program has changed the file since.

        The result is empty if Tieline has not changed the file, or if there was no file.
        """
        return self._kept_bytes().decode()

    def refuse_unchangeable(self) -> None:
        """Raise `Failure` if the file must not be changed: it is read-only, or it belongs to another user."""
        if not self._existed:
            return
        found = self._real.stat()
        if found.st_uid != os.geteuid():
            hint = "connect the program as that user"
            raise Failure(Exit.FAILED, f"{self._real} belongs to another user, and is not changed", hint)
        if not found.st_mode & 0o222:
            hint = "change it yourself as the preview shows, or make it writable"
            raise Failure(Exit.FAILED, f"{self._real} is read-only, and is not changed", hint)

    def change(self, after: bytes, base: bytes) -> None:
        """Write the new content `after`. Store the original content beside the file, so that the change can be undone.

        If Tieline has changed the file before, and nobody else has changed it since, the stored original stays the
        same. Otherwise the original is `base`, the current content without Tieline's entries.
        """
        self.refuse_unchangeable()
        if self._kept is not None:
            before = self._kept.before if self.is_ours else base64.b64encode(base).decode()
        else:
            before = base64.b64encode(base).decode() if self._existed else None
        made = not self.path.parent.exists()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._real.parent.mkdir(parents=True, exist_ok=True)
        made = made or (self._kept is not None and self._kept.made_folder)
        with self._unchanged():
            # The original is kept first. A stop between the two writes loses nothing: the file is not ours yet.
            self._keep(_Kept(before, sha256(after).hexdigest(), made))
            try:
                write(self._real, after, self._mode(), self._refuse_changed)
            except Failure:
                self._keep(self._kept)
                raise

    def restore(self, after: bytes) -> None:
        """Undo Tieline's change: write the content `after`. Remove the file if Tieline made it and `after` is empty."""
        self.refuse_unchangeable()
        kept = self._kept
        with self._unchanged():
            gone = kept is not None and kept.before is None and after.strip() in (b"", b"{}")
            if gone:
                self._real.unlink(missing_ok=True)
            elif after != self.before:
                write(self._real, after, self._mode(), self._refuse_changed)
            self.record.unlink(missing_ok=True)
        if gone and kept is not None and kept.made_folder:
            with contextlib.suppress(OSError):
                self.path.parent.rmdir()

    def diff(self, after: bytes) -> list[str]:
        """Return the lines of a unified diff from the current content to `after`."""
        from difflib import unified_diff

        from tieline.contract.text import neutral

        before, now = (neutral(part.decode()).splitlines() for part in (self.before, after))
        names = (str(self.path) if self.before else os.devnull, str(self.path))
        return list(unified_diff(before, now, *names, lineterm=""))

    def _mode(self) -> int:
        return stat.S_IMODE(self._real.stat().st_mode) if self._existed else 0o600

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Lock the settings folder against other Tieline commands during the `with` block.

        Raise `Failure` if the file has changed since this object read it.
        """
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            _remove_left(self.record)
            _remove_left(self._real)
            self._refuse_changed()
            yield
        finally:
            os.close(folder)

    def _refuse_changed(self) -> None:
        if _read(self.path) != (self.before if self._existed else None):
            raise Failure(Exit.FAILED, f"{self.path} was changed meanwhile, and is left alone", "try again")

    def _keep(self, kept: _Kept | None) -> None:
        """Write the record for undoing the change beside the file. If `kept` is `None`, remove the record."""
        if kept is None:
            self.record.unlink(missing_ok=True)
        else:
            write(self.record, msgspec.json.encode(kept), 0o600)

    def _kept_bytes(self) -> bytes:
        return base64.b64decode(self._kept.before) if self._kept is not None and self._kept.before else b""

    def _read_kept(self) -> _Kept | None:
        content = _read(self.record)
        if content is None:
            return None
        try:
            kept = msgspec.json.decode(content, type=_Kept)
            base64.b64decode(kept.before or "", validate=True)
        except (msgspec.MsgspecError, binascii.Error):
            return None
        return kept


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write(path: Path, content: bytes, mode: int, check: Callable[[], None] = lambda: None) -> None:
    """Replace the content of a file in one step. `mode` has the permission bits of the file.

    `check` is called directly before the replacement. It may raise an error, for example if the old file has changed
    during a slow write. Then the old file stays.
    """
    new = _hidden(path, _NEW)
    _remove_left(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        handle = _open_nameless(folder)
        has_name = handle is None
        if handle is None:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            if not has_name:
                # A rename needs a name. Until now the file had none, and a killed process would have left nothing.
                os.link(f"/proc/self/fd/{file.fileno()}", new.name, dst_dir_fd=folder)
        check()
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(folder)


def _open_nameless(folder: int) -> int | None:
    """Open a new file without a name in a folder, and return its descriptor.

    Return `None` if the system or its disk does not support such files. `folder` is the descriptor of the folder.
    """
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            return None
        raise


def _remove_left(path: Path) -> None:
    """Remove the temporary file that a killed process may have left beside `path`."""
    _hidden(path, _NEW).unlink(missing_ok=True)


def _hidden(path: Path, mark: str) -> Path:
    """Return the path of a hidden file beside `path`. Its name ends with `mark`."""
    return path.with_name(f".{path.name.removeprefix('.')}{mark}")
