"""One connection to PostgreSQL, for one thread: buffered writes, one transaction per commit, and reads in between.

The stores of this package use this module. Writes wait in a queue. The connection sends them together, without waiting
for each answer, when a read must see them or when the store commits. So a batch usually costs one round trip and one
disk sync of the database server.
"""

import hashlib
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any, Protocol

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier
from psycopg.types.numeric import Int8BinaryDumper

from tieline.core.outage import LeaseHeld, OutOfDate
from tieline.core.store import DamagedError, DiskError, StoreError
from tieline.stores.postgres.columns import register
from tieline.stores.statements import load

# The driver warns about each answer that it skips after an error. The error itself is raised.
logging.getLogger("psycopg").setLevel(logging.ERROR)

Row = tuple[Any, ...]
_Write = tuple[str, Sequence[Any]]

QUERIES = load(files("tieline.stores.postgres").joinpath("queries.sql").read_text(encoding="utf-8"))
"""The statements by name."""


class Guard(Protocol):
    """Interface of an object that knows if this hub may write, as a connection uses it."""

    @property
    def network(self) -> Mapping[str, Any]:
        """Options that say when a connection counts as lost."""

    @property
    def lost(self) -> StoreError | None:
        """The error with which this hub lost the right to write; `None` as long as it has it."""

    def fence(self) -> _Write:
        """Return the first statement of every transaction, and its values. It fails if the hub may not write."""

    def watch(self, connection: "PostgresConnection") -> None:
        """Interrupt this connection when the right to write is lost."""


_ENCODED = {name: statement.encode() for name, statement in QUERIES.items()}

Statements = Mapping[str, bytes]
"""Statements by name, in the form that the driver takes from a program."""


def load_statements(file: str) -> Statements:
    """Return the statements of a file of this package."""
    text = files("tieline.stores.postgres").joinpath(file).read_text(encoding="utf-8")
    return {name: statement.encode() for name, statement in load(text).items()}


_VERSION_MIN = 130000
"""Oldest version of the server, as the server writes it: 13. Older ones have no `gen_random_uuid`."""

KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
"""Settings with which the system notices within half a minute that the server's machine is gone."""
CONNECT_SECONDS = 10
_CONNECT_AGAIN_SECONDS = 2
"""Timeouts of a connection attempt: of the first one, and of others, for which the hub's clients wait. The default has
no limit, so a hub would hang if packets are lost."""

_DISK_ERRORS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)
"""Errors whose cause is the server, its disk or the network, and not the statement."""


_TAKEN_OVER = "TL001"
"""Error code of the fence: another hub has the lease."""

_SHUTDOWNS = (errors.AdminShutdown, errors.CrashShutdown, errors.IdleSessionTimeout)


def place_of(url: str) -> str:
    """Return a text for people that names the database in a URL, without the password."""
    try:
        named = conninfo_to_dict(url)
    except psycopg.Error:
        return "the database"
    host, port = named.get("host") or "localhost", named.get("port")
    where = f"{host}:{port}" if port and not str(host).startswith("/") else f"{host}"
    return f"the database {named.get('dbname') or named.get('user') or ''!s} at {where}"


def explain(error: Exception, place: str) -> Exception:
    """Return an error of the driver as a `StoreError` with advice. Any other error is returned unchanged.

    `place` names the database.
    """
    if not isinstance(error, psycopg.Error):
        return error
    if error.sqlstate == _TAKEN_OVER:
        return OutOfDate(f"{place} was taken over by {error.diag.message_detail or 'another hub'}")
    said = " ".join(str(error).split())
    if isinstance(error, errors.DiskFull | errors.OutOfMemory):
        hint = "make room on the server; nothing that was accepted is lost"
        return DiskError(f"the server of {place} has no room: {said}", hint)
    if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
        return DamagedError(f"{place} is damaged: {said}", "stop the hub and restore the last backup of the database")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return DiskError(f"{place} can only be read", "name the primary server, not a standby, in the store's URL")
    if isinstance(error, _DISK_ERRORS) and not isinstance(error, errors.LockNotAvailable):
        return DiskError(f"{place} does not answer: {said}", "look at the server and its log; the hub tries again")
    return StoreError(f"{place} refused a batch: {said}")


def lock_key(schema: str, what: str) -> int:
    """Return the number of the advisory lock with the name `what` for this schema.

    An advisory lock is a lock of PostgreSQL that belongs to no table.
    """
    made = hashlib.blake2b(f"tieline {what} {schema}".encode(), digest_size=8).digest()
    return int.from_bytes(made, "big", signed=True)


def newest_version(part: str) -> int:
    """Return the newest version of a part of the schema that this program knows."""
    return len(_migrations(part))


def _migrations(part: str) -> list[str]:
    """Return the migration scripts of a part of the schema in order. Script N migrates version N-1 to version N."""
    found = {}
    for resource in files("tieline.stores.postgres").joinpath("schema").iterdir():
        if match := re.fullmatch(rf"{part}_(\d{{4}})\.sql", resource.name):
            found[int(match[1])] = resource.read_text(encoding="utf-8")
    assert sorted(found) == list(range(1, len(found) + 1)), f"the scripts of {part} are numbered without gaps"
    return [found[version] for version in sorted(found)]


class PostgresConnection:
    """One connection to the schema of a hub. It is not thread-safe. `part` is the part of the schema that it uses.

    With `reopens`, a connection that was lost is opened again at the next use, if no writes were lost with it. `guard`
    says who may write.
    """

    def __init__(
        self,
        url: str,
        schema: str,
        part: str,
        *,
        statements: Statements | None = None,
        reopens: bool = True,
        guard: Guard | None = None,
    ) -> None:
        self._url = url
        self._guard = guard
        if guard is not None:
            guard.watch(self)
        # Returns the first statement of every transaction, which checks that this hub may write.
        self.fence: Callable[[], _Write] | None = None if guard is None else guard.fence
        self._statements = _ENCODED if statements is None else statements
        self._part = part
        self._reopens = reopens
        self._closed = False
        self.schema = schema
        self.place = place_of(url)
        # Writes that were not sent yet: the name of the statement, and its values. With `recover`, also those that were
        # sent since the last commit.
        self._queue: list[_Write] = []
        self._sent: list[_Write] = []
        # A function that opens a lost connection again in the middle of a call. It gets the error, and true for a
        # commit. It returns true if that commit had arrived.
        self.recover: Callable[[DiskError, bool], bool] | None = None
        self._in_transaction = False
        self._postgres = self._open()

    def _open(self, seconds: int = CONNECT_SECONDS) -> psycopg.Connection[Row]:
        guard = self._guard
        if guard is not None and guard.lost is not None:
            raise guard.lost
        network = {"connect_timeout": seconds, **(KEEPALIVE if guard is None else guard.network)}
        try:
            made: psycopg.Connection[Row] = psycopg.connect(
                self._url,
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
                application_name="tieline",
                **network,
            )
        except psycopg.Error as error:
            raise explain(error, self.place) from error
        try:
            # The same types at every call, so that a statement is prepared once.
            made.adapters.register_dumper(int, Int8BinaryDumper)
            register(made)
            self._check_server(made)
            made.execute(_ENCODED["use_schema"], (self.schema,))
            self._migrate(made, self._part)
        except psycopg.Error as error:
            made.close()
            raise explain(error, self.place) from error
        except BaseException:
            made.close()
            raise
        return made

    def _check_server(self, made: psycopg.Connection[Row]) -> None:
        row = made.execute(_ENCODED["server"]).fetchone()
        assert row is not None, "settings are one row"
        version, encoding = row
        if version < _VERSION_MIN:
            raise StoreError(f"the server of {self.place} is older than PostgreSQL {_VERSION_MIN // 10000}: upgrade it")
        if encoding != "UTF8":
            hint = "make a database with the encoding UTF8: createdb --encoding UTF8 --template template0 NAME"
            raise StoreError(f"{self.place} has the encoding {encoding}; a hub needs UTF8", hint)

    def _migrate(self, made: psycopg.Connection[Row], part: str) -> None:
        """Make the schema, or migrate an older one. Only one process does this at a time."""
        scripts = _migrations(part)
        if self._version(made, part) == len(scripts):
            return
        with made.transaction():
            made.execute(_ENCODED["lock_migration"], (lock_key(self.schema, "migration"),))
            made.execute(_about("make_schema", self.schema, made))
            version = self._version(made, part)
            if version > len(scripts):
                raise StoreError(
                    f"{self.place} was written by a newer Tieline (schema {part} {version}; this program knows "
                    f"{len(scripts)}): upgrade this program",
                    "to go back to an older program, restore a backup of the database that is as old",
                )
            if not version and not self._has_versions(made):
                made.execute(_ENCODED["make_versions"])
            if part == "main" and version:
                self._check_unused(made, version)
            for script in scripts[version:]:
                made.execute(script.encode())
            made.execute(_ENCODED["set_version"], (part, len(scripts)))

    def _check_unused(self, made: psycopg.Connection[Row], version: int) -> None:
        """Raise `LeaseHeld` if a hub of an older program uses the main tables, which would change under it."""
        if version == 1:
            row = made.execute(_ENCODED["old_writer"], (lock_key(self.schema, "writer"),)).fetchone()
        else:
            row = made.execute(_ENCODED["lock_lease"]).fetchone()
        if row is not None and not row[0]:
            hint = "stop that hub first; if it is gone, its place is free in two seconds"
            raise LeaseHeld(f"{self.place} is in use by {row[1]}, an older Tieline", hint)

    @staticmethod
    def _has_versions(made: psycopg.Connection[Row]) -> bool:
        row = made.execute(_ENCODED["has_versions"]).fetchone()
        return row is not None and bool(row[0])

    def _version(self, made: psycopg.Connection[Row], part: str) -> int:
        if not self._has_versions(made):
            return 0
        row = made.execute(_ENCODED["version"], (part,)).fetchone()
        return int(row[0]) if row else 0

    @property
    def lost(self) -> bool:
        """True if this connection was lost, because the database server ended it or cannot be reached any more."""
        return self._postgres.closed and not self._closed

    def reopen(self) -> None:
        """Open a connection that was lost again. Its locks and its transaction are gone."""
        self._in_transaction = False
        self._postgres.close()
        self._postgres = self._open(_CONNECT_AGAIN_SECONDS)

    def _renew(self) -> None:
        if self._reopens and self.lost and not self._in_transaction:
            self._postgres = self._open()

    # Writes.

    def write(self, name: str, values: Sequence[Any]) -> None:
        """Buffer a write: the statement with this name, and its values."""
        self._queue.append((name, values))

    def flush(self) -> None:
        """Send the buffered writes into the open transaction, so that reads see them."""
        if self._queue:
            self._send(commits=False)

    def commit(self) -> bool:
        """Make all buffered writes durable, or none. Return true if there was something to commit."""
        if not self._queue and not self._in_transaction:
            return False
        self._send(commits=True)
        self._in_transaction = False
        return True

    def _send(self, *, commits: bool) -> None:
        queue, self._queue = self._queue, []
        self._renew()
        if self.recover is not None:
            self._sent += queue
        try:
            self._transmit(queue, commits=commits)
        except DiskError as error:
            while self.recover is not None and self.lost:
                if self.recover(error, commits):
                    break
                try:
                    # The whole transaction once more, because nothing of it is there.
                    self._transmit(self._sent, commits=commits)
                except DiskError as again:
                    error = again
                else:
                    break
            else:
                raise
        if commits:
            self._sent.clear()

    def _transmit(self, writes: Sequence[_Write], *, commits: bool) -> None:
        with self.explaining(), self._postgres.pipeline():
            if not self._in_transaction:
                self._in_transaction = True
                self._postgres.execute(b"BEGIN")
                if self.fence is not None:
                    statement, fenced = self.fence()
                    self._postgres.execute(_ENCODED[statement], fenced, prepare=True)
            for name, values in writes:
                self._postgres.execute(self._statements[name], values, prepare=True)
            if commits:
                self._postgres.execute(b"COMMIT")

    def roll_back(self) -> None:
        """Drop all writes since the last commit."""
        self._queue.clear()
        self._sent.clear()
        self._in_transaction = False
        if self._postgres.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                self._postgres.execute(b"ROLLBACK")

    def write_nothing(self, name: str, values: Sequence[Any] = ()) -> None:
        """Commit the statement with this name. It changes nothing, but shows if the database accepts writes."""
        self.write(name, values)
        self.commit()

    @property
    def intact(self) -> bool:
        """True if the buffered writes are still there: no error has aborted the transaction."""
        status = self._postgres.info.transaction_status
        return status == (TransactionStatus.INTRANS if self._in_transaction else TransactionStatus.IDLE)

    @property
    def buffers(self) -> bool:
        """True if there are writes that are not committed."""
        return bool(self._queue) or self._in_transaction

    # Reads.

    def select(self, name: str, values: Sequence[Any] = ()) -> list[Row]:
        """Return the rows of the statement with this name. Call `flush` before, so that they show buffered writes."""
        self._renew()
        while True:
            try:
                with self.explaining():
                    return self._postgres.execute(self._statements[name], values, prepare=True, binary=True).fetchall()
            except DiskError as error:
                if self.recover is None or not self.lost:
                    raise
                self._begin_again(error)

    def _begin_again(self, error: DiskError) -> None:
        """Wait for the end of an outage of the database. Then send the open transaction again, so that reads see it."""
        assert self.recover is not None, "somebody waits for the server"
        self.recover(error, False)
        while self._sent:
            try:
                self._transmit(self._sent, commits=False)
            except DiskError as again:
                if not self.lost:
                    raise
                self.recover(again, False)
            else:
                return

    def one(self, name: str, values: Sequence[Any] = ()) -> Row:
        """Return the only row of the statement with this name."""
        (row,) = self.select(name, values)
        return row

    @contextmanager
    def instant(self) -> Iterator[None]:
        """Let all reads in the `with` block see the database as it was at the first read.

        When the block begins, no writes may be buffered.
        """
        self._renew()
        with self.explaining():
            self._postgres.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._in_transaction = True
        try:
            yield
        finally:
            self.roll_back()

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise errors of the driver as `StoreError`."""
        try:
            yield
        except psycopg.Error as error:
            if isinstance(error, _SHUTDOWNS):
                # The server ends the connection right after it has said so.
                self._postgres.close()
            raise explain(error, self.place) from error

    def interrupt(self) -> None:
        """End the connection, on any thread, so that a call which waits for the server fails at once."""
        with (
            suppress(OSError, AttributeError, psycopg.Error),
            socket.socket(fileno=os.dup(self._postgres.fileno())) as one,
        ):
            one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Buffered writes are lost. A second call does nothing."""
        self._closed = True
        self._queue.clear()
        self._postgres.close()


def drop_schema(url: str, schema: str) -> None:
    """Remove a schema with all that is in it."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS) as made:
            made.execute(_about("drop_schema", schema, made))
    except psycopg.Error as error:
        raise explain(error, place_of(url)) from error


def _about(name: str, schema: str, made: psycopg.Connection[Any]) -> bytes:
    """Return the statement `name` with the name of the schema filled in."""
    return SQL(QUERIES[name]).format(schema=Identifier(schema)).as_bytes(made)
