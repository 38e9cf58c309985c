"""The writer of a database: the one hub that may write to it. It has a lock of PostgreSQL, and a claim.

The lock ends with the connection, so a hub that was killed does not keep it. The claim is a random text in the
database, which every commit checks. If a hub loses its connection and another hub becomes the writer, commits of the
first hub fail, because the claim is no longer its own.
"""

from tieline.core.store import StoreError
from tieline.stores.postgres.connection import PostgresConnection, lock_key

_WAIT_MS = 3000
"""Time to wait for the lock. The server takes some milliseconds to notice the end of a hub that was killed."""


class Writer:
    """Makes this hub the writer of a database. `hub` is a name for this hub, for people.

    Raise `StoreError` if another hub is the writer.
    """

    def __init__(self, connection: PostgresConnection, hub: str) -> None:
        self._connection = connection
        self._hub = hub
        self._key = lock_key(connection.schema, "writer")
        self._claim = ""
        # Number of the last commit, and the one that is being tried.
        self.commits = 0
        self.take()

    def take(self) -> None:
        """Become the writer. This works if no other hub is connected."""
        connection = self._connection
        if not connection.lock(self._key, _WAIT_MS):
            other = connection.one("writer")[0]
            hint = "stop that hub first, or name another database; if it is gone, its server notices that soon"
            raise StoreError(f"{connection.place} is in use by {other}; one hub at a time may write to it", hint)
        self._claim, self.commits = connection.one("take_writer", (self._hub,))

    def resume(self) -> bool:
        """Become the writer again after an outage. Return true if the last commit before the outage is stored.

        Raise `StoreError` if another hub has been the writer meanwhile, so that this hub's memory is out of date.
        """
        connection = self._connection
        if not connection.lock(self._key, _WAIT_MS) and connection.one("writer")[1] == self._claim:
            # The server has not noticed the end of the lost connection.
            connection.select("end_writer", (self._key,))
            connection.lock(self._key, _WAIT_MS)
        other, claim, commits = connection.one("writer")
        if claim != self._claim:
            raise StoreError(f"{connection.place} was taken over by {other} during an outage")
        return bool(commits == self.commits + 1)

    def number_commit(self) -> None:
        """Add the number of the commit to the buffered writes. The commit fails if another hub is the writer now."""
        self._connection.write("number_commit", (self._claim, self.commits + 1))

    def committed(self) -> None:
        """Count a commit that succeeded."""
        self.commits += 1

    def check(self) -> None:
        """Write to the database without changing anything. Raise if that fails."""
        self._connection.write("number_commit", (self._claim, self.commits))
        self._connection.commit()

    def release(self) -> None:
        """Release the lock, so that another hub can become the writer at once."""
        self._connection.unlock(self._key)
