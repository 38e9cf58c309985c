"""The embedded store: SQLite in WAL mode, `synchronous=FULL`, one writer for each of its two files."""

from tieline.stores.sqlite.activity import SqliteActivity
from tieline.stores.sqlite.store import SqliteStore

__all__ = ["SqliteActivity", "SqliteStore"]
