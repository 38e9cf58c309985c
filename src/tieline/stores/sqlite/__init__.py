"""The embedded store: four SQLite files in WAL mode. Each file has one writer."""

from tieline.stores.sqlite.activity import SqliteActivity
from tieline.stores.sqlite.files import SqliteFiles
from tieline.stores.sqlite.search import SqliteSearch
from tieline.stores.sqlite.store import SqliteStore

__all__ = ["SqliteActivity", "SqliteFiles", "SqliteSearch", "SqliteStore"]
