"""Refusals in the log: one row stands for many refusals of the same kind.

Log rows are kept for ever, and a client can easily cause many refusals, so each refusal cannot have its own row. A
*kind* is the code, the speaker, the protocol and the refused action. The speaker is the member whose session was
refused. All clients without a member share the empty speaker, because a stranger can invent any number of names. A row
keeps only a few of the names that strangers gave.

**Limits.** The first refusal of a kind is written at once. Later refusals are only counted, and the next row of the
kind has their number. A kind has at most one row in `refusal_row_ms`. After `refusal_rows_max` rows in the current
hour, a speaker gets at most one row an hour for each kind. Codes, protocols and actions are words of the hub itself, so
there are few kinds.
"""

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.event import Refused
from tieline.contract.refusal import Code
from tieline.core.batch import Batch
from tieline.core.directory import Session

_HOUR_MS = 3600 * 1000
_KINDS_MAX = 10_000
"""Largest number of kinds in memory. Above it, the hub forgets the oldest kind, and treats it as new the next time."""
_CLAIMED_MAX = 3
_CLAIMED_CHARS_MAX = 140
"""Longest part of a stranger's name that is kept, because a stranger can send any text as its name."""

_Kind = tuple[str, str, str, str]


class _Unwritten(Struct):
    """The counted refusals of one kind that no log row includes yet.

    `claimed` has names that clients without a member gave.
    """

    row_at_ms: int
    """Time of the kind's last row."""
    count: int = 0
    claimed: tuple[str, ...] = ()

    def add(self, name: str) -> None:
        self.count += 1
        if name and name not in self.claimed and len(self.claimed) < _CLAIMED_MAX:
            self.claimed = (*self.claimed, name)


class Refusals:
    """The refusals of the last hour, counted by kind, so that one log row can cover many refusals."""

    __slots__ = ("_batch", "_hour", "_kinds", "_limits", "_rows", "_swept_at_ms")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._limits = batch.limits
        self._kinds: dict[_Kind, _Unwritten] = {}
        # Rows that each speaker caused in this hour of the clock.
        self._rows: dict[str, int] = {}
        self._hour = 0
        self._swept_at_ms = 0

    def record(self, command: c.Command, session: Session | None, code: Code) -> None:
        """Write a row about a refused command to the log, or count the refusal for a later row."""
        speaker = claimed = ""
        if session is None:
            claimed, protocol = str(getattr(command, "member", "") or ""), str(getattr(command, "protocol", ""))
        else:
            protocol = session.protocol
            if session.account is not None or session.operator:
                speaker = session.speaker
            else:
                claimed = session.speaker
        what = command.what if isinstance(command, c.RecordRefusal) else type(command).__name__
        kind = (code.value, speaker, protocol, what)
        self._remember(kind)
        row = self._note(kind, _readable(claimed), self._batch.now_ms)
        if row is not None:
            self._batch.record(row, urgent=False)

    def work(self) -> None:
        """Write rows for the counted refusals that are due, and forget the kinds that had no new refusal."""
        now_ms = self._batch.now_ms
        if now_ms - self._swept_at_ms < self._limits.refusal_row_ms:
            return
        self._swept_at_ms = now_ms
        for kind, unwritten in list(self._kinds.items()):
            if now_ms - unwritten.row_at_ms < self._window_ms(kind, now_ms):
                continue
            if unwritten.count:
                self._remember(kind)
                self._batch.record(self._row(kind, unwritten, now_ms), urgent=False)
            else:
                del self._kinds[kind]

    def _remember(self, kind: _Kind) -> None:
        """Note how to restore the counter of this kind of refusal, for the case that the batch fails."""
        unwritten = self._kinds.get(kind)
        before = None if unwritten is None else replace(unwritten)
        self._batch.undo.append(partial(self._put_back, kind, before, self._rows.get(kind[1], 0)))

    def _put_back(self, kind: _Kind, before: _Unwritten | None, rows: int) -> None:
        self._rows[kind[1]] = rows
        if before is None:
            self._kinds.pop(kind, None)
        else:
            self._kinds[kind] = before

    def finish(self) -> None:
        """Write rows for all refusals that are only counted so far, because the hub stops."""
        for kind, unwritten in list(self._kinds.items()):
            if unwritten.count:
                self._batch.record(self._row(kind, unwritten, self._batch.now_ms), urgent=False)

    def _note(self, kind: _Kind, name: str, now_ms: int) -> Refused | None:
        """Count a refusal. Return the event for a log row if a row is due; otherwise `None`.

        `name` is the name that an unknown client gave, or empty.
        """
        unwritten = self._kinds.get(kind)
        due = unwritten is None or now_ms - unwritten.row_at_ms >= self._window_ms(kind, now_ms)
        if unwritten is None:
            if len(self._kinds) >= _KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
            unwritten = self._kinds[kind] = _Unwritten(now_ms)
        unwritten.add(name)
        return self._row(kind, unwritten, now_ms) if due else None

    def _window_ms(self, kind: _Kind, now_ms: int) -> int:
        """Return the shortest time between two log rows of a kind."""
        hour = now_ms // _HOUR_MS
        if hour != self._hour:
            self._hour = hour
            self._rows.clear()
        _, speaker, _, _ = kind
        return self._limits.refusal_row_ms if self._rows.get(speaker, 0) < self._limits.refusal_rows_max else _HOUR_MS

    def _row(self, kind: _Kind, unwritten: _Unwritten, now_ms: int) -> Refused:
        _, speaker, _, _ = kind
        self._rows[speaker] = self._rows.get(speaker, 0) + 1
        row = Refused(*kind, count=unwritten.count, claimed=unwritten.claimed)
        self._kinds[kind] = _Unwritten(now_ms)
        return row


def _readable(name: str) -> str:
    """Return the name that a stranger gave for itself, shortened, without characters that cannot be encoded."""
    return name[:_CLAIMED_CHARS_MAX].encode("utf-8", "replace").decode()
