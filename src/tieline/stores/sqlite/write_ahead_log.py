"""The write-ahead log of a database: the file to which SQLite appends each commit, until a checkpoint moves it.

The main store and the activity log use it. They commit. This module decides when a checkpoint runs, and makes the file
longer before commits need the room. A commit that makes the file longer costs a disk much more than one that
overwrites, because the disk must also store the new length.
"""

import os
from pathlib import Path

import apsw

from tieline.stores.sqlite.database import BUSY_MS, IN_MEMORY, explain

CHECKPOINT_PAGES = 4000
"""Number of pages in the write-ahead log (16 MB) at which a checkpoint moves them into the database. The next start
reads so many pages in under a second."""

_FRAME_BYTES = 4096 + 24
"""Size of a page in the write-ahead log, with its header."""

_ROOM_BYTES = 1024 * 1024
"""Number of bytes by which the file grows at once, while it is shorter than checkpoints let it become."""


class WriteAheadLog:
    """The write-ahead log of one database, with its checkpoints. Create it before the database is opened."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._path = path
        self._file = Path(f"{path}-wal")
        self._connection: apsw.Connection | None = None
        # True if commits are synced to a disk. Otherwise, they cost the same in a longer file.
        self._durable = synchronous == "FULL" and path.parent != IN_MEMORY
        # Pages after the last commit, and the number of pages for which the file has room.
        self._pages = self._room = 0
        # Number of pages at which the next checkpoint runs.
        self._checkpoint_at = CHECKPOINT_PAGES
        # True if the file may have content that was erased from the database, for example after a crash.
        self.erases = self._file.exists() and self._file.stat().st_size > 0
        # Error of the last checkpoint; empty if it succeeded.
        self.trouble = ""

    def follow(self, connection: apsw.Connection) -> None:
        """Count the pages that this connection writes. No other connection may write."""
        self._connection = connection
        connection.set_wal_hook(self._committed)

    def _committed(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        self._pages = pages
        return 0

    def after_commit(self) -> None:
        """Run a checkpoint if it is due, and make the file longer if the next commits would do so."""
        if self._pages >= self._checkpoint_at or self.erases:
            self.checkpoint()
        elif self._durable and self._pages >= self._room and self._room < CHECKPOINT_PAGES:
            self._make_room()

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database. If that fails, the write-ahead log stays, and nothing is lost."""
        assert self._connection is not None, "the database is open"
        try:
            if self.erases:
                self._empty(self._connection)
            else:
                # Passive: moves only pages that no reader needs, and never waits for a reader.
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            why = explain(error, self._path)
            self.trouble = f"the write-ahead log cannot be moved into the database: {why}"
            self._checkpoint_at = self._pages + CHECKPOINT_PAGES
            return
        self.trouble = ""
        self._checkpoint_at = CHECKPOINT_PAGES
        self._pages = 0

    def _empty(self, connection: apsw.Connection) -> None:
        """Move the pages into the database and empty the file, which may still have erased content.

        Raise `apsw.BusyError` at once if a reader needs the file.
        """
        connection.set_busy_timeout(0)
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.set_busy_timeout(BUSY_MS)
        self.erases = False
        self._room = 0

    def _make_room(self) -> None:
        """Append zeros to the file, so that later commits only overwrite them.

        SQLite reads a write-ahead log only up to the place where the zeros begin.
        """
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, bytes(_ROOM_BYTES))
                self._room = os.fstat(file).st_size // _FRAME_BYTES
            finally:
                os.close(file)
        except OSError:
            # Commits still work, as long as the disk has room for them.
            self._room = CHECKPOINT_PAGES
