"""Files: what members keep in the hub, as entries of one tree, and the port that remembers them.

An entry is metadata; a file's bytes are kept elsewhere under their digest, once for all entries that have it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

EVERYBODY = "*"
"""As a viewer of a share: whoever is a member. No member can have this name.

Nor one with a colon, so `chan:<id>` and `obj:<id>` are viewers too: whoever is in the channel or the objective's thread
at the time.
"""


class CatalogueError(Exception):
    """The catalogue could not be read or written; nothing was changed."""


class FileKind(StrEnum):
    """What an entry is."""

    FILE = "file"
    DIRECTORY = "directory"


class FileEntry(Struct, frozen=True, gc=False):
    """One file or folder."""

    path: str
    """Absolute; its first segment is the home that it is in."""
    kind: FileKind
    owner: str
    created_at_ms: int
    created_by: str
    updated_at_ms: int
    size: int | None = None
    """Size, media type and digest are a file's; a folder has none of them."""
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
    """From one path to another that no entry has."""
    put: tuple[FileEntry, ...] = ()
    """New entries, and entries that get new content."""
    at_ms: int = 0


class FileCatalogue(Protocol):
    """Entries and who was shown them. A change is durable when its method returns; the caller is one thread."""

    def find(self, path: str) -> FileEntry | None:
        """The entry at a path."""
        ...

    def children(self, path: str, limit: int) -> Sequence[FileEntry]:
        """What is in a folder: folders first, then by name."""
        ...

    def beneath(self, path: str) -> Sequence[FileEntry]:
        """Everything under a path, at any depth, without the path itself."""
        ...

    def files(self, limit: int) -> Sequence[FileEntry]:
        """The files of all homes, newest first."""
        ...

    def usage(self, home: str) -> tuple[int, int]:
        """How many entries a home has, and how many bytes their files have together."""
        ...

    def apply(self, change: FileChange) -> Sequence[str]:
        """Make a change; returns the digests that entries had before it and none has any more."""
        ...

    def refers(self, digest: str) -> bool:
        """Whether any entry has this digest."""
        ...

    def share(self, paths: Sequence[str], viewers: Sequence[str], via: str, at_ms: int) -> None:
        """Let viewers read what is at these paths, because of `via`. A share ends with its entry and moves with it."""
        ...

    def settle(self, via: str, viewer: str) -> None:
        """What a viewer was shown because of `via` stays, as one with all that was settled for it before."""
        ...

    def unshare(self, via: str, viewer: str) -> None:
        """End what a viewer was shown because of `via`."""
        ...

    def forget(self, viewer: str, before_ms: int) -> None:
        """End all that a viewer was shown before a time."""
        ...

    def viewers(self) -> Sequence[str]:
        """Everybody who was shown something."""
        ...

    def viewers_of(self, paths: Sequence[str]) -> Sequence[str]:
        """Everybody who was shown one of these."""
        ...

    def is_shared(self, path: str, viewers: Sequence[str]) -> bool:
        """Whether one of these viewers was shown this entry."""
        ...

    def shared(self, viewers: Sequence[str], limit: int) -> Sequence[FileEntry]:
        """What these viewers were shown, newest first."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...
