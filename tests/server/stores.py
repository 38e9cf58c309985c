"""Test double: a SQLite store whose commits a test can delay, fail and count."""

import threading
from pathlib import Path

from tieline.core.store import DiskError, StoredState, StoreError
from tieline.stores.sqlite import SqliteStore

WAIT_SECONDS = 10


class StubbornStore(SqliteStore):
    """Test double: a real SQLite store whose commits wait until the test allows them, or fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, synchronous="OFF")
        # Commits wait while this is not set; `entered` says that one does.
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        # Number of the next commits that fail, before or after they have written to the database.
        self.failures = 0
        self.restore_fails = False
        self.tried = 0
        self.done = 0

    def commit(self) -> None:
        """Commit. Before, wait or raise if the test wants it."""
        self.tried += 1
        if not self.gate.is_set():
            self.entered.set()
            assert self.gate.wait(WAIT_SECONDS), "the test never opened the gate"
        if self.failures:
            self.failures -= 1
            raise DiskError("no space left on device")
        super().commit()
        self.done += 1

    def restore(self) -> StoredState:
        """Return the stored state, or raise if the test wants it."""
        if self.restore_fails:
            raise StoreError("the disk is gone")
        return super().restore()
