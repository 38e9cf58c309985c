"""The search index in its own database file, `search.db`: a full-text index (FTS5) of the messages.

The searcher uses this module, on one thread. The messages are read from `tieline.db`, which is attached for reading.
Committed messages are indexed later, some at a time, so a write never waits for the index. The index also stores the
log position up to which messages are indexed, and the last redaction before the index was begun. If the index is
damaged, was made from another log, or is older than the last redaction, it is rebuilt. The SQL statements are in
`queries.sql`, and the schema is in `schema/`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from tieline.contract.message import Message
from tieline.core.search_query import SearchQuery, Term
from tieline.core.store import DamagedError, DiskError, StoreError
from tieline.stores.rows import decode_message
from tieline.stores.sqlite.database import explain, open_database
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.write_ahead_log import CHECKPOINT_PAGES

SEARCH_FILE = "search.db"

_PIECE = 1000
"""Number of log rows that are indexed in one step. One step takes some tens of milliseconds."""
_BEHIND_MAX = 50_000
"""Largest number of log rows that may be left to index while the log grows. Indexing pauses while the log grows,
because writers need the processor. Above this number, indexing continues."""
_SWEEP = 2000
"""Number of entries that are checked in one step of a sweep. A sweep removes the entries of deleted messages from the
index."""
_CHARACTERS_MAX = 256 * 1024
"""Largest number of characters of a message's body that are indexed."""
_MS_MIN, _MS_MAX = -(2**63), 2**63 - 1  # what the database keeps as a number


class SqliteSearch:
    """Implementation of `SearchIndex`: finds messages by the words in their bodies and titles.

    The index is in the file `search.db`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # True if the index was damaged and rebuilt since the start.
        self._made_anew = False
        # True while a rebuild runs, and after a rebuild that failed. The connection may be closed then.
        self._unfinished = False
        self._connection = self._open()
        # End of the log at the last check, to see whether the log grows.
        self._looked = -1
        # Last entry that the running sweep checked. `None` between two sweeps.
        self._swept: int | None = None
        # Oldest message at the last sweep. If it changes, retention has removed messages.
        self._oldest: int | None = -1
        with suppress(apsw.Error, StoreError):
            # A crash may have come between a redaction and the new index. If this fails, `work` and `find` repeat it.
            self._position()

    def _open(self) -> apsw.Connection:
        path = self._folder / SEARCH_FILE
        try:
            return self._connect(path)
        except DiskError:
            raise
        except (StoreError, apsw.Error):
            # The index can always be rebuilt from the messages.
            self._remove()
            return self._connect(path)

    def _remove(self) -> None:
        path = self._folder / SEARCH_FILE
        try:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        except OSError as error:
            raise explain(error, path) from error

    def _connect(self, path: Path) -> apsw.Connection:
        # Without syncs: after a crash the index continues from its position, or is rebuilt.
        connection = open_database(path, "search", synchronous="OFF")
        connection.wal_autocheckpoint(CHECKPOINT_PAGES)
        main = self._folder / MAIN_FILE
        try:
            connection.execute(QUERIES["attach_hub"], (str(main),))
        except apsw.Error as error:
            connection.close()
            raise explain(error, main) from error
        return connection

    def find(self, query: SearchQuery) -> Sequence[Message]:
        """Index all new messages, then return the messages that match, newest first. See `SearchIndex.find`."""
        with self._refusing():
            self._finish()
            while self._take_in():
                pass
            return list(self._find(query))

    def _find(self, query: SearchQuery) -> Iterator[Message]:
        seen = query.history_query
        threads = {row[0] for row in self._connection.execute(QUERIES["threads_of_member"], (seen.threads,))}
        values = (
            _expression(query.terms),
            seen.since,
            _MS_MAX if seen.before is None else seen.before,
            _MS_MIN if query.from_ms is None else max(query.from_ms, _MS_MIN),
            _MS_MAX if query.to_ms is None else min(query.to_ms, _MS_MAX),
            query.sender,
        )
        count = total = 0
        for offset, sender, target in self._connection.execute(QUERIES["search"], values):
            if not query.sees(offset, sender, target, threads):
                continue
            row = self._connection.execute(QUERIES["message_at"], (offset,)).fetchone()
            if row is None:
                continue
            message = decode_message(row)
            if not query.shows(message):
                continue
            count += 1
            total += len(message.content.body)
            if count > 1 and total > seen.bytes_max:
                return
            yield message
            if count == seen.limit:
                return

    def work(self) -> bool:
        """Index some new messages, or remove entries of deleted messages. Return true if work is left.

        While the log grows, do nothing unless the index is far behind, because writers need the processor more. See
        `SearchIndex.work`.
        """
        with self._refusing():
            self._finish()
            end = self._log_end()
            grows, self._looked = end != self._looked, end
            position = self._position()
            if position != end:
                return self._take_in() if not grows or end - position > _BEHIND_MAX else False
            return self._sweep()

    def start_over(self) -> None:
        """Make the index anew, because the content of a message was erased. See `SearchIndex.start_over`."""
        with self._refusing():
            self._make_anew()

    def _make_anew(self) -> None:
        # The file is removed, because an index that is only emptied keeps its old words in free pages.
        self._unfinished = True
        self._connection.close()
        self._remove()
        self._connection = self._connect(self._folder / SEARCH_FILE)
        self._unfinished = False

    def _finish(self) -> None:
        """Make the index anew if the last try failed, for example because the disk was full."""
        if self._unfinished:
            self._make_anew()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _log_end(self) -> int:
        return int(self._connection.execute(QUERIES["search_log_end"]).get)

    def _position(self) -> int:
        """Return the log offset up to which messages are indexed.

        If the index was made from another log, or before the last redaction, make it anew and return 0.
        """
        log_end, same = self._connection.execute(QUERIES["search_progress"]).get
        if same:
            return int(log_end)
        self._make_anew()
        return 0

    def _take_in(self) -> bool:
        """Index the messages in the next `_PIECE` rows of the log. Return true if log rows are left to index."""
        start, end = self._position(), self._log_end()
        if start >= end:
            return False
        until = min(start + _PIECE, end)
        with self._connection:
            self._connection.execute(QUERIES["index_messages"], (start, until, _CHARACTERS_MAX))
            self._connection.execute(QUERIES["set_search_progress"], (until,))
        return until < end

    def _sweep(self) -> bool:
        """Remove some entries of messages that retention deleted. Return true if entries are left to check."""
        if self._swept is None:
            oldest = self._connection.execute(QUERIES["search_oldest"]).get
            if oldest == self._oldest:
                return False
            self._swept, self._oldest = -1, oldest
        rows = list(self._connection.execute(QUERIES["search_sweep"], (self._swept, _SWEEP)))
        with self._connection:
            for entry, offset in rows:
                if offset is None:
                    self._connection.execute(QUERIES["search_forget"], (entry,))
        self._swept = rows[-1][0] if len(rows) == _SWEEP else None
        return self._swept is not None

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OverflowError) as error:
            explained = explain(error, self._folder / SEARCH_FILE)
            if isinstance(explained, DamagedError) and not self._made_anew:
                # Only once: the damaged file may be the hub's main database, which the index reads.
                self._made_anew = True
                self._make_anew()
                raise StoreError("the search index was damaged, and is being made anew; ask again soon") from error
            raise explained if isinstance(explained, StoreError) else StoreError(f"search: {error}") from error


def _expression(terms: Sequence[Term]) -> str:
    """Return the search expression for FTS5. Each term is a quoted string, so that it contains no operators."""
    quoted = ((term.text.replace('"', '""'), "*" if term.prefix else "") for term in terms)
    return " AND ".join(f'"{text}"{star}' for text, star in quoted)
