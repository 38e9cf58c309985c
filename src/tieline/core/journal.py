"""The journal: stores the activity of agents in a separate log.

Above: the recorder, which runs the journal on a separate thread, so that large traces never delay a message. Below: an
`ActivityStore`. The broker has checked the request before. An upload is stored as a whole or not at all, and secrets
are removed from it.
"""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from msgspec import Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.message import nested_deeper
from tieline.contract.redaction import redact
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Activity, LogRows, Recorded, Reply
from tieline.core import ledger
from tieline.core.store import ActivityEntry, ActivityQuery, ActivityStore

PRUNE_MAX = 500
"""Largest number of rows deleted in one step: a few milliseconds, even if rows are large."""
_BREATH_BYTES = 16 * 1024
"""Bytes of events processed before other threads get a turn: well under a millisecond."""
_KIND_CHARS_MAX = 64  # a kind is one word, and the store indexes it
_NUMBER_MAX = 2**63 - 1  # the largest integer in the database


class Record(Struct, frozen=True):
    """Request to store activity of a member."""

    number: int
    member: MemberName
    at_ms: int
    events: tuple[dict[str, Any], ...]
    size: int


class Select(Struct, frozen=True):
    """Request to find activity of a member."""

    member: MemberName
    query: ActivityQuery


class ReadRows(Struct, frozen=True):
    """Request to read the activity log from an offset on."""

    start: int
    limit: int


class Prune(Struct, frozen=True):
    """Request of the hub itself to delete some rows that are older than the retention time."""

    at_ms: int


Work = Record | Select | ReadRows | Prune


class Journal:
    """The activity log over its own store. Not thread-safe: one caller at a time."""

    def __init__(self, store: ActivityStore, limits: Limits, breathe: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._limits = limits
        # Callback between events, now and then, so that other threads get a turn.
        self._breathe = breathe
        self._end = store.restore()

    def carry_out(self, work: Work) -> tuple[Reply, Sequence[ActivityRow]]:
        """Do the work. Returns the reply and the new rows for followers. Publish both only after `commit`."""
        match work:
            case Record():
                return self._record(work)
            case Select(member, query):
                rows = tuple(_row(member, entry) for entry in self._store.select(query))
                return Activity(rows), ()
            case ReadRows(start, limit):
                found, end = self._store.read_log(start, limit, self._limits.page_bytes_max)
                return LogRows(tuple(found), end), ()
            case Prune(at_ms):
                # The reply has the number of deleted rows, so that the caller knows if more may be left.
                return Recorded(self._store.prune(at_ms - self._limits.activity_retention_ms, PRUNE_MAX)), ()
            case _:
                assert_never(work)

    def commit(self) -> None:
        """Make all work so far durable."""
        self._store.commit()

    def retry(self) -> None:
        """Check that the store can write again."""
        self._store.retry()

    def restore(self) -> None:
        """Go back to the committed state."""
        self._end = self._store.restore()

    def close(self) -> None:
        """Release the store."""
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
            if held >= _BREATH_BYTES:
                held = 0
                self._breathe()
        self._store.append(entries)
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
    """The time of an event: its `ts` if that is a valid time, otherwise the time of the upload."""
    ts = event.get("ts")
    return ts if isinstance(ts, int) and not isinstance(ts, bool) and 0 <= ts <= _NUMBER_MAX else at_ms


def _row(member: MemberName, entry: ActivityEntry) -> ActivityRow:
    return ActivityRow(entry.offset, member, entry.kind, entry.ts_ms, entry.at_ms, entry.event)
