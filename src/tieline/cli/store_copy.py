"""The copy of a hub's store to a store of another kind: tables, files and logins of the hub and all its rooms.

Used by: `tieline store copy`. Uses: the stores, table by table, with few rows in memory. It locks both stores, so
no hub uses one of them meanwhile. Everything is written first, then read again and compared with what the source gave,
and only then kept. So a copy that fails leaves a store that is empty.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.contract.file import CatalogueError
from tieline.server.storage import DatabaseStorage, Storage, schema_of
from tieline.services.files.blobs import MissingBlob
from tieline.stores.tables import TABLES, Row, Table, Tables
from tieline.wire.room import ROOM_FILE, ROOMS_FOLDER

_PIECE_BYTES = 256 * 1024
_PROGRESS_ROWS = 1000
"""Number of rows after which the progress is told. The display decides how often it is drawn."""

Progress = Callable[[str, int, int], None]
"""Function that shows the progress: what is being done, the rows so far, and all rows."""

_encode = msgspec.msgpack.Encoder().encode


class CopyError(Exception):
    """Raised if a store cannot be copied. `hint` is advice."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Copied(Struct, frozen=True, kw_only=True):
    """Result of a copy, over the hub and all its rooms. All of it was read again and is the same in both stores."""

    rooms: int
    rows: int
    """Number of rows of all tables."""
    log_rows: int
    messages: int
    activity_rows: int
    files: int
    """Number of contents of files. Equal contents count once."""
    missing: tuple[str, ...]
    """Hashes of contents that the catalogue of files names, and that the source itself does not have any more."""
    epoch: str
    """Id of the main log of the hub, which is the same in both stores."""
    seconds: float


def room_homes(home: Path) -> list[Path]:
    """Return the folders of the hub in `home` and of its rooms."""
    rooms = sorted((home / ROOMS_FOLDER).glob(f"*/{ROOM_FILE}"))
    return [home, *(path.parent for path in rooms if not path.parent.name.startswith("."))]


def check_rooms(home: Path, storage: DatabaseStorage) -> None:
    """Raise `CopyError` if a database has a room that the home does not know."""
    known = {schema_of(path) for path in room_homes(home)}
    unknown = [schema for schema in storage.schemas() if schema not in known]
    if unknown:
        hint = f"copy the folder {ROOMS_FOLDER}/ of the hub's home to {home}"
        raise CopyError(f"the database has {len(unknown)} rooms that {home} does not know: {', '.join(unknown)}", hint)


class StoreCopy:
    """One copy: opens and locks the stores of the hub and its rooms. Use it as a context manager.

    `pairs` has the source and the target of the hub, and then those of its rooms. Raise `CopyError` if a target is not
    empty.
    """

    def __init__(self, pairs: Iterable[tuple[Storage, Storage]], progress: Progress) -> None:
        self._progress = progress
        self._stack = contextlib.ExitStack()
        self._rooms: list[_Room] = []
        try:
            for source, target in pairs:
                self._rooms.append(_Room(source, target, self._stack, progress))
        except BaseException:
            self._stack.close()
            raise

    def make(self) -> Copied:
        """Copy everything, check it, and keep it. Raise `CopyError` if the copy is not the same as the source."""
        began = time.monotonic()
        for room in self._rooms:
            room.fill()
        for room in self._rooms:
            room.check()
        # The hub itself comes last: without its store, no hub starts.
        for room in reversed(self._rooms):
            room.keep()

        def rows(name: str) -> int:
            return sum(room.counts[name] for room in self._rooms)

        return Copied(
            rooms=len(self._rooms) - 1,
            rows=sum(sum(room.counts.values()) for room in self._rooms),
            log_rows=rows("log"),
            messages=rows("message"),
            activity_rows=rows("activity"),
            files=sum(room.files for room in self._rooms),
            missing=tuple(digest for room in self._rooms for digest in room.missing),
            epoch=self._rooms[0].epoch,
            seconds=round(time.monotonic() - began, 1),
        )

    def __enter__(self) -> "StoreCopy":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Room:
    """The copy of one room, or of the hub itself."""

    def __init__(self, source: Storage, target: Storage, stack: contextlib.ExitStack, progress: Progress) -> None:
        self._source, self._target, self._progress = source, target, progress
        self._from: Tables = stack.enter_context(contextlib.closing(source.open_tables(writes=False)))
        self._to: Tables = stack.enter_context(contextlib.closing(target.open_tables(writes=True)))
        full = [table.name for table in TABLES if table.key and self._to.count(table)]
        if full:
            hint = "name an empty database (createdb), or remove the schema there; a copy never replaces anything"
            raise CopyError(f"{self._to.place} is not empty: it has {', '.join(full[:3])}", hint)
        # Number of rows and their hash, by table, as the source gave them.
        self.counts: dict[str, int] = {}
        self._hashes: dict[str, bytes] = {}
        self.files = 0
        self.missing: list[str] = []
        self._kept: set[str] = set()
        self.epoch = ""

    def fill(self) -> None:
        """Copy the tables, the contents of the files, and the logins."""
        for table in TABLES:
            seen = _Seen()
            self._to.fill(table, self._told("copying", table, self._from, seen.look(self._from.rows(table))))
            self.counts[table.name], self._hashes[table.name] = seen.count, seen.hash.digest()
        (self.epoch, *_), *_ = self._from.rows(_named("log_state"))
        self._copy_files()

    def _told(self, doing: str, table: Table, tables: Tables, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, and tell the progress."""
        total = tables.count(table)
        for number, row in enumerate(rows, 1):
            yield row
            if number % _PROGRESS_ROWS == 0 or number == total:
                self._progress(f"{doing} {table.name}", number, total)

    def _copy_files(self) -> None:
        digests = {row[-1] for row in self._from.rows(_named("entry")) if row[-1] is not None}
        if digests:
            with (
                contextlib.closing(self._source.open_blobs()) as source,
                contextlib.closing(self._target.open_blobs()) as target,
            ):
                for number, digest in enumerate(sorted(digests), 1):
                    try:
                        reading = source.open(digest)
                    except MissingBlob:
                        self.missing.append(digest)
                        continue
                    upload = target.begin()
                    with reading:
                        while data := reading.read(_PIECE_BYTES):
                            upload.write(data)
                    # The hash of the bytes is their name, so this compares them.
                    if target.keep(upload).digest != digest:
                        raise CopyError(f"the file {digest} is damaged in {self._from.place}")
                    self._kept.add(digest)
                    self._progress("copying files", number, len(digests))
        self.files = len(self._kept)
        logins = self._source.logins().read()
        if logins is not None:
            self._target.logins().write(logins)

    def check(self) -> None:
        """Read everything from the target, and compare it with what the source gave."""
        for table in TABLES:
            seen = _Seen()
            for _ in self._told("checking", table, self._to, seen.look(self._to.rows(table))):
                pass
            found = (seen.count, seen.hash.digest())
            if found != (self.counts[table.name], self._hashes[table.name]):
                raise CopyError(f"{table.name} is not the same in {self._to.place}: nothing was kept")
        if self._kept:
            with contextlib.closing(self._target.open_blobs()) as target:
                for number, digest in enumerate(sorted(self._kept), 1):
                    content = hashlib.sha256()
                    with target.open(digest) as file:
                        while data := file.read(_PIECE_BYTES):
                            content.update(data)
                    if content.hexdigest() != digest:
                        raise CopyError(f"the file {digest} is not the same in {self._to.place}")
                    self._progress("checking files", number, len(self._kept))
        if self._target.logins().read() != self._source.logins().read():
            raise CopyError(f"the logins are not the same in {self._to.place}")

    def keep(self) -> None:
        """Make the copy durable."""
        self._to.keep()


class _Seen:
    """Number and hash of the rows that passed by."""

    def __init__(self) -> None:
        self.count = 0
        self.hash = hashlib.blake2b(digest_size=32)

    def look(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows."""
        for row in rows:
            self.hash.update(_encode(row))
            self.count += 1
            yield row


def _named(name: str) -> Table:
    (table,) = (table for table in TABLES if table.name == name)
    return table


ERRORS = (CopyError, CatalogueError)
