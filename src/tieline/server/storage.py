"""The stores of one hub or room: in the files of its home or in a PostgreSQL database, as the URL of its store says.

Used by: the assembly of a room. Uses: the stores. The main store is opened by `room.open_store`, before all others.
"""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from tieline.contract.file import FileCatalogue
from tieline.core.audit import Inspection
from tieline.core.search_query import SearchIndex
from tieline.core.store import ActivityStore, Store
from tieline.server.config import DATABASE_SCHEMES, DEFAULT_STORE, STORE_VARIABLE, ConfigError, load_config
from tieline.services.document import Document, DocumentFile
from tieline.services.files.blobs import Blobs, BlobStore
from tieline.services.login_sessions import LOGINS_FILE
from tieline.stores.pages import Pages
from tieline.stores.sqlite import SqliteActivity, SqliteFiles, SqliteSearch
from tieline.stores.sqlite.inspection import open_inspection
from tieline.stores.sqlite.pages import LogPages
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.tables import SqliteTables
from tieline.stores.tables import Tables
from tieline.wire.home import CONFIG_FILE
from tieline.wire.room import ROOM_FILE

if TYPE_CHECKING:
    from types import ModuleType

    from tieline.stores.postgres import PostgresReading
    from tieline.stores.postgres.lease import Lease, LeaseView

MEMORY = "memory"
"""Name of the store that keeps nothing after the hub stops. It is a SQLite database without sync, in a folder of the
home. The hub removes this folder when it stops."""
_FORGOTTEN_FOLDER = "forgotten"
_BLOBS_FOLDER = "files"
_INCOMING_FOLDER = "incoming"


class Storage(Protocol):
    """Interface of the stores of one hub beside the main store. Each call opens a store."""

    def open_activity(self) -> ActivityStore:
        """Open the activity log."""

    def open_index(self) -> SearchIndex:
        """Open the search index."""

    def open_catalogue(self) -> FileCatalogue:
        """Open the catalogue of files."""

    def open_blobs(self) -> BlobStore:
        """Open the store of the bytes of files."""

    def open_pages(self) -> Pages:
        """Open a reader of the logs."""

    def open_inspection(self) -> Inspection:
        """Open the main store for the audit, read-only."""

    def has_tables(self) -> bool:
        """True if a hub has made the store."""

    def open_tables(self, *, writes: bool) -> Tables:
        """Open all tables for a copy: to read them or, with `writes`, to fill them. No hub may use them."""

    def logins(self) -> Document:
        """Return the document in which the logins (apps and sessions) are stored."""


class HomeStorage:
    """Opens the stores of a hub or room in files of a folder."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._folder = folder
        self._synchronous = synchronous

    def open_activity(self) -> ActivityStore:
        """Open the activity log."""
        return SqliteActivity(self._folder, synchronous=self._synchronous)

    def open_index(self) -> SearchIndex:
        """Open the search index."""
        return SqliteSearch(self._folder)

    def open_catalogue(self) -> FileCatalogue:
        """Open the catalogue of files."""
        return SqliteFiles(self._folder, synchronous=self._synchronous)

    def open_blobs(self) -> BlobStore:
        """Open the store of the bytes of files."""
        return Blobs(self._folder / _BLOBS_FOLDER)

    def open_pages(self) -> Pages:
        """Open a reader of the logs."""
        return LogPages(self._folder)

    def open_inspection(self) -> Inspection:
        """Open the main store for the audit, read-only."""
        return open_inspection(self._folder)

    def has_tables(self) -> bool:
        """True if a hub has made the store."""
        return (self._folder / MAIN_FILE).exists()

    def open_tables(self, *, writes: bool) -> Tables:
        """Open all tables for a copy. See `Storage.open_tables`."""
        return SqliteTables(self._folder, writes=writes)

    def logins(self) -> Document:
        """Return the document in which the logins (apps and sessions) are stored."""
        return DocumentFile(self._folder / LOGINS_FILE)


class DatabaseStorage:
    """Opens the stores of a hub or room in a schema of a PostgreSQL database. Unfinished uploads are in the home.

    With `lease`, that of the main store, the other stores write only while the hub has it.
    """

    def __init__(self, url: str, home: Path, lease: "Lease | None" = None) -> None:
        self._url = url
        self._lease = lease
        self._schema = schema_of(home)
        self._home = home

    def open_store(self, address: str = "") -> Store:
        """Open the main store for writing. Only one hub may do that at a time.

        `address` is where the other hubs of a team reach this one. With it, raise `LeaseHeld` at once if another hub
        has the lease.
        """
        settings: dict[str, Any] = {"address": address, "wait_seconds": 0} if address else {}
        store: Store = _postgres().PostgresStore(self._url, self._schema, self.hub_name, **settings)
        return store

    @property
    def hub_name(self) -> str:
        """Name of this process as a hub with this home, for people."""
        return f"the hub of {self._home} on {socket.gethostname()} (process {os.getpid()})"

    def open_lease(self) -> "LeaseView":
        """Return a reader of the lease, for a hub that waits for it."""
        view: LeaseView = _postgres().LeaseView(self._url, self._schema)
        return view

    def open_activity(self) -> ActivityStore:
        """Open the activity log."""
        activity: ActivityStore = _postgres().PostgresActivity(self._url, self._schema, self._lease)
        return activity

    def open_index(self) -> SearchIndex:
        """Open the search index."""
        index: SearchIndex = _postgres().PostgresSearch(self._url, self._schema, self._lease)
        return index

    def open_catalogue(self) -> FileCatalogue:
        """Open the catalogue of files."""
        catalogue: FileCatalogue = _postgres().PostgresFiles(self._url, self._schema, self._lease)
        return catalogue

    def open_blobs(self) -> BlobStore:
        """Open the store of the bytes of files."""
        incoming = self._home / _INCOMING_FOLDER
        blobs: BlobStore = _postgres().PostgresBlobs(self._url, self._schema, incoming, self._lease)
        return blobs

    def open_pages(self) -> Pages:
        """Open a reader of the logs."""
        pages: Pages = _postgres().PostgresPages(self._url, self._schema)
        return pages

    def open_inspection(self) -> Inspection:
        """Open the main store for the audit, read-only."""
        inspection: Inspection = _postgres().PostgresInspection(self._url, self._schema)
        return inspection

    def has_tables(self) -> bool:
        """True if a hub has made the store."""
        return self._schema in self.schemas()

    def open_tables(self, *, writes: bool) -> Tables:
        """Open all tables for a copy. See `Storage.open_tables`."""
        if not writes:
            # To open the tables makes them, which is not wanted in a database that has none.
            self.open_reading().close()
        tables: Tables = _postgres().PostgresTables(self._url, self._schema)
        return tables

    def schemas(self) -> list[str]:
        """Return the schemas of rooms in the database."""
        found: list[str] = _postgres().schemas(self._url)
        return found

    def open_reading(self) -> "PostgresReading":
        """Open the whole schema for reading, as it is at this moment."""
        reading: PostgresReading = _postgres().PostgresReading(self._url, self._schema)
        return reading

    def logins(self) -> Document:
        """Return the document in which the logins (apps and sessions) are stored."""
        document: Document = _postgres().PostgresDocument(self._url, self._schema, LOGINS_FILE, self._lease)
        return document


def _postgres() -> "ModuleType":
    """Return the package of the PostgreSQL stores. Raise `ConfigError` if its driver (an extra) is not installed."""
    try:
        from tieline.stores import postgres  # noqa: PLC0415 - most hubs have no such store, and not its driver
    except ImportError as error:
        hint = "install Tieline with its extra 'postgres'"
        raise ConfigError(f"a store in PostgreSQL needs the driver psycopg, which is not installed: {hint}") from error
    return postgres


def storage_of(url: str, home: Path, store: Store | None = None) -> Storage:
    """Return the stores of a hub or room whose store is `url` and whose home is `home`.

    `store` is its main store, if that is open.
    """
    if in_database(url):
        return DatabaseStorage(url, home, getattr(store, "lease", None))
    return HomeStorage(store_folder(url, home), synchronous(url))


def store_url(home: Path) -> str:
    """Return the store of the hub in `home`, by its settings, for programs that only read. Raise `ConfigError`."""
    if (home / CONFIG_FILE).exists():
        return load_config(home).store.url
    return os.environ.get(STORE_VARIABLE) or DEFAULT_STORE


def remove_data(url: str, home: Path) -> None:
    """Remove the data of a room that are not in its home. `url` is the hub's store, and `home` the room's home."""
    if in_database(url):
        _postgres().drop_schema(url, schema_of(home))


def in_database(url: str) -> bool:
    """True if the URL of a store names a PostgreSQL database."""
    return url.startswith(DATABASE_SCHEMES)


def schema_of(home: Path) -> str:
    """Return the name of the database schema for a hub or room. Each room has a schema of its own."""
    return f"tieline_{home.name}" if (home / ROOM_FILE).exists() else "tieline"


def store_folder(url: str, home: Path) -> Path:
    """Return the folder with the files of the store `url`.

    This is the home or, for the store `memory`, a temporary folder in the home.
    """
    return home / _FORGOTTEN_FOLDER if url == MEMORY else home


def synchronous(url: str) -> str:
    """Return the value of SQLite's setting `synchronous` for the store `url`."""
    return "FULL" if url == "sqlite" else "OFF"


def has_password(url: str) -> bool:
    """True if the URL of a store names a password, also as an option of the connection."""
    parts = urlsplit(url)
    return in_database(url) and (
        bool(parts.password) or any(name.endswith("password") for name in parse_qs(parts.query))
    )


def public_url(url: str) -> str:
    """Return the URL of a store as people may see it: without the password and the options of the connection."""
    if not in_database(url):
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
