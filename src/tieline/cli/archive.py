"""An archive: one compressed file with all data in a hub's home. Writes, checks and unpacks such files.

Used by: `tieline backup` and `tieline restore`. Uses: the files of a home, without the hub. SQLite's backup API copies
each database as of one moment, and a hub that runs meanwhile never waits for it.

The parts of a home are copied in this order: plain files and other databases, the main database, the catalogue of
files, the bytes of the files. Each part refers only to parts that are copied later. So nothing in an archive refers to
something that the archive lacks. If files are deleted while the archive is written, the catalogue is copied once more.
"""

import contextlib
import fcntl
import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

import apsw
import msgspec
from msgspec import Struct

from tieline import __version__
from tieline.cli.checkpoints import CHECKPOINTS_FILE, Checkpoints
from tieline.cli.checkpoints import KEY_FILE as AUDIT_KEY_FILE
from tieline.cli.last_backup import RECORD_FILE
from tieline.core.store import StoreError
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import UPGRADE_FOLDER, explain, newest_version, open_for_reading
from tieline.stores.sqlite.files import FILES_FILE
from tieline.stores.sqlite.inspection import open_inspection
from tieline.stores.sqlite.search import SEARCH_FILE
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.folder import sync_folder
from tieline.wire.home import LOCK_FILE, RESTORE_FOLDER, RUN_FILE, SETTINGS_FILE

ARCHIVE_NAME = re.compile(r"tieline-([0-9a-f]{8}-)?\d{8}T\d{6}Z(-\d+)?\.tar\.gz\Z")
"""Names that backups get in a folder: the id of the hub's log, which older programs left out, and the time."""

_BLOBS_FOLDER = "files"
_LAKE_FOLDER = "lake"
_MEMORY_FOLDER = "forgotten"
_RUNS_FOLDER = "run"
_MANIFEST = "manifest.json"
_FORMAT = 1
_LEFT_OUT = frozenset({LOCK_FILE, RUN_FILE, SETTINGS_FILE, RECORD_FILE, SEARCH_FILE})
"""Files of a home that are not copied: they describe a process, or can be made again (the search index)."""
DISK_FOLDER = "lost+found"
"""Folder at the top of a disk, which only root may read. A home may be such a disk."""
_FOLDERS_LEFT_OUT = frozenset({_LAKE_FOLDER, _MEMORY_FOLDER, _RUNS_FOLDER, UPGRADE_FOLDER, DISK_FOLDER})
_STAGE = ".tieline-backup-"
"""Beginning of the names of the folders in which archives are written."""
_STAGE_LOCK = "lock"
"""File in such a folder. The process that uses the folder holds a lock on it until it ends, however it ends."""
_TEMPORARY = re.compile(r"\..*\.\d+\Z|\.[0-9a-f]{32}\Z|\.tieline-backup-\w+\Z|\.restoring\Z")
"""Names of files and folders that are half written."""
_COMPANION = re.compile(r".*\.db-(wal|shm|journal)\Z")
_SQLITE = b"SQLite format 3\x00"
_PAGES = 1024
"""Database pages (4 MiB) that are copied in one step."""
_PIECE = 1 << 20  # bytes that are read at once
_LEVEL = 3  # of gzip: twice as fast as the default, and a tenth larger
_TRIES = 10  # each one more needs a file that is deleted within the milliseconds of copying the catalogue
_SCHEMAS = {MAIN_FILE: "main", ACTIVITY_FILE: "activity", FILES_FILE: "files"}


class ArchiveError(Exception):
    """Raised if an archive cannot be used: it is damaged or incomplete, or a newer program wrote it."""


class FileRecord(Struct, frozen=True, array_like=True):
    """One file of an archive in its manifest: path, size in bytes, and SHA-256 of the bytes in hexadecimal digits."""

    path: str
    size: int
    sha256: str


class Manifest(Struct, frozen=True):
    """Content of the last file in an archive: a list of all other files, and the program that wrote them."""

    format: int
    version: str
    at_ms: int
    files: tuple[FileRecord, ...]
    missing: tuple[str, ...] = ()
    """Hashes of contents that a catalogue of files names and that the home did not have any more."""


class Checked(Struct, frozen=True):
    """Result of a check: the number of homes in an archive, and of the log rows and messages in all of them."""

    homes: int
    rows: int
    messages: int
    at_ms: int


def write_archive(home: Path, target: Path) -> Checked:
    """Write all data of the hub in `home` to the file `target`, check the file, and return the result of the check.

    The file has a temporary name until it is complete and checked. If something fails, no part of it stays.
    """
    with _staging(target.parent) as stage:
        written = stage / "archive"
        with written.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as tar:
                _Writer(tar, home, stage, target).write()
            file.flush()
            os.fsync(file.fileno())
        checked = check_archive(written, stage / "check")
        written.rename(target)
        sync_folder(target.parent)
    return checked


def check_archive(file: Path, scratch: Path) -> Checked:
    """Read an archive to its end, open its databases in the folder `scratch`, and check their audit chains.

    Raise `ArchiveError` if anything is wrong.
    """
    manifest = _unpack(file, scratch, lambda name, begin: begin.startswith(_SQLITE) or name in _AUDITED)
    return _check(scratch, manifest)


_AUDITED = frozenset({AUDIT_KEY_FILE, CHECKPOINTS_FILE})
"""Names of the files that an audit reads beside the database."""


def unpack_archive(file: Path, home: Path) -> Checked:
    """Unpack an archive into the empty folder `home`, check everything in it, and return the result.

    Each log gets a new epoch (id of the log), so that readers of the old log notice that this is another log. The files
    are unpacked in a subfolder of `home` and not beside `home`, because `home` may be a disk of its own. If something
    fails, `home` is empty again. If this process is killed, the subfolder stays, and no hub starts in such a home. The
    caller holds the lock of the home, so that no hub starts meanwhile.
    """
    stage = home / RESTORE_FOLDER
    moved: list[Path] = []
    try:
        checked = _check(stage, _unpack(file, stage, lambda _name, _begin: True))
        for path in stage.rglob("*.db"):
            if path.is_file() and _is_database(path):
                _renew_epoch(path)
        for folder in (path for path in stage.rglob("*") if path.is_dir()):
            sync_folder(folder)
        for path in sorted(stage.iterdir(), key=lambda path: path.name == MAIN_FILE):
            path.rename(home / path.name)
            moved.append(home / path.name)
        stage.rmdir()
        sync_folder(home)
    except BaseException:
        for path in (stage, *moved):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        raise
    return checked


# Writing.


@contextlib.contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder in `folder`, and remove it at the end. First remove those that killed processes left."""
    for left in folder.glob(f"{_STAGE}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        while True:
            stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=folder))
            try:
                stack.enter_context(_locked(stage))
            except (BlockingIOError, FileNotFoundError):
                # Another process has taken the new folder for one that was left, and removes it.
                continue
            except OSError:
                # Some disks have no locks. Without one, no other process removes the folder.
                break
            if (stage / _STAGE_LOCK).exists():
                break
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def _locked(stage: Path) -> Iterator[None]:
    """Lock the temporary folder `stage` in the `with` block. Raise `BlockingIOError` if another process locked it.

    A process id in the folder's name could not replace the lock: in a container, a new process often has the id of the
    process before it.
    """
    with contextlib.ExitStack() as stack:
        folder = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        stack.callback(os.close, folder)
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(f"{stage} belongs to another user")
        lock = os.open(_STAGE_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


class _Writer:
    """Adds the files of a home to an archive. A file that refers to other files is added before them."""

    def __init__(self, tar: tarfile.TarFile, home: Path, stage: Path, target: Path) -> None:
        self._tar = tar
        self._home = home
        self._stage = stage
        self._target = target
        self._records: list[FileRecord] = []
        # Hashes of contents that the home itself has lost.
        self._missing: list[str] = []
        self._at_ms = time.time_ns() // 1_000_000

    def write(self) -> None:
        """Add everything, and the manifest as the last file."""
        databases: list[Path] = []
        for path in self._walk(self._home):
            if path.is_dir():
                self._add_folder(path)
            elif _is_database(path):
                databases.append(path)
            else:
                self._add_file(path.resolve() if path.is_symlink() else path, path)
        last = {MAIN_FILE: 1, FILES_FILE: 2}
        for path in sorted(databases, key=lambda path: last.get(path.name, 0)):
            if path.name == FILES_FILE:
                self._add_catalogue(path)
            else:
                with self._copy(path) as copy:
                    self._add_file(copy, path)
        manifest = Manifest(_FORMAT, __version__, self._at_ms, tuple(self._records), tuple(self._missing))
        document = msgspec.json.encode(manifest)
        self._tar.addfile(_header(_MANIFEST, len(document)), io.BytesIO(document))

    def _walk(self, folder: Path) -> Iterator[Path]:
        """Yield the files and folders in `folder`, at any depth, without those that are not copied.

        Names come in reverse order. The files of a Maildir move from `tmp` to `new` to `cur`, so a file that moves
        meanwhile is found once or twice, and never missed. Only links directly in a home that lead to files are
        followed.
        """
        try:
            names = sorted((path.name for path in folder.iterdir()), reverse=True)
        except FileNotFoundError:
            return
        is_home = MAIN_FILE in names
        for name in names:
            path = folder / name
            with contextlib.suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                if is_home and stat.S_ISLNK(mode):
                    mode = path.stat().st_mode
                    if stat.S_ISDIR(mode) and name not in (*_FOLDERS_LEFT_OUT, _BLOBS_FOLDER):
                        raise ArchiveError(f"{path} is a link to a folder, which a backup would lack: mount it there")
                if _TEMPORARY.match(name) or path == self._target:
                    continue
                if stat.S_ISREG(mode):
                    if not (name in _LEFT_OUT or _COMPANION.match(name) or ARCHIVE_NAME.match(name)):
                        yield path
                elif stat.S_ISDIR(mode) and not (is_home and name in (*_FOLDERS_LEFT_OUT, _BLOBS_FOLDER)):
                    yield path
                    yield from self._walk(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._home).as_posix()

    def _add_folder(self, path: Path) -> None:
        header = _header(self._name(path), 0)
        header.type, header.mode = tarfile.DIRTYPE, 0o700
        self._tar.addfile(header)

    def _add_file(self, path: Path, place: Path | None = None) -> bool:
        """Add the file at `path` to the archive. Return false if the file does not exist any more.

        Its name in the archive is made from `place`, or from `path` by default.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        with os.fdopen(descriptor, "rb") as file:
            header = _header(self._name(place or path), os.fstat(descriptor).st_size)
            hashing = _Hashing(file)
            self._tar.addfile(header, hashing)
        self._records.append(FileRecord(header.name, header.size, hashing.hexdigest()))
        return True

    def _add_catalogue(self, path: Path) -> None:
        """Add the catalogue of files, and the bytes of every file that it names."""
        blobs = path.with_name(_BLOBS_FOLDER)
        added: set[str] = set()
        missing: set[str] | None = None
        for _ in range(_TRIES):
            with self._copy(path) as copy:
                wanted, before = _digests(copy), missing
                missing = {digest for digest in wanted - added if not self._add_file(blobs / digest[:2] / digest)}
                added |= wanted - missing
                if missing and missing != before:
                    # Files were removed since the catalogue was copied. A newer catalogue does not name them.
                    continue
                self._add_file(copy, path)
                self._missing += sorted(missing)
                return
        raise ArchiveError(f"the files in {blobs} change too fast to be copied; try again later")

    @contextlib.contextmanager
    def _copy(self, path: Path) -> Iterator[Path]:
        """Copy a database as of now, and yield the path of the copy, which is removed at the end."""
        copy = self._stage / "database"
        try:
            with contextlib.closing(open_for_reading(path)) as source, contextlib.closing(_new(copy)) as made:
                # An open transaction keeps the moment, so that writes of the hub do not make the copy begin again.
                source.execute("BEGIN")
                source.execute(QUERIES["read_schema"]).fetchall()
                with made.backup("main", source, "main") as backup:
                    while not backup.done:
                        backup.step(_PAGES)
                made.pragma("journal_mode", "delete")
        except apsw.Error as error:
            raise explain(error, copy if isinstance(error, apsw.FullError) else path) from error
        try:
            yield copy
        finally:
            copy.unlink()


def _new(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "off")
    return connection


def _header(name: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = size, 0o600, int(time.time())
    return header


class _Hashing(io.RawIOBase):
    """File object that reads from another file, and computes the SHA-256 of the bytes that it has read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        return data

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _is_database(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE
    return False


def _digests(catalogue: Path) -> set[str]:
    """Return the hashes of the contents that a catalogue of files names."""
    with contextlib.closing(open_for_reading(catalogue)) as connection:
        return {row[0] for row in connection.execute(QUERIES["digests"])}


# Reading.


def _unpack(file: Path, into: Path, wanted: Callable[[str, bytes], bool]) -> Manifest:
    """Read an archive to its end, compare each file with the manifest, and return the manifest.

    Write the files for which `wanted` returns true to the folder `into`. `wanted` is called with the name of a file and
    its first bytes.
    """
    found: list[FileRecord] = []
    manifest: Manifest | None = None
    into.mkdir(mode=0o700)
    try:
        with gzip.open(file) as packed, tarfile.open(fileobj=packed, mode="r:") as tar:
            for member in tar:
                path = into / _safe(member.name)
                if manifest is not None:
                    raise ArchiveError(f"{file} goes on after its manifest")
                if member.isdir():
                    path.mkdir(mode=0o700, parents=True, exist_ok=True)
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise ArchiveError(f"{file} has an entry that is no file: {member.name}")
                if member.name == _MANIFEST:
                    manifest = msgspec.json.decode(content.read(), type=Manifest)
                else:
                    found.append(_take(content, member, path, wanted))
            # The last bytes are a checksum, after the end of the tar. They show that the file was not cut off.
            while packed.read(_PIECE):
                pass
    except (tarfile.TarError, EOFError, zlib.error, msgspec.MsgspecError, gzip.BadGzipFile) as error:
        raise ArchiveError(f"{file} is damaged or no backup: {error}") from error
    if manifest is None:
        raise ArchiveError(f"{file} is incomplete: its end is missing")
    if manifest.format > _FORMAT:
        raise ArchiveError(f"{file} was made by a newer Tieline ({manifest.version}): upgrade this program")
    if set(found) != set(manifest.files):
        raise ArchiveError(f"{file} is damaged: its files are not those that its manifest lists")
    return manifest


def _safe(name: str) -> PurePosixPath:
    """Return the name of a file in an archive as a path. Raise `ArchiveError` if it could lead out of a folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ArchiveError(f"the backup is not safe to unpack: it has a file {name!r}")
    return path


def _take(content: IO[bytes], member: tarfile.TarInfo, path: Path, wanted: Callable[[str, bytes], bool]) -> FileRecord:
    """Read one file of an archive, write it to `path` if it is wanted, and return its path, size and hash."""
    piece = content.read(_PIECE)
    hashed, size = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        file: IO[bytes] | None = None
        if wanted(path.name, piece):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            file = stack.enter_context(os.fdopen(descriptor, "wb"))
        while piece:
            hashed.update(piece)
            size += len(piece)
            if file is not None:
                file.write(piece)
            piece = content.read(_PIECE)
        if file is not None:
            file.flush()
            os.fsync(file.fileno())
    return FileRecord(member.name, size, hashed.hexdigest())


def _check(folder: Path, manifest: Manifest) -> Checked:
    """Check every database under `folder`, into which an archive was unpacked. Raise `ArchiveError` if one is bad."""
    homes = rows = messages = 0
    listed = {PurePosixPath(record.path) for record in manifest.files}
    try:
        for path in (folder / record.path for record in manifest.files if (folder / record.path).exists()):
            if not _is_database(path):
                continue
            _check_database(path, manifest)
            if path.name == FILES_FILE:
                _check_catalogue(path, path.relative_to(folder).parent / _BLOBS_FOLDER, listed, manifest)
            if path.name == MAIN_FILE:
                with contextlib.closing(open_inspection(path.parent)) as inspection:
                    report = Checkpoints(path.parent).verify(inspection, ())
                if not report.intact:
                    first = report.findings[0]
                    raise ArchiveError(f"its audit chain is broken at row {first.offset}: {first.what}")
                homes, rows, messages = homes + 1, rows + report.rows, messages + report.messages
    except (StoreError, apsw.Error) as error:
        raise ArchiveError(f"a database in the backup cannot be read: {error}") from error
    if not homes:
        raise ArchiveError("it has no hub in it")
    return Checked(homes, rows, messages, manifest.at_ms)


def _check_database(path: Path, manifest: Manifest) -> None:
    with contextlib.closing(open_for_reading(path)) as connection:
        problem, version = connection.pragma("quick_check"), connection.pragma("user_version")
    if problem != "ok":
        raise ArchiveError(f"{path.name} in the backup is damaged: {problem}")
    schema = _SCHEMAS.get(path.name)
    assert isinstance(version, int), "user_version is a number"
    if schema is not None and version > newest_version(schema):
        raise ArchiveError(f"the backup was made by a newer Tieline ({manifest.version}): upgrade this program")


def _check_catalogue(path: Path, blobs: Path, listed: set[PurePosixPath], manifest: Manifest) -> None:
    for digest in _digests(path) - set(manifest.missing):
        if PurePosixPath(blobs / digest[:2] / digest) not in listed:
            raise ArchiveError(f"the backup lacks the content {digest} of a file")


def _renew_epoch(path: Path) -> None:
    """Give the log in a database another epoch. A database without a log, or of an older version, stays as it is."""
    try:
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            if connection.execute(QUERIES["has_log_state"]).get:
                connection.execute(QUERIES["renew_epoch"])
    except apsw.FullError as error:
        raise explain(error, path) from error
    except apsw.Error as error:
        raise ArchiveError(f"{path.name} in the backup cannot be used: {error}") from error
