"""The embedded store: SQLite in WAL mode, `synchronous=FULL`, one writer."""

from tieline.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
