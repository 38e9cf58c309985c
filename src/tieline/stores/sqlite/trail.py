"""The trail: an index of messages by sender and target, so that a page of history reads only its own messages.

The SQLite store uses the trail, in its transactions. The newest messages (up to a few thousand) are in a buffer in
memory, and all others are in the table `trail`. One row of the table has many offsets, so a message costs almost
nothing. An ordinary index of the database would cost as much per message as all other indexes together.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from tieline.stores.sqlite.walk import Row, Select

_WAITING_MAX = 4096
"""Number of messages that are buffered in memory before they are written to the table. The write takes a few
milliseconds."""
_ROW_MAX = 512
"""Largest number of offsets in one row of the table: as many as fit a page of the file."""

_Write = Callable[[str, Row], None]


class Trail:
    """The index of one store's messages by sender and target. Only the store changes it.

    The newest messages are in a buffer in memory, and all others are in the table `trail`.
    """

    def __init__(self, select: Select) -> None:
        self._select = select
        # Offsets that are not in the table yet, by sender and target. Each list is in order.
        self._waiting: dict[str, dict[str, list[int]]] = {}
        self._count = 0

    def restore(self) -> None:
        """Fill the buffer in memory with the committed messages that are not in the table `trail` yet."""
        self.clear()
        for sender, target, offset in self._select("untrailed", ()):
            self.note(sender, target, offset)

    def note(self, sender: str, target: str, offset: int) -> None:
        """Add an accepted message, with its sender, target and log offset, to the buffer in memory."""
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
        """True if the buffer has so many messages that it must be written to the table."""
        return self._count >= _WAITING_MAX

    def rows(self) -> Iterator[Row]:
        """Yield the buffered messages as rows of the table `trail`, for the store to insert."""
        for sender, targets in self._waiting.items():
            for target, offsets in targets.items():
                for start in range(0, len(offsets), _ROW_MAX):
                    some = offsets[start : start + _ROW_MAX]
                    yield sender, target, some[0], array("q", some).tobytes()

    def clear(self) -> None:
        """Empty the buffer in memory, for example after its messages were written to the table."""
        self._waiting.clear()
        self._count = 0

    def drop(self, messages: Sequence[tuple[str, str, int]], write: _Write) -> None:
        """Remove messages from the index. Each message is given by its sender, target and log offset.

        `write` runs a named SQL statement.
        """
        gone: dict[tuple[str, str], set[int]] = {}
        for sender, target, offset in messages:
            gone.setdefault((sender, target), set()).add(offset)
        for (sender, target), deleted in gone.items():
            waiting = self._waiting.get(sender, {}).get(target, [])
            left = [offset for offset in waiting if offset not in deleted]
            self._count -= len(waiting) - len(left)
            waiting[:] = left
            for first, offsets in list(self._rows(sender, target, min(deleted), max(deleted) + 1, forward=True)):
                kept = [offset for offset in offsets if offset not in deleted]
                if len(kept) < len(offsets):
                    write("delete_trail", (sender, target, first))
                    if kept:
                        write("insert_trail", (sender, target, kept[0], array("q", kept).tobytes()))

    def targets_of(self, sender: str) -> set[str]:
        """Return all targets that a sender has sent messages to."""
        known = {row[0] for row in self._select("targets_of_sender", (sender,))}
        return known | self._waiting.get(sender, {}).keys()

    def walk(self, sender: str, target: str, since: int, before: int, *, forward: bool = False) -> Iterator[int]:
        """Yield the log offsets of a sender's messages to a target.

        Only offsets with `since` <= offset < `before` are yielded: oldest first if `forward`, else newest first.
        """
        # Messages in the buffer are newer than those in the table.
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
        """Yield the rows of the table that may hold offsets of a sender's messages to a target.

        Only rows are read that may hold an offset with `since` <= offset < `before`. The rows come in ascending order
        if `forward`, else in descending order. Each row is a pair of its first offset and all its offsets.
        """
        edge = before
        if forward:
            # The last row that begins before `since` may also hold later offsets.
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
