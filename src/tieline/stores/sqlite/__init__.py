"""The embedded store: SQLite in WAL mode, `synchronous=FULL`, one writer for each of its four files."""

from tieline.stores.sqlite.activity import SqliteActivity
from tieline.stores.sqlite.files import SqliteFiles
from tieline.stores.sqlite.search import SqliteSearch
from tieline.stores.sqlite.store import SqliteStore

__all__ = ["SqliteActivity", "SqliteFiles", "SqliteSearch", "SqliteStore"]
