"""Files that members keep in the hub. All files and folders are entries of one tree.

An entry has only metadata. The bytes of a file are stored elsewhere, under their digest (hash). Entries with the same
digest share the same stored bytes.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

EVERYBODY = "*"
"""Viewer name that stands for every member. A viewer is a name that a file is shared with. No member is called `*`.

Two other viewers stand for groups: `chan:<id>` for the present members of a channel, and `obj:<id>` for the present
members of an objective's thread. No member has a name with a colon.
"""


class CatalogueError(Exception):
    """Error: the catalogue (the store of all file entries) could not be read or written. Nothing was changed."""


class FileKind(StrEnum):
    """Kind of an entry: a file or a folder."""

    FILE = "file"
    DIRECTORY = "directory"


class FileEntry(Struct, frozen=True, gc=False):
    """Metadata of one file or folder, without the bytes."""

    path: str
    """Absolute path. Its first segment is the top folder: the name of a member, or `objectives`."""
    kind: FileKind
    owner: str
    created_at_ms: int
    created_by: str
    updated_at_ms: int
    size: int | None = None
    """Size of a file in bytes. For a folder, size, media type and digest are `None`."""
    media_type: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


class FileChange(Struct, frozen=True):
    """Request to change entries. Either all changes are made or none. The order is: removed, moved, put."""

    removed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    """Pairs of an old path and a new path. The new path must be free."""
    put: tuple[FileEntry, ...] = ()
    """New entries, and entries that get new content."""
    at_ms: int = 0


class FileCatalogue(Protocol):
    """Interface of the store for file entries and shares. A share is the right of a viewer to read an entry.

    A viewer is a member's name, `EVERYBODY`, `chan:<id>` or `obj:<id>`. A change is durable when its method returns.
    Only one thread calls the catalogue.
    """

    def find(self, path: str) -> FileEntry | None:
        """Return the entry at a path; `None` if there is none."""
        ...

    def children(self, path: str, limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` entries directly in a folder: folders first, then files, each sorted by name."""
        ...

    def beneath(self, path: str) -> Sequence[FileEntry]:
        """Return all entries under a path, at any depth. The entry at the path itself is not in the result."""
        ...

    def files(self, limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` files of all members and objectives, newest first. Folders are left out."""
        ...

    def usage(self, home: str) -> tuple[int, int]:
        """Return the number of entries in a top folder and the total bytes of its files.

        `home` is the folder's name.
        """
        ...

    def apply(self, change: FileChange) -> Sequence[str]:
        """Make a change. Return the digests that no entry has any more after the change. Their bytes can be deleted."""
        ...

    def refers(self, digest: str) -> bool:
        """True if any entry has the content with this digest."""
        ...

    def share(self, paths: Sequence[str], viewers: Sequence[str], via: str, at_ms: int) -> None:
        """Let viewers read the entries at these paths. A share moves with its entry. It ends when the entry is removed.

        `via` is a random id for the shares that this call makes. `make_permanent` and `unshare` find the shares by this
        id.
        """
        ...

    def make_permanent(self, via: str, viewer: str) -> None:
        """Make the shares permanent that were made for this viewer with the id `via`.

        After that, the shares have no id, so `unshare` cannot find them. A path has at most one permanent share per
        viewer.
        """
        ...

    def unshare(self, via: str, viewer: str) -> None:
        """End the shares that were made for this viewer with the id `via`."""
        ...

    def forget(self, viewer: str, before_ms: int) -> None:
        """End all shares that were made for this viewer before this time."""
        ...

    def viewers(self) -> Sequence[str]:
        """Return all viewers with whom any entry is shared."""
        ...

    def viewers_of(self, paths: Sequence[str]) -> Sequence[str]:
        """Return all viewers with whom an entry at one of these paths is shared."""
        ...

    def is_shared(self, path: str, viewers: Sequence[str]) -> bool:
        """True if the entry at this path is shared with one of these viewers."""
        ...

    def shared(self, viewers: Sequence[str], limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` entries that are shared with one of these viewers, newest first."""
        ...

    def close(self) -> None:
        """Close the store. No other method may be called after this."""
        ...
