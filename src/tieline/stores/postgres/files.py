"""The catalogue of files and the bytes of files in PostgreSQL, and documents that the hub keeps as a whole.

The services that serve files use this module, on one thread. The SQL statements are in `files.sql`.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from tieline.contract.file import CatalogueError, FileChange, FileEntry, FileKind
from tieline.core.store import StoreError
from tieline.services.files.blobs import Blob, MissingBlob, Upload, new_upload
from tieline.stores.postgres.columns import Texts
from tieline.stores.postgres.connection import Guard, PostgresConnection, load_statements

_STATEMENTS = load_statements("files.sql")

_PIECE_BYTES = 256 * 1024
"""Size of a piece of a file. A row of a whole file would be in memory several times."""


def _connect(url: str, schema: str, guard: Guard | None = None) -> PostgresConnection:
    return PostgresConnection(url, schema, "files", statements=_STATEMENTS, guard=guard)


class PostgresFiles:
    """Implementation of `FileCatalogue`: stores the paths of members' files, and the shares of files."""

    def __init__(self, url: str, schema: str, guard: Guard | None = None) -> None:
        self._connection = _connect(url, schema, guard)

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
            count, size = self._connection.one("usage", (home,))
        return count, size

    def apply(self, change: FileChange) -> Sequence[str]:
        """Remove, move and store entries in one transaction.

        Return the hashes of the contents that no entry has any more.
        """
        with self._refusing():
            write = self._connection.write
            paths = [*change.removed, *(entry.path for entry in change.put)]
            before = [row[0] for row in self._connection.select("digests_of", (Texts(paths),))]
            for path in change.removed:
                write("remove", (path,))
            for source, target in change.moved:
                write("move", (target, _parent(target), _home(target), change.at_ms, source))
            for entry in change.put:
                stamps = (entry.owner, entry.created_at_ms, entry.created_by, entry.updated_at_ms)
                content = (entry.size, entry.media_type, entry.digest)
                place = (entry.path, _parent(entry.path), _home(entry.path), entry.kind.value)
                write("put", (*place, *stamps, *content))
            self._connection.flush()
            freed = [str(row[0]) for row in self._connection.select("unused", (Texts(before),))]
            self._connection.commit()
        return freed

    def refers(self, digest: str) -> bool:
        """True if any entry has the content whose hash is `digest`."""
        with self._refusing():
            return bool(self._connection.one("refers", (digest,))[0])

    def share(self, paths: Sequence[str], viewers: Sequence[str], via: str, at_ms: int) -> None:
        """Let `viewers` read the entries at `paths`: store one share for each path and viewer.

        `via` is an id by which other methods find these shares. `at_ms` is the time of the shares.
        """
        self._change("share", Texts(paths), Texts(viewers), via, at_ms)

    def make_permanent(self, via: str, viewer: str) -> None:
        """Make permanent the shares (rights to read) that `share` made for `viewer` under the id `via`.

        The shares lose this id, so `unshare` does not find them any more.
        """
        self._connection.write("end_permanent", (via, viewer))
        self._change("make_permanent", via, viewer)

    def unshare(self, via: str, viewer: str) -> None:
        """End the shares (rights to read) that `share` made for `viewer` under the id `via`."""
        self._change("unshare", via, viewer)

    def forget(self, viewer: str, before_ms: int) -> None:
        """End all shares (rights to read) that were made for `viewer` before the time `before_ms`."""
        self._change("forget", viewer, before_ms)

    def viewers(self) -> Sequence[str]:
        """Return all viewers (members, channels, objectives or everybody) that any entry is shared with."""
        with self._refusing():
            return [str(row[0]) for row in self._connection.select("viewers")]

    def viewers_of(self, paths: Sequence[str]) -> Sequence[str]:
        """Return all viewers that an entry at one of `paths` is shared with.

        A viewer is a member, a channel, an objective or everybody.
        """
        with self._refusing():
            return [str(row[0]) for row in self._connection.select("viewers_of", (Texts(paths),))]

    def is_shared(self, path: str, viewers: Sequence[str]) -> bool:
        """True if the entry at a path is shared with one of these viewers."""
        with self._refusing():
            return bool(self._connection.one("is_shared", (path, Texts(viewers)))[0])

    def shared(self, viewers: Sequence[str], limit: int) -> Sequence[FileEntry]:
        """Return at most `limit` entries that are shared with one of these viewers, newest first."""
        return self._entries("shared", Texts(viewers), limit)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _change(self, statement: str, *values: object) -> None:
        with self._refusing():
            self._connection.write(statement, values)
            self._connection.commit()

    def _entries(self, statement: str, *values: object) -> list[FileEntry]:
        with self._refusing():
            return [FileEntry(row[0], FileKind(row[1]), *row[2:]) for row in self._connection.select(statement, values)]

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self._connection.roll_back()
            raise CatalogueError(f"the catalogue of files refused: {error}") from error


class PostgresBlobs:
    """The bytes of members' files, by their hash, in the database. Uploads are in the folder `incoming` until they end.

    Not thread-safe: only one thread may use it at a time.
    """

    def __init__(self, url: str, schema: str, incoming: Path, guard: Guard | None = None) -> None:
        self._connection = _connect(url, schema, guard)
        self._incoming = incoming
        incoming.mkdir(parents=True, exist_ok=True, mode=0o700)

    def begin(self) -> Upload:
        """Return a new upload. The caller writes the bytes to it, and ends it with `keep` or `Upload.abandon`."""
        return new_upload(self._incoming)

    def keep(self, upload: Upload) -> Blob:
        """Finish an upload: store its bytes under their hash, in one transaction. Return the hash and the size."""
        blob = upload.finish()
        try:
            with self._explaining():
                if self._connection.one("blob_size", (blob.digest,))[0] != blob.size:
                    self._store(upload.path, blob)
        finally:
            upload.abandon()
        return blob

    def _store(self, path: Path, blob: Blob) -> None:
        # Bytes of another size are damaged.
        self._connection.write("discard", (blob.digest,))
        with path.open("rb") as file:
            piece = 0
            # Even an empty file has a piece, so that it is there.
            while (data := file.read(_PIECE_BYTES)) or not piece:
                self._connection.write("put_piece", (blob.digest, piece, data))
                self._connection.flush()
                piece += 1
        self._connection.commit()

    def open(self, digest: str) -> BinaryIO:
        """Open the stored bytes whose hash is `digest`, for reading.

        The bytes are copied to a file without a name. So the reader can read all bytes, even if they are deleted
        meanwhile.
        """
        copy = cast(BinaryIO, tempfile.TemporaryFile(buffering=0, dir=self._incoming))  # noqa: SIM115 - the reader closes it
        try:
            piece = 0
            with self._explaining(), self._connection.instant():
                while rows := self._connection.select("piece", (digest, piece)):
                    copy.write(rows[0][0])
                    piece += 1
            if not piece:
                raise MissingBlob(f"the content {digest} is not in the database")
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy

    def discard(self, digest: str) -> None:
        """Delete the stored bytes whose hash is `digest`, because no member's file refers to them any more."""
        with self._explaining():
            self._connection.write("discard", (digest,))
            self._connection.commit()

    def sweep(self, refers: Callable[[str], bool]) -> int:
        """Delete the incomplete uploads and unused bytes of an earlier run. Return the number of deleted files.

        `refers` returns true for a hash that at least one member's file uses.
        """
        removed = 0
        for path in self._incoming.iterdir():
            path.unlink()
            removed += 1
        for digest in self.digests():
            if not refers(digest):
                self.discard(digest)
                removed += 1
        return removed

    def digests(self) -> set[str]:
        """Return the hashes of the bytes of all stored files."""
        with self._explaining():
            return {str(row[0]) for row in self._connection.select("blobs")}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self._connection.roll_back()
            raise CatalogueError(f"the store of files refused: {error}") from error


class PostgresDocument:
    """A small document that the hub keeps as a whole, such as its logins. Any thread may use it.

    Each use has a connection of its own, because uses are rare.
    """

    def __init__(self, url: str, schema: str, name: str, guard: Guard | None = None) -> None:
        self._url = url
        self._guard = guard
        self._schema = schema
        self.name = name

    def read(self) -> bytes | None:
        """Return the document; `None` if there is none."""
        connection = _connect(self._url, self._schema)
        try:
            rows = connection.select("document", (self.name,))
        finally:
            connection.close()
        return bytes(rows[0][0]) if rows else None

    def write(self, content: bytes) -> None:
        """Replace the document. It is durable when this returns."""
        connection = _connect(self._url, self._schema, self._guard)
        try:
            connection.write("put_document", (self.name, content))
            connection.commit()
        finally:
            connection.close()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _home(path: str) -> str:
    return path.split("/", 2)[1]
