"""The writer of a database: the main connection of the hub that has the lease. Its commits have numbers.

Each transaction begins with a function of the database that checks the lease and the random name of the connection,
and stores the number of the commit. So a hub that lost its connection finds out if its last commit arrived, and nothing
that the lost connection still sends can arrive later.
"""

from tieline.core.outage import OutOfDate
from tieline.stores.postgres.connection import PostgresConnection
from tieline.stores.postgres.lease import Lease


class Writer:
    """Makes a connection the writer of a database. The hub must have the lease."""

    def __init__(self, connection: PostgresConnection, lease: Lease) -> None:
        self._connection = connection
        self._lease = lease
        # Random name of the connection, and the number of the last commit.
        self._name, self.commits = lease.open_writer(connection)
        # 0 while the next commit changes nothing and gets no number.
        self._step = 1
        connection.fence = lambda: ("begin_commit", (lease.term, lease.claim, self._name, self.commits + self._step))

    def resume(self) -> bool:
        """Become the writer again after an outage. Return true if the last commit before the outage is stored.

        Raise `OutOfDate` if the database does not belong to this hub's memory any more: another hub has been the writer
        meanwhile, or the database went back to an older state.
        """
        place = self._connection.place
        self._name, commits = self._lease.open_writer(self._connection)
        if commits not in (self.commits, self.commits + 1):
            raise OutOfDate(f"{place} is at commit {commits}, and this hub was at {self.commits}: commits are lost")
        return commits == self.commits + 1

    def committed(self) -> None:
        """Count a commit that succeeded."""
        self.commits += 1

    def check(self) -> None:
        """Write to the database without changing anything. Raise if that fails."""
        self._connection.write("nothing", ())
        self._step = 0
        try:
            self._connection.commit()
        finally:
            self._step = 1
