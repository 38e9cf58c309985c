"""The PostgreSQL store: everything that a hub keeps is in a schema of a database, and the hub may run anywhere.

The package needs the extra `postgres`, which brings the driver.
"""

from tieline.stores.postgres.activity import PostgresActivity
from tieline.stores.postgres.connection import drop_schema
from tieline.stores.postgres.files import PostgresBlobs, PostgresDocument, PostgresFiles
from tieline.stores.postgres.inspection import PostgresInspection
from tieline.stores.postgres.lease import LeaseView
from tieline.stores.postgres.pages import PostgresPages
from tieline.stores.postgres.reading import PostgresReading
from tieline.stores.postgres.search import PostgresSearch
from tieline.stores.postgres.store import PostgresStore
from tieline.stores.postgres.tables import PostgresTables, schemas

__all__ = [
    "LeaseView",
    "PostgresActivity",
    "PostgresBlobs",
    "PostgresDocument",
    "PostgresFiles",
    "PostgresInspection",
    "PostgresPages",
    "PostgresReading",
    "PostgresSearch",
    "PostgresStore",
    "PostgresTables",
    "drop_schema",
    "schemas",
]
