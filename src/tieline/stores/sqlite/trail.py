"""The trail: which messages each sender said to each target, so that a page of history costs what it shows.

Above: the SQLite store, within its transactions. Below: the table `trail`, behind the messages by some thousands, and
the rest in memory. Many offsets go into one row, so a message costs next to nothing; an index would cost it as much as
all the others that it has.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from tieline.stores.sqlite.walk import Row, Select

_WAITING_MAX = 4096
"""Messages that wait in memory before they are brought into the table: a few milliseconds of one commit."""
_ROW_MAX = 512
"""Offsets in one row: as much as fits a page of the file."""

_Write = Callable[[str, Row], None]


class Trail:
    """The trail of one store. Only the store changes it."""

    def __init__(self, select: Select) -> None:
        self._select = select
        # Offsets by sender and target that are not in the table, each list in order.
        self._waiting: dict[str, dict[str, list[int]]] = {}
        self._count = 0

    def restore(self) -> None:
        """Start from what is committed."""
        self.clear()
        for sender, target, offset in self._select("untrailed", ()):
            self.note(sender, target, offset)

    def note(self, sender: str, target: str, offset: int) -> None:
        """A message was accepted."""
        targets = self._waiting.get(sender)
        if targets is None:
            targets = self._waiting[sender] = {}
        offsets = targets.get(target)
        if offsets is None:
            targets[target] = [offset]
        else:
            offsets.append(offset)
        self._count += 1

    @property
    def due(self) -> bool:
        """Whether enough wait to be brought into the table."""
        return self._count >= _WAITING_MAX

    def rows(self) -> Iterator[Row]:
        """What waits, as rows of the table."""
        for sender, targets in self._waiting.items():
            for target, offsets in targets.items():
                for start in range(0, len(offsets), _ROW_MAX):
                    some = offsets[start : start + _ROW_MAX]
                    yield sender, target, some[0], array("q", some).tobytes()

    def clear(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()
        self._count = 0

    def drop(self, messages: Sequence[tuple[str, str, int]], write: _Write) -> None:
        """Forget messages, each given by its sender, target and offset."""
        gone: dict[tuple[str, str], set[int]] = {}
        for sender, target, offset in messages:
            gone.setdefault((sender, target), set()).add(offset)
        for (sender, target), doomed in gone.items():
            waiting = self._waiting.get(sender, {}).get(target, [])
            left = [offset for offset in waiting if offset not in doomed]
            self._count -= len(waiting) - len(left)
            waiting[:] = left
            for first, offsets in list(self._rows(sender, target, min(doomed), max(doomed) + 1, forward=True)):
                kept = [offset for offset in offsets if offset not in doomed]
                if len(kept) < len(offsets):
                    write("delete_trail", (sender, target, first))
                    if kept:
                        write("insert_trail", (sender, target, kept[0], array("q", kept).tobytes()))

    def targets_of(self, sender: str) -> set[str]:
        """All that a sender has said something to."""
        known = {row[0] for row in self._select("targets_of_sender", (sender,))}
        return known | self._waiting.get(sender, {}).keys()

    def walk(self, sender: str, target: str, since: int, before: int, *, forward: bool = False) -> Iterator[int]:
        """Offsets of what a sender said to a target, between two offsets."""
        # What waits is younger than what is in the table.
        waiting = _between(self._waiting.get(sender, {}).get(target, ()), since, before)
        if not forward:
            yield from reversed(waiting)
        for _, offsets in self._rows(sender, target, since, before, forward=forward):
            some = _between(offsets, since, before)
            yield from some if forward else reversed(some)
        if forward:
            yield from waiting

    def _rows(
        self, sender: str, target: str, since: int, before: int, *, forward: bool
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Rows that may hold offsets between two offsets, as the first of each and all of it."""
        edge = before
        if forward:
            # The last row that begins before may reach in.
            for first, packed in self._select("trail_back", (sender, target, since)):
                yield first, _unpack(packed)
            edge = since - 1
        while True:
            row = next(self._select("trail_forth" if forward else "trail_back", (sender, target, edge)), None)
            if row is None or row[0] >= before:
                return
            edge = row[0]
            yield edge, _unpack(row[1])
            if not forward and edge <= since:
                return


def _unpack(packed: bytes) -> Sequence[int]:
    offsets = array("q")
    offsets.frombytes(packed)
    return offsets


def _between(offsets: Sequence[int], since: int, before: int) -> Sequence[int]:
    return offsets[bisect_left(offsets, since) : bisect_left(offsets, before)]
