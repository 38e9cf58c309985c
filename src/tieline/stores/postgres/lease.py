"""The lease of a database: the right of one hub at a time to write, for a *term* that a growing number names.

The store takes the lease when it opens. A thread renews it by short transactions, with the clock of the database
server, so it needs no session of the server. A hub that is killed loses the lease after `LEASE_SECONDS`. Then another
hub can take it, in the next term. Every transaction of a hub begins with the fence, a function of the database that
fails if another hub has the lease. So a hub that lost the lease without noticing it, because it was stopped or cut off,
cannot write.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

from tieline.core.outage import LeaseHeld, OutOfDate
from tieline.core.store import StoreError
from tieline.stores.postgres.connection import KEEPALIVE, PostgresConnection

LEASE_SECONDS = 2.0
"""Time for which a lease is valid after its last renewal. A shorter one would end when the server or the hub is only
slow; each second more is a second in which nobody leads after a hub was killed."""
_RENEW_SECONDS = 0.4
"""Time between two renewals. So four of them may fail before the lease ends."""
_TRY_SECONDS = 0.05
"""Pause between two attempts to take the lease."""
_LOCKED_SECONDS = 5.0
"""Time for which a hub tries to take a free lease that is locked. One attempt waits for 0.3 seconds."""
WAIT_SECONDS = 3.0
"""Time for which a hub that starts waits for the lease: that of a hub that was killed ends within this time."""

OTHER_KEY = (
    "the home of this hub has another key than the other hubs of the team",
    "stop this hub and copy the file 'key' from the home of another one",
)
"""The error and the advice if the homes of the hubs of a team have different keys."""

_LEASE_MS = int(LEASE_SECONDS * 1000)
_QUICK: dict[str, Any] = {
    "connect_timeout": 2,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 3000,
}
"""Settings with which the system notices within some seconds that the server's machine is gone."""


class Held(NamedTuple):
    """The lease as it is in the database: who has it, and for how long."""

    term: int
    hub: str
    """The hub that has the lease, or had it last, for people."""
    address: str
    """The address at which the other hubs of a team reach this hub; empty if it expects none."""
    seconds: float
    """Seconds until the lease ends; 0 or less if it has ended."""
    preferred: str
    """The address of the hub that shall lead next, if a person wants this; else empty."""


class SeenHub(NamedTuple):
    """A hub of a team that runs, or ran lately."""

    address: str
    """The address at which the other hubs reach it."""
    hub: str
    """Its name for people."""
    seconds: float
    """Seconds since it was seen."""


class Term(NamedTuple):
    """A term, with the hub that led in it."""

    term: int
    hub: str
    began_at_ms: int


class Lease:
    """The lease of this hub. `hub` names it for people, and `address` is the place where other hubs reach it."""

    def __init__(self, url: str, schema: str, hub: str, address: str = "") -> None:
        self._url = url
        self._schema = schema
        self.hub = hub
        self._address = address
        # If other hubs of the team wait, a hub must notice soon that it cannot reach the server.
        self.network: Mapping[str, Any] = _QUICK if address else KEEPALIVE
        self.term = 0
        self.claim = ""
        # Time on this machine's monotonic clock when the last successful renewal began.
        self.renewed_at = 0.0
        # The address of the hub that shall lead next, as of the last renewal.
        self.preferred = ""
        # The error with which the lease was lost.
        self.lost: OutOfDate | None = None
        # Called once, on any thread, when the lease is lost.
        self.on_lost: Callable[[OutOfDate], None] | None = None
        self._losing = threading.Lock()
        # Connections that write while this hub has the lease.
        self._connections: WeakSet[PostgresConnection] = WeakSet()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, connection: PostgresConnection, wait_seconds: float = WAIT_SECONDS, *, anyway: bool = False) -> None:
        """Take the lease, and renew it from now on. Raise `LeaseHeld` if another hub has it for `wait_seconds`.

        With `anyway`, take it from another hub.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            started = time.monotonic()
            rows = connection.select("take_lease", (self.hub, self._address, _LEASE_MS, anyway))
            if rows:
                break
            held = read_lease(connection)
            # A free lease that could not be taken was locked by a transaction of its former hub, which is ended now.
            late = time.monotonic() - deadline
            if late >= (0 if held.seconds > 0 else _LOCKED_SECONDS):
                hint = "stop that hub first, or name another database; if it is gone, its lease ends in two seconds"
                raise LeaseHeld(f"{connection.place} is in use by {held.hub}; one hub at a time may write to it", hint)
            time.sleep(_TRY_SECONDS)
        self.term, self.claim = rows[0]
        self.renewed_at = started
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def fence(self) -> tuple[str, tuple[object, ...]]:
        """Return the first statement of every transaction of this hub, with its values."""
        return "fence", (self.term, self.claim)

    @property
    def age_seconds(self) -> float:
        """Seconds since the last successful renewal began. Above `LEASE_SECONDS`, another hub may have the lease."""
        return time.monotonic() - self.renewed_at

    def open_writer(self, connection: PostgresConnection) -> tuple[str, int]:
        """Let a new main connection write. Return its random name, and the number of the last commit."""
        while True:
            started = time.monotonic()
            rows = connection.select("open_writer", (self.term, self.claim, _LEASE_MS))
            if rows:
                self.renewed_at = started
                return rows[0][0], rows[0][1]

    def lose(self, error: OutOfDate) -> None:
        """Note that the lease is lost, and call `on_lost`. Further calls do nothing."""
        with self._losing:
            if self.lost is not None or self._ending.is_set():
                return
            self.lost = error
            connections = list(self._connections)
        if self.on_lost is not None:
            self.on_lost(error)
        for connection in connections:
            connection.interrupt()

    def watch(self, connection: PostgresConnection) -> None:
        """Interrupt this connection when the lease is lost: a call may wait for a server that does not answer."""
        with self._losing:
            self._connections.add(connection)

    def stop(self) -> None:
        """Renew the lease no more."""
        self._ending.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_RENEW_SECONDS)

    def release(self, connection: PostgresConnection) -> None:
        """End the lease, so that another hub can take it at once."""
        self.stop()
        connection.select("release_lease", (self.term, self.claim))

    def _keep(self) -> None:
        """Renew the lease until `stop`. A short-lived hub, such as a command, needs no connection for that."""
        connection: PostgresConnection | None = None
        while not self._ending.wait(_RENEW_SECONDS):
            started = time.monotonic()
            try:
                if connection is None:
                    connection = PostgresConnection(self._url, self._schema, "main", reopens=False, guard=self)
                rows = connection.select("renew_lease", (_LEASE_MS, self.term, self.claim))
                if not rows:
                    other = read_lease(connection).hub
                    self.lose(OutOfDate(f"{connection.place} was taken over by {other}"))
                    break
                self.renewed_at = started
                self.preferred = rows[0][0]
            except StoreError:
                # The store itself says what is wrong, when it writes.
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()


class LeaseView:
    """Reads the lease of a schema from outside, for a hub that waits for it. Only one thread at a time may use it."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self._connection: PostgresConnection | None = None

    def read(self) -> Held:
        """Return the lease as it is now. Raise `StoreError` if the database does not answer."""
        return Held(*self._one("lease"))

    def secrets(self) -> tuple[str, bytes | None]:
        """Return the key of links between the hubs of the team, and the hash of the home key of all of them.

        There is no hash before the first hub has led.
        """
        link_key, home_key = self._one("cluster")
        return link_key, home_key

    def prefer(self, address: str) -> None:
        """Let the hub that the others reach at `address` lead. The leader hands over to it."""
        self._select("prefer", address)

    def note(self, address: str, hub: str) -> None:
        """Note that the hub with this name runs, which the others reach at `address`."""
        self._select("see_hub", address, hub)

    def hubs(self) -> list[SeenHub]:
        """Return the hubs of the team that run or ran lately."""
        return [SeenHub(*row) for row in self._select("hubs")]

    def terms(self, limit: int) -> list[Term]:
        """Return the last terms, the newest first."""
        return [Term(*row) for row in self._select("terms", limit)]

    def _one(self, name: str) -> tuple[Any, ...]:
        (row,) = self._select(name)
        return row

    def _select(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None:
                self._connection = PostgresConnection(self._url, self._schema, "main", reopens=False, guard=_Watcher())
            return self._connection.select(name, values)
        except StoreError:
            self.close()
            raise

    def interrupt(self) -> None:
        """Let a call that waits for the server fail at once. Any thread may call this."""
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    def close(self) -> None:
        """Close the connection. The next read opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Watcher:
    """Guard of a connection that only reads."""

    network = _QUICK
    lost = None

    def fence(self) -> tuple[str, tuple[object, ...]]:
        raise AssertionError("it writes nothing")

    def watch(self, connection: PostgresConnection) -> None:
        """Do nothing: it has no right to lose."""


def read_lease(connection: PostgresConnection) -> Held:
    """Return the lease as it is in the database."""
    return Held(*connection.one("lease"))
