"""The PostgreSQL store: everything that a hub keeps is in a schema of a database, and the hub may run anywhere.

The package needs the extra `postgres`, which brings the driver.
"""

from tieline.stores.postgres.activity import PostgresActivity
from tieline.stores.postgres.store import PostgresStore

__all__ = ["PostgresActivity", "PostgresStore"]
