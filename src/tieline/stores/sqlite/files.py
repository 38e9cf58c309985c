"""The catalogue of files in its own database file, `files.db`.

The services that serve files use this module, on one thread. The SQL statements are in `files.sql`, and the schema is
in `schema/`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tieline.contract.file import CatalogueError, FileChange, FileEntry, FileKind
from tieline.stores.sqlite.database import open_database
from tieline.stores.statements import load

FILES_FILE = "files.db"

_QUERIES = load(files("tieline.stores.sqlite").joinpath("files.sql").read_text(encoding="utf-8"))

_CHECKPOINT_PAGES = 1000
"""Pages in the write-ahead log before SQLite runs a checkpoint by itself. Files change rarely."""


class SqliteFiles:
    """Implementation of `FileCatalogue`: stores the paths of members' files in `files.db`, not their contents.

    It also stores the shares of files. A share lets a viewer (a member, a channel, an objective or everybody) read a
    file.
    """

    def __init__(self, folder: Path, *, synchronous: str = "FULL", vfs: str | None = None) -> None:
        self._connection = open_database(folder / FILES_FILE, "files", synchronous=synchronous, vfs=vfs)
        self._connection.wal_autocheckpoint(_CHECKPOINT_PAGES)

    def find(self, path: str) -> FileEntry | None:
        """Return the file or folder at a path, or `None`."""
        return next(iter(self._entries("find", path)), None)

    def children(self, path: str, limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` entries of a folder: folders first, then files, each sorted by name."""
        return self._entries("children", path, limit)

    def beneath(self, path: str) -> Sequence[FileEntry]:
        """Return all entries under a path, at any depth. The entry at the path itself is left out."""
        # "0" is the next character after "/", so the range has exactly the paths that begin with the folder and "/".
        return self._entries("beneath", f"{path}/", f"{path}0")

    def files(self, limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` files of all members and objectives, newest first."""
        return self._entries("files", limit)

    def usage(self, home: str) -> tuple[int, int]:
        """Return the number of entries under a top folder (`home`), and the total bytes of its files."""
        with self._refusing():
            count, size = self._run("usage", home)[0]
        return count, size

    def apply(self, change: FileChange) -> Sequence[str]:
        """Remove, move and store entries in one transaction.

        Return the hashes of the contents that no entry has any more.
        """
        before: set[str] = set()
        freed: list[str] = []
        with self._refusing(), self._connection:
            for path in (*change.removed, *(entry.path for entry in change.put)):
                before.update(str(row[0]) for row in self._run("digest", path) if row[0] is not None)
            for path in change.removed:
                self._run("remove", path)
            for source, target in change.moved:
                self._run("move", target, _parent(target), _home(target), change.at_ms, source)
            for entry in change.put:
                self._put(entry)
            freed += (digest for digest in sorted(before) if not self._exists("refers", digest))
        return freed

    def refers(self, digest: str) -> bool:
        """True if any entry has the content whose hash is `digest`."""
        with self._refusing():
            return self._exists("refers", digest)

    def share(self, paths: Sequence[str], viewers: Sequence[str], via: str, at_ms: int) -> None:
        """Let `viewers` read the entries at `paths`: store one share for each path and viewer.

        `via` is an id by which other methods find these shares. `at_ms` is the time of the shares.
        """
        with self._refusing(), self._connection:
            self._connection.executemany(
                _QUERIES["share"], ((path, viewer, via, at_ms) for path in paths for viewer in viewers)
            )

    def make_permanent(self, via: str, viewer: str) -> None:
        """Make permanent the shares (rights to read) that `share` made for `viewer` under the id `via`.

        The shares lose this id, so `unshare` does not find them any more.
        """
        with self._refusing():
            self._run("make_permanent", via, viewer)

    def unshare(self, via: str, viewer: str) -> None:
        """End the shares (rights to read) that `share` made for `viewer` under the id `via`."""
        with self._refusing():
            self._run("unshare", via, viewer)

    def forget(self, viewer: str, before_ms: int) -> None:
        """End all shares (rights to read) that were made for `viewer` before the time `before_ms`."""
        with self._refusing():
            self._run("forget", viewer, before_ms)

    def viewers(self) -> Sequence[str]:
        """Return all viewers (members, channels, objectives or everybody) that any entry is shared with."""
        with self._refusing():
            return [str(row[0]) for row in self._run("viewers")]

    def viewers_of(self, paths: Sequence[str]) -> Sequence[str]:
        """Return all viewers that an entry at one of `paths` is shared with.

        A viewer is a member, a channel, an objective or everybody.
        """
        with self._refusing():
            return [str(row[0]) for row in self._run("viewers_of", _list(paths))]

    def is_shared(self, path: str, viewers: Sequence[str]) -> bool:
        """True if the entry at a path is shared with one of these viewers."""
        with self._refusing():
            return self._exists("is_shared", path, _list(viewers))

    def shared(self, viewers: Sequence[str], limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` entries that are shared with one of these viewers, newest first."""
        return self._entries("shared", _list(viewers), limit)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _put(self, entry: FileEntry) -> None:
        stamps = (entry.owner, entry.created_at_ms, entry.created_by, entry.updated_at_ms)
        content = (entry.size, entry.media_type, entry.digest)
        self._run("put", entry.path, _parent(entry.path), _home(entry.path), entry.kind.value, *stamps, *content)

    def _entries(self, statement: str, *values: str | int) -> list[FileEntry]:
        with self._refusing():
            return [FileEntry(row[0], FileKind(row[1]), *row[2:]) for row in self._run(statement, *values)]

    def _exists(self, statement: str, *values: str) -> bool:
        return bool(self._run(statement, *values)[0][0])

    def _run(self, statement: str, *values: str | int | None) -> list[tuple[Any, ...]]:
        return self._connection.execute(_QUERIES[statement], values).fetchall()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise CatalogueError(f"the catalogue of files refused: {error}") from error


def _list(texts: Sequence[str]) -> str:
    return msgspec.json.encode(texts).decode()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _home(path: str) -> str:
    return path.split("/", 2)[1]
