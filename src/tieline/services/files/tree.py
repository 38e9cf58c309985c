"""The tree of files: rules for valid paths, for read and write access, and for collisions.

Used by: `files.py`, which calls this module on one thread only. Uses: the catalogue (the database of entries) and the
blobs (the bytes).

A member owns everything under `/<member>`, its home. Files of an objective are under `/objectives/<id>`. All members
who take part in the objective may read and add files there, and each may change its own files. Members with
`members.manage` may do everything. Other members may read only paths for which they have a grant. A member without
access to a path gets the same answer if the path exists and if it does not.

The order of steps makes a crash harmless: content is stored before an entry refers to it, and it is removed after the
last entry that refers to it. So a crash may leave content without an entry, but never an entry without content.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import BinaryIO

from msgspec import Struct

from tieline.contract.file import EVERYBODY, FileCatalogue, FileChange, FileEntry, FileKind
from tieline.contract.limits import MEBIBYTE
from tieline.contract.message import Attachment
from tieline.services.files.blobs import BlobStore, MissingBlob, Upload

ROOT = "/"
OBJECTIVES = "objectives"
"""First segment of the paths of objectives' files. A member with the name `objectives` has no folder for files."""

_PATH_CHARS_MAX = 1024  # as its clients have it
_NAME_CHARS_MAX = 255  # what file systems allow, so that a download can keep its name
_SEGMENT = re.compile(r"[a-zA-Z0-9._\- ]+\Z")
_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}(?:; ?[A-Za-z0-9._+-]+=[!-~]{1,40})?\Z"
)
_SUFFIX_MAX = 1000  # copies of one name before the next is refused
_MEDIA_TYPE_UNKNOWN = "application/octet-stream"


class FileLimits(Struct, frozen=True):
    """Limits for one file, for each member's folder, and for the files of all objectives together."""

    file_bytes_max: int = 25 * MEBIBYTE
    """Size limit of a file. Existing clients of the hub's protocols expect this size."""

    entries_max: int = 10_000
    """Maximum number of files and folders in one member's folder, because a listing of them is one answer."""

    home_bytes_max: int = 10 * 1024 * MEBIBYTE
    """Maximum number of bytes in one member's folder, so that no member can fill the disk that also stores messages."""

    objectives_entries_max: int = 100_000
    """Maximum number of files and folders of all objectives together. The hub counts them whenever one is added."""

    objectives_bytes_max: int = 100 * 1024 * MEBIBYTE
    """Maximum number of bytes of all objectives together."""


class FileCode(StrEnum):
    """Reason why a file operation was refused, such as a path that does not exist. Each reason has an HTTP status."""

    NOT_FOUND = "not_found"
    EXISTS = "exists"
    NOT_A_DIRECTORY = "not_a_directory"
    IS_A_DIRECTORY = "is_a_directory"
    NOT_EMPTY = "not_empty"
    FORBIDDEN = "forbidden"
    INVALID_INPUT = "invalid_input"
    TOO_LARGE = "too_large"
    CORRUPT = "corrupt"


_STATUS = {
    FileCode.NOT_FOUND: 404,
    FileCode.EXISTS: 409,
    FileCode.NOT_A_DIRECTORY: 409,
    FileCode.IS_A_DIRECTORY: 409,
    FileCode.NOT_EMPTY: 409,
    FileCode.FORBIDDEN: 403,
    FileCode.INVALID_INPUT: 400,
    FileCode.TOO_LARGE: 413,
    FileCode.CORRUPT: 503,
}


class FileRefusal(Struct, frozen=True):
    """Answer to a refused file operation: the reason as a code, and a sentence."""

    code: FileCode
    message: str

    @property
    def status(self) -> int:
        """HTTP status of the refusal."""
        return _STATUS[self.code]


class Collide(StrEnum):
    """Option of an upload: the action if the path has a file. Refuse, overwrite, or add a number to the new name."""

    ERROR = "error"
    OVERWRITE = "overwrite"
    SUFFIX = "suffix"


class Viewer(Struct, frozen=True):
    """The member who asks for a file operation, with the rights that decide what it may read and change."""

    name: str
    manages: bool = False
    """True if the member has the permission `members.manage`."""
    groups: frozenset[str] = frozenset()
    """The member's channels and objectives with access to the requested paths, as `chan:<id>` and `obj:<id>`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that may have the right to read a file: the member's own, `*` for everybody, and its groups."""
        return (self.name, EVERYBODY, *self.groups)


class Written(Struct, frozen=True):
    """Result of an upload: the entry (name, size, type) of the new file."""

    entry: FileEntry
    renamed: bool
    """True if the file got another name than the requested one."""


def parse_path(text: str) -> str | FileRefusal:
    """Return the text if it is a valid absolute path, or a refusal. The root `/` is valid."""
    if text == ROOT:
        return text
    if not text.startswith("/") or len(text) > _PATH_CHARS_MAX:
        return FileRefusal(FileCode.INVALID_INPUT, f"a path is absolute and has at most {_PATH_CHARS_MAX} characters")
    for segment in text[1:].split("/"):
        if segment in (".", "..") or len(segment) > _NAME_CHARS_MAX or not _SEGMENT.match(segment):
            return FileRefusal(
                FileCode.INVALID_INPUT,
                "a path has segments of letters, digits, '.', '_', '-' and spaces, without '.' or '..'",
            )
    return text


def objective_of(path: str) -> str | None:
    """Return the id of the objective to whose folder a path belongs; `None` for another path.

    This function does not check who takes part in the objective.
    """
    match path.split("/", 3)[1:]:
        case [first, objective, *_] if first == OBJECTIVES and objective:
            return objective
        case _:
            return None


class Tree:
    """The tree of files: checks the rules for paths, access and limits, then does the operation. Not thread-safe."""

    def __init__(self, catalogue: FileCatalogue, blobs: BlobStore, limits: FileLimits) -> None:
        self._catalogue = catalogue
        self._blobs = blobs
        self._limits = limits

    # Reading

    def stat(self, text: str, viewer: Viewer) -> FileEntry | FileRefusal:
        """Return the entry (name, size, type) of the file or folder at a path."""
        path = _parse_below_root(text)
        if isinstance(path, FileRefusal):
            return path
        if not self._may_read(path, viewer):
            return FileRefusal(FileCode.FORBIDDEN, f"cannot read {path}")
        return self._catalogue.find(path) or FileRefusal(FileCode.NOT_FOUND, f"no such path: {path}")

    def read(self, text: str, viewer: Viewer) -> tuple[FileEntry, BinaryIO] | FileRefusal:
        """Return the entry (name, size, type) of a file, and its content, open for reading."""
        entry = self.stat(text, viewer)
        if isinstance(entry, FileRefusal):
            return entry
        if entry.digest is None:
            return FileRefusal(FileCode.IS_A_DIRECTORY, f"not a file: {entry.path}")
        try:
            return entry, self._blobs.open(entry.digest)
        except MissingBlob as error:
            return FileRefusal(FileCode.CORRUPT, str(error))

    def listing(self, text: str, viewer: Viewer) -> Sequence[FileEntry] | FileRefusal:
        """Return the entries in a folder. For the root, return the members' folders that the viewer may list."""
        path = parse_path(text)
        if isinstance(path, FileRefusal):
            return path
        most = self._limits.entries_max
        if path == ROOT:
            if viewer.manages:
                return self._catalogue.children(ROOT, most)
            home = self._catalogue.find(f"/{viewer.name}") if viewer.name != OBJECTIVES else None
            return [home] if home is not None else []
        if not _may_write(path, viewer):
            return FileRefusal(FileCode.FORBIDDEN, f"cannot list {path}")
        entry = self._catalogue.find(path)
        if entry is not None and entry.kind is not FileKind.DIRECTORY:
            return FileRefusal(FileCode.NOT_A_DIRECTORY, f"not a directory: {path}")
        return self._catalogue.children(path, most)

    def shared(self, viewer: Viewer) -> Sequence[FileEntry]:
        """Return the files of other members that the viewer may read."""
        found = self._catalogue.shared(viewer.names, self._limits.entries_max)
        return [entry for entry in found if _home(entry.path) != viewer.name]

    def everything(self, viewer: Viewer) -> Sequence[FileEntry] | FileRefusal:
        """Return the files of all members, newest first. Only for members with `members.manage`."""
        if not viewer.manages:
            return FileRefusal(FileCode.FORBIDDEN, "only members with members.manage can list every file")
        return self._catalogue.files(self._limits.entries_max)

    # Writing

    def may_place(self, text: str, viewer: Viewer, collide: Collide, media_type: str) -> FileRefusal | None:
        """Check, before an upload, if a file may be placed at a path.

        Return the refusal, or `None` if the upload may begin.
        """
        if not _MEDIA_TYPE.match(media_type or _MEDIA_TYPE_UNKNOWN):
            return FileRefusal(FileCode.INVALID_INPUT, "the media type is not one")
        target = self._target(text, viewer, collide)
        return target if isinstance(target, FileRefusal) else None

    def place(
        self, upload: Upload, text: str, viewer: Viewer, collide: Collide, media_type: str, at_ms: int
    ) -> Written | FileRefusal:
        """Add the uploaded file to the tree at a path, with missing parent folders. Return its entry."""
        target = self._target(text, viewer, collide)
        if isinstance(target, FileRefusal):
            return target
        path, old = target
        folders = self._missing_folders(path, viewer, at_ms)
        if isinstance(folders, FileRefusal):
            return folders
        added = upload.size - (old.size or 0 if old is not None else 0)
        full = self._full(path, len(folders) + (old is None), added)
        if full is not None:
            return full
        blob = self._blobs.keep(upload)
        entry = FileEntry(
            path=path,
            kind=FileKind.FILE,
            owner=_owner(path, viewer) if old is None else old.owner,
            created_at_ms=at_ms if old is None else old.created_at_ms,
            created_by=viewer.name if old is None else old.created_by,
            updated_at_ms=at_ms,
            size=blob.size,
            media_type=media_type or _MEDIA_TYPE_UNKNOWN,
            digest=blob.digest,
        )
        try:
            self._apply(FileChange(put=(*folders, entry), at_ms=at_ms))
        except BaseException:
            if not self._catalogue.refers(blob.digest):
                self._blobs.discard(blob.digest)
            raise
        return Written(entry, path != text)

    def make_folder(self, text: str, viewer: Viewer, *, recursive: bool, at_ms: int) -> FileEntry | FileRefusal:
        """Create a folder and return it, with `recursive` also missing parents. An existing folder is no error."""
        path = _parse_below_root(text)
        if isinstance(path, FileRefusal):
            return path
        if not _may_write(path, viewer):
            return FileRefusal(FileCode.FORBIDDEN, f"cannot make {path}")
        entry = self._catalogue.find(path)
        if entry is not None:
            return (
                entry
                if entry.digest is None
                else FileRefusal(FileCode.NOT_A_DIRECTORY, f"already exists as a file: {path}")
            )
        missing = self._missing_folders(path, viewer, at_ms)
        if isinstance(missing, FileRefusal):
            return missing
        # A missing home is made automatically with its first entry.
        if not recursive and any("/" in folder.path[1:] for folder in missing):
            return FileRefusal(FileCode.NOT_FOUND, f"parent does not exist: {_parent(path)}")
        full = self._full(path, len(missing) + 1, 0)
        if full is not None:
            return full
        made = _folder(path, viewer, at_ms)
        self._apply(FileChange(put=(*missing, made), at_ms=at_ms))
        return made

    def remove(self, text: str, viewer: Viewer, *, recursive: bool, at_ms: int) -> FileRefusal | None:
        """Remove a file or folder. Without `recursive`, a folder must be empty. Return a refusal, or `None`."""
        path = _parse_below_root(text)
        if isinstance(path, FileRefusal):
            return path
        if not _may_write(path, viewer):
            return FileRefusal(FileCode.FORBIDDEN, f"cannot remove {path}")
        found = self._catalogue.find(path)
        if found is None:
            return FileRefusal(FileCode.NOT_FOUND, f"no such path: {path}")
        beneath = self._catalogue.beneath(path)
        if beneath and not recursive:
            return FileRefusal(FileCode.NOT_EMPTY, f"directory not empty: {path}")
        refusal = _refuse_change([found, *beneath], viewer)
        if refusal is not None:
            return refusal
        self._apply(FileChange(removed=(path, *(entry.path for entry in beneath)), at_ms=at_ms))
        return None

    def move(self, source_text: str, target_text: str, viewer: Viewer, at_ms: int) -> FileEntry | FileRefusal:
        """Move a file or folder and return its new entry. Members who may read it keep this right."""
        source, target = _parse_below_root(source_text), _parse_below_root(target_text)
        if isinstance(source, FileRefusal):
            return source
        if isinstance(target, FileRefusal):
            return target
        if not _may_write(source, viewer) or not _may_write(target, viewer):
            return FileRefusal(FileCode.FORBIDDEN, f"cannot move {source} to {target}")
        entry = self._catalogue.find(source)
        if entry is None:
            return FileRefusal(FileCode.NOT_FOUND, f"no such path: {source}")
        if source == target:
            return entry
        if target.startswith(f"{source}/"):
            return FileRefusal(FileCode.INVALID_INPUT, f"{target} is inside {source}")
        if self._catalogue.find(target) is not None:
            return FileRefusal(FileCode.EXISTS, f"destination exists: {target}")
        folders = self._missing_folders(target, viewer, at_ms)
        if isinstance(folders, FileRefusal):
            return folders
        beneath = self._catalogue.beneath(source)
        refusal = _refuse_change([entry, *beneath], viewer)
        if refusal is not None:
            return refusal
        moved = [(source, target), *((one.path, target + one.path[len(source) :]) for one in beneath)]
        if any(len(path) > _PATH_CHARS_MAX for _, path in moved):
            return FileRefusal(FileCode.INVALID_INPUT, "a path would be too long")
        if _home(source) == _home(target):
            full = self._full(target, len(folders), 0)
        else:
            full = self._full(target, len(folders) + len(moved), sum(one.size or 0 for one in (entry, *beneath)))
        if full is not None:
            return full
        self._apply(FileChange(moved=tuple(moved), put=tuple(folders), at_ms=at_ms))
        found = self._catalogue.find(target)
        assert found is not None, "it was moved there"
        return found

    # Sharing

    def attach(self, texts: Sequence[str], viewer: Viewer) -> tuple[Attachment, ...] | FileRefusal:
        """Return the files at the paths `texts` as attachments for a message, with the stored name, size and type."""
        attached: list[Attachment] = []
        for text in texts:
            entry = self.stat(text, viewer)
            if isinstance(entry, FileRefusal):
                missing = entry.code is FileCode.NOT_FOUND
                return FileRefusal(FileCode.INVALID_INPUT, f"no such attachment: {text}") if missing else entry
            if entry.digest is None:
                return FileRefusal(FileCode.INVALID_INPUT, f"not a file: {entry.path}")
            attached.append(_attachment(entry))
        return tuple(attached)

    def mirror(
        self, texts: Sequence[str], objective: str, viewer: Viewer, at_ms: int
    ) -> tuple[Attachment, ...] | FileRefusal:
        """Copy files into the folder of an objective (`objective` is its id). Return the copies as attachments.

        A copy refers to the same content as its original. The copies stay when the original entries are removed.
        """
        attached = self.attach(texts, viewer)
        if isinstance(attached, FileRefusal):
            return attached
        put: dict[str, FileEntry] = {}
        for one in attached:
            wanted = parse_path(f"/{OBJECTIVES}/{objective}/{one.name}")
            if isinstance(wanted, FileRefusal):
                return wanted
            path = next(
                (path for path in _candidates(wanted) if path not in put and self._catalogue.find(path) is None), None
            )
            source = self._catalogue.find(one.path)
            assert source is not None, "it was attached just now"
            if path is None:
                return FileRefusal(FileCode.EXISTS, f"too many files are called {one.name}")
            folders = self._missing_folders(path, viewer, at_ms)
            if isinstance(folders, FileRefusal):
                return folders
            put.update((folder.path, folder) for folder in folders)
            put[path] = FileEntry(
                path,
                FileKind.FILE,
                viewer.name,
                at_ms,
                viewer.name,
                at_ms,
                source.size,
                source.media_type,
                source.digest,
            )
        full = self._full(f"/{OBJECTIVES}", len(put), sum(entry.size or 0 for entry in put.values()))
        if full is not None:
            return full
        self._apply(FileChange(put=tuple(put.values()), at_ms=at_ms))
        return tuple(_attachment(entry) for entry in put.values() if entry.digest is not None)

    def share(self, paths: Sequence[str], viewers: Sequence[str], via: str, at_ms: int) -> None:
        """Let the `viewers` read these paths. Viewers are members, `*` (everybody), or groups such as `chan:<id>`.

        `via` is an id for these rights. `make_permanent` and `unshare` find the rights by this id.
        """
        self._catalogue.share(paths, viewers, via, at_ms)

    def make_permanent(self, via: str, viewer: str) -> None:
        """Make the rights permanent that `share` gave to `viewer` under the id `via`."""
        self._catalogue.make_permanent(via, viewer)

    def unshare(self, via: str, viewer: str) -> None:
        """Remove the rights that `share` gave to `viewer` under the id `via`."""
        self._catalogue.unshare(via, viewer)

    def forget(self, member: str, at_ms: int) -> None:
        """Delete a removed member's files and its rights to read files. A new member may get the same name."""
        path = f"/{member}"
        if member != OBJECTIVES and self._catalogue.find(path) is not None:
            beneath = self._catalogue.beneath(path)
            self._apply(FileChange(removed=(path, *(entry.path for entry in beneath)), at_ms=at_ms))
        self._catalogue.forget(member, at_ms + 1)

    def reconcile(self, since_ms: Mapping[str, int], at_ms: int) -> None:
        """Delete files of members that were removed while the hub was down, and their rights to read files.

        `since_ms` has the creation time of every current member, by name.
        """
        for home in self._catalogue.children(ROOT, self._limits.objectives_entries_max):
            name = home.path[1:]
            if name != OBJECTIVES and home.created_at_ms < since_ms.get(name, at_ms + 1):
                self.forget(name, at_ms)
        for viewer in self._catalogue.viewers():
            if viewer != EVERYBODY and ":" not in viewer:
                self._catalogue.forget(viewer, since_ms.get(viewer, at_ms + 1))

    def unattached_copies(self) -> list[tuple[str, list[str]]]:
        """Return copies of files that belong to no objective yet: a list of folders, each with the paths of its files.

        A crash can leave such copies behind.
        """
        found: list[tuple[str, list[str]]] = []
        for folder in self._catalogue.children(f"/{OBJECTIVES}", self._limits.objectives_entries_max):
            paths = [entry.path for entry in self._catalogue.beneath(folder.path) if entry.digest is not None]
            if not any(viewer.startswith("obj:") for viewer in self._catalogue.viewers_of(paths)):
                found.append((folder.path, paths))
        return found

    def groups(self, texts: Sequence[str]) -> list[str]:
        """Return the channels (`chan:<id>`) and objectives (`obj:<id>`) that may read one of these paths."""
        paths = [path for path in map(parse_path, texts) if not isinstance(path, FileRefusal)]
        shown = [viewer for viewer in self._catalogue.viewers_of(paths) if ":" in viewer]
        owned = [f"obj:{objective}" for objective in map(objective_of, paths) if objective is not None]
        return [*dict.fromkeys((*shown, *owned))]

    def sweep(self) -> int:
        """Delete stored bytes that no member's file refers to. Return the number of deleted files."""
        return self._blobs.sweep(self._catalogue.refers)

    # Internals

    def _apply(self, change: FileChange) -> None:
        for digest in self._catalogue.apply(change):
            self._blobs.discard(digest)

    def _may_read(self, path: str, viewer: Viewer) -> bool:
        return _may_write(path, viewer) or self._catalogue.is_shared(path, viewer.names)

    def _target(self, text: str, viewer: Viewer, collide: Collide) -> tuple[str, FileEntry | None] | FileRefusal:
        """Return the path for a new file, and the entry that the file will replace (`None` if it replaces no entry).

        Return a refusal if the file is not allowed. If there is already a file at the path, `collide` is the action.
        """
        path = _parse_below_root(text)
        if isinstance(path, FileRefusal):
            return path
        if not _may_write(path, viewer):
            return FileRefusal(FileCode.FORBIDDEN, f"cannot write to {path}")
        if "/" not in path[1:]:
            return FileRefusal(FileCode.IS_A_DIRECTORY, f"{path} is a home: write to a path inside it")
        old = self._catalogue.find(path)
        if old is None:
            return path, None
        if old.digest is None:
            return FileRefusal(FileCode.IS_A_DIRECTORY, f"cannot overwrite directory: {path}")
        match collide:
            case Collide.ERROR:
                return FileRefusal(FileCode.EXISTS, f"already exists: {path}")
            case Collide.OVERWRITE:
                return _refuse_change([old], viewer) or (path, old)
            case Collide.SUFFIX:
                free = next((one for one in _candidates(path) if self._catalogue.find(one) is None), None)
                checked = (
                    parse_path(free)
                    if free is not None
                    else FileRefusal(FileCode.EXISTS, f"too many files like {path}")
                )
                return checked if isinstance(checked, FileRefusal) else (checked, None)

    def _missing_folders(self, path: str, viewer: Viewer, at_ms: int) -> list[FileEntry] | FileRefusal:
        """Return new entries for the missing parents of a path, highest first; a refusal if a parent is a file."""
        missing: list[FileEntry] = []
        parent = _parent(path)
        while parent != ROOT:
            entry = self._catalogue.find(parent)
            if entry is not None and entry.kind is not FileKind.DIRECTORY:
                return FileRefusal(FileCode.NOT_A_DIRECTORY, f"not a directory: {parent}")
            if entry is not None:
                break
            missing.append(_folder(parent, viewer, at_ms))
            parent = _parent(parent)
        return missing[::-1]

    def _full(self, path: str, entries: int, size: int) -> FileRefusal | None:
        """Return a refusal if the top folder of a path has no room for `entries` more entries or `size` more bytes.

        The top folder is the folder of a member, or the folder of all objectives.
        """
        home = _home(path)
        count, total = self._catalogue.usage(home)
        limits = self._limits
        entries_max = limits.objectives_entries_max if home == OBJECTIVES else limits.entries_max
        bytes_max = limits.objectives_bytes_max if home == OBJECTIVES else limits.home_bytes_max
        if entries > 0 and count + entries > entries_max:
            return FileRefusal(FileCode.TOO_LARGE, f"/{home} would have more than {entries_max} entries")
        if size > 0 and total + size > bytes_max:
            return FileRefusal(FileCode.TOO_LARGE, f"/{home} would have more than {bytes_max} bytes")
        return None


def _parse_below_root(text: str) -> str | FileRefusal:
    return (
        FileRefusal(FileCode.INVALID_INPUT, "the root is no file or folder of anybody")
        if text == ROOT
        else parse_path(text)
    )


def _may_write(path: str, viewer: Viewer) -> bool:
    if viewer.manages:
        return True
    if _home(path) == OBJECTIVES:
        return f"obj:{objective_of(path)}" in viewer.groups
    return _home(path) == viewer.name


def _refuse_change(entries: Sequence[FileEntry], viewer: Viewer) -> FileRefusal | None:
    """Return a refusal if `entries` contains an entry that the viewer may not change.

    Everybody in an objective may add files to it. Only the owner of a file there, or a manager, may change the file.
    """
    if viewer.manages:
        return None
    others = (entry for entry in entries if _home(entry.path) == OBJECTIVES and entry.owner != viewer.name)
    return next((FileRefusal(FileCode.FORBIDDEN, f"{entry.path} belongs to {entry.owner}") for entry in others), None)


def _home(path: str) -> str:
    return path.split("/", 2)[1]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def _owner(path: str, viewer: Viewer) -> str:
    """Return the owner of a new entry: in an objective's folder the viewer, elsewhere the owner of the folder.

    The owner is always a member's name, because clients accept nothing else.
    """
    return viewer.name if _home(path) == OBJECTIVES else _home(path)


def _folder(path: str, viewer: Viewer, at_ms: int) -> FileEntry:
    return FileEntry(path, FileKind.DIRECTORY, _owner(path, viewer), at_ms, viewer.name, at_ms)


def _attachment(entry: FileEntry) -> Attachment:
    return Attachment(entry.path, entry.name, entry.size or 0, entry.media_type or "")


def _candidates(path: str) -> Iterator[str]:
    """Yield the path, then the path with a number before its suffix: `a.txt`, `a-1.txt`, `a-2.txt`…"""
    yield path
    parent, _, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    for number in range(1, _SUFFIX_MAX):
        yield f"{parent}/{stem}-{number}{dot}{ending}"
