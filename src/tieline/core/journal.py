"""The journal: stores the activity of agents in a separate log.

The recorder runs the journal on a separate thread, so that a large upload never delays a message. The journal writes to
an `ActivityStore`. The broker checks each request before the journal gets it. An upload is stored as a whole or not at
all. Secrets are removed before it is stored.
"""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from msgspec import Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.message import nested_deeper
from tieline.contract.reader import LogState, Reader
from tieline.contract.redaction import redact
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Activity, Done, LogRows, ReaderState, Recorded, Redaction, Reply
from tieline.contract.reply import Readers as ReaderList
from tieline.core import ledger
from tieline.core.readers import Readers
from tieline.core.store import ACTIVITY, ActivityEntry, ActivityQuery, ActivityStore

PRUNE_MAX = 500
"""Largest number of rows that are deleted in one step. One step takes a few milliseconds, even if rows are large."""
_YIELD_BYTES = 16 * 1024
"""After this many bytes of events, the journal lets other threads run. These bytes take well under a millisecond."""
_KIND_CHARS_MAX = 64  # a kind is one word, and the store indexes it
_NUMBER_MAX = 2**63 - 1  # the largest integer in the database


class Record(Struct, frozen=True):
    """Request to the journal to store activity of a member."""

    number: int
    member: MemberName
    at_ms: int
    events: tuple[dict[str, Any], ...]
    size: int


class Select(Struct, frozen=True):
    """Request to the journal to find activity of a member."""

    member: MemberName
    query: ActivityQuery


class ReadRows(Struct, frozen=True):
    """Request to the journal to read rows of the activity log, from the offset `start` on."""

    start: int
    limit: int


class Prune(Struct, frozen=True):
    """Request, from the hub itself, to delete some rows of the activity log that are older than the retention time."""

    at_ms: int


class FreeSpace(Struct, frozen=True):
    """Request, from the hub itself, to return some free space of the journal's database to the file system."""


class Erase(Struct, frozen=True):
    """Request, from the hub itself, to erase the texts of a redacted message from stored activity.

    Events that have one of the texts are replaced by the text `note`. The journal answers with `reply`.
    """

    texts: tuple[str, ...]
    note: str
    reply: Done | Redaction = Done()


class ListReaders(Struct, frozen=True):
    """Request to complete the reply to `command.ListReaders`: the hub's two logs, and the readers of each log.

    `log` is the state of the main log, and `readers` are the readers of the main log. The journal adds the activity log
    and its readers to these.
    """

    log: LogState
    readers: tuple[Reader, ...]


class AdvanceReader(Struct, frozen=True):
    """Request to store the position of a reader of the activity log.

    `wish` is the reader with its new position. `epoch` is the random id of the log that the reader has read, or empty.
    Without `rewind`, a position before the stored one is refused.
    """

    wish: Reader
    epoch: str
    rewind: bool


class ForgetReader(Struct, frozen=True):
    """Request to delete a reader of the activity log. `known` is true if the main log had this reader too."""

    name: str
    known: bool


Work = Record | Select | ReadRows | Prune | FreeSpace | Erase | ListReaders | AdvanceReader | ForgetReader


class Journal:
    """The activity log, which has its own store. Not thread-safe: only one thread may call it at a time."""

    def __init__(self, store: ActivityStore, limits: Limits, yield_thread: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._limits = limits
        # Callback that is called now and then between events, so that other threads get a turn.
        self._yield_thread = yield_thread
        # Sentences for people about readers that are late. The caller takes the sentences from here after `commit`.
        self.late: tuple[str, ...] = ()
        # True if there are writes to commit.
        self.dirty = False
        self.restore()

    def carry_out(self, work: Work) -> tuple[Reply, Sequence[ActivityRow]]:
        """Carry out a request. Return the reply, and the new rows for sessions that follow the activity.

        Publish both (tell them to clients) only after `commit`.
        """
        match work:
            case Record():
                return self._record(work)
            case Select(member, query):
                rows = tuple(_row(member, entry) for entry in self._store.select(query))
                return Activity(rows), ()
            case ReadRows(start, limit):
                found, end = self._store.read_log(start, limit, self._limits.page_bytes_max)
                state = self._readers.state(end)
                return LogRows(tuple(found), end, state.epoch, state.kept_from), ()
            case Prune(at_ms):
                # The reply has the number of deleted rows, so that the caller knows if more may be left.
                return Recorded(self._prune(at_ms)), ()
            case Erase():
                self.dirty = self._erase(work) or self.dirty
                return work.reply, ()
            case FreeSpace():
                self.dirty = self._store.readers.free_space()
                return Recorded(int(self.dirty)), ()
            case ListReaders(log, readers):
                return ReaderList((log, self._readers.state(self._end)), readers + self._readers.rows), ()
            case AdvanceReader(wish, epoch, rewind):
                made = self._readers.advance(wish, self._end, epoch, rewind=rewind)
                if isinstance(made, Refusal):
                    return made, ()
                self.dirty = True
                return ReaderState(made, self._readers.state(self._end)), ()
            case ForgetReader(name, known):
                if self._readers.forget(name):
                    self.dirty = True
                elif not known:
                    return Refusal(Code.UNKNOWN_READER, f"there is no reader {name[:_KIND_CHARS_MAX]!r}"), ()
                return Done(), ()
            case _:
                assert_never(work)

    def commit(self) -> None:
        """Make all activity that was stored so far durable."""
        self._store.commit()
        self.dirty = False

    @property
    def erasing(self) -> bool:
        """True if a file may still have erased content. `retry` tries again to remove it."""
        return self._store.erasing

    def retry(self) -> None:
        """Check after a failure that the store can write again. Raise an error if it cannot."""
        self._store.retry()

    def restore(self) -> None:
        """Forget uncommitted work, and load the state after the last committed row from the store."""
        self._end = self._store.restore()
        self.dirty = False
        self.late = ()
        self._readers = Readers(ACTIVITY, self._store.readers, self._limits, self._limits.activity_retention_ms)

    def _prune(self, at_ms: int) -> int:
        """Delete some rows that are too old, and return the number of deleted rows."""
        late = self._readers.late(at_ms)
        deleted = self._store.prune(self._readers.cutoff(at_ms), PRUNE_MAX)
        self._readers.passed(deleted)
        self.late += tuple(late)
        self.dirty = True
        return len(deleted)

    def _erase(self, work: Erase) -> bool:
        """Erase the texts of a redacted message from all events. Return true if there are writes to commit."""
        for text in work.texts:
            self._store.erase(text, work.note)
        return bool(work.texts)

    def close(self) -> None:
        """Close the journal's store."""
        self._store.close()

    def _record(self, work: Record) -> tuple[Reply, Sequence[ActivityRow]]:
        entries: list[ActivityEntry] = []
        held = 0
        for event in work.events:
            made = self._entry(event, work, self._end + len(entries))
            if isinstance(made, Refusal):
                return made, ()
            entries.append(made)
            held += len(made.event)
            if held >= _YIELD_BYTES:
                held = 0
                self._yield_thread()
        self._store.append(entries)
        self.dirty = True
        self._end += len(entries)
        return Recorded(len(entries)), [_row(work.member, entry) for entry in entries]

    def _entry(self, event: dict[str, Any], work: Record, offset: int) -> ActivityEntry | Refusal:
        if nested_deeper(event, self._limits.nesting_max):
            return Refusal(Code.INVALID_REQUEST, f"an event is nested deeper than {self._limits.nesting_max} levels")
        try:
            encoded = ledger.encode_activity(redact(event))
            kind = str(event.get("kind", ""))[:_KIND_CHARS_MAX]
            kind.encode()
        except (UnicodeEncodeError, TypeError, RecursionError, OverflowError) as error:
            return Refusal(Code.INVALID_REQUEST, f"an event cannot be written down: {error}")
        most = self._limits.activity_event_bytes_max
        if len(encoded) > most:
            return Refusal(Code.MESSAGE_TOO_LARGE, f"an event is larger than {most} bytes")
        return ActivityEntry(offset, work.at_ms, work.number, kind, _time(event, work.at_ms), encoded)


def _time(event: dict[str, Any], at_ms: int) -> int:
    """Return the time of an event: its field `ts` if that is a valid time, otherwise the time of the upload."""
    ts = event.get("ts")
    return ts if isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= _NUMBER_MAX else at_ms


def _row(member: MemberName, entry: ActivityEntry) -> ActivityRow:
    return ActivityRow(entry.offset, member, entry.kind, entry.ts_ms, entry.at_ms, entry.event)
