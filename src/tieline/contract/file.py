"""Files that members keep in the hub, as entries of one tree, and the port that stores the entries.

An entry is metadata. The bytes of a file are stored elsewhere under their digest, once for all entries with that
digest.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

EVERYBODY = "*"
"""The viewer of a share that stands for every member. No member can have this name.

No member can have a name with a colon either, so `chan:<id>` and `obj:<id>` are viewers too. They stand for whoever is
in the channel, or in the objective's thread, at the time.
"""


class CatalogueError(Exception):
    """The catalogue could not be read or written; nothing was changed."""


class FileKind(StrEnum):
    """Kind of an entry."""

    FILE = "file"
    DIRECTORY = "directory"


class FileEntry(Struct, frozen=True, gc=False):
    """One file or folder."""

    path: str
    """Absolute path; its first segment is the home of the entry."""
    kind: FileKind
    owner: str
    created_at_ms: int
    created_by: str
    updated_at_ms: int
    size: int | None = None
    """Only a file has a size, a media type and a digest; a folder has none of them."""
    media_type: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


class FileChange(Struct, frozen=True):
    """Changes that happen together or not at all, in this order: removed, moved, put."""

    removed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    """Pairs of an old path and a new path. No entry has the new path before."""
    put: tuple[FileEntry, ...] = ()
    """New entries, and entries that get new content."""
    at_ms: int = 0


class FileCatalogue(Protocol):
    """Stores entries and their shares. A change is durable when its method returns. Only one thread calls it."""

    def find(self, path: str) -> FileEntry | None:
        """The entry at a path."""
        ...

    def children(self, path: str, limit: int) -> Sequence[FileEntry]:
        """Entries of a folder: folders first, then sorted by name."""
        ...

    def beneath(self, path: str) -> Sequence[FileEntry]:
        """Everything under a path, at any depth, without the path itself."""
        ...

    def files(self, limit: int) -> Sequence[FileEntry]:
        """The files of all homes, newest first."""
        ...

    def usage(self, home: str) -> tuple[int, int]:
        """Number of entries of a home, and the total bytes of its files."""
        ...

    def apply(self, change: FileChange) -> Sequence[str]:
        """Make a change. Returns the digests that some entry had before the change and no entry has after it."""
        ...

    def refers(self, digest: str) -> bool:
        """True if any entry has this digest."""
        ...

    def share(self, paths: Sequence[str], viewers: Sequence[str], via: str, at_ms: int) -> None:
        """Let viewers read the entries at these paths, because of `via`. A share ends and moves with its entry."""
        ...

    def settle(self, via: str, viewer: str) -> None:
        """Keep a viewer's shares because of `via`: they lose that reason and join the viewer's settled shares."""
        ...

    def unshare(self, via: str, viewer: str) -> None:
        """End a viewer's shares because of `via`."""
        ...

    def forget(self, viewer: str, before_ms: int) -> None:
        """End all shares of a viewer from before a time."""
        ...

    def viewers(self) -> Sequence[str]:
        """All viewers that have a share."""
        ...

    def viewers_of(self, paths: Sequence[str]) -> Sequence[str]:
        """All viewers that have a share of one of these paths."""
        ...

    def is_shared(self, path: str, viewers: Sequence[str]) -> bool:
        """True if one of these viewers has a share of this entry."""
        ...

    def shared(self, viewers: Sequence[str], limit: int) -> Sequence[FileEntry]:
        """Entries that are shared with these viewers, newest first."""
        ...

    def close(self) -> None:
        """Close the catalogue."""
        ...
