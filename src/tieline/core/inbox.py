"""An inbox: the deliveries of one member, in the order in which they were accepted.

Keys count 1, 2, 3… and are never used twice. The oldest deliveries are dropped from memory when they are settled, so
memory grows with the backlog and not with the history. One delivery takes 17 bytes in three parallel arrays.

The state of a delivery is stored as the number `2 × State`, its *rung*. Two special cases are stored as `2 × State +
1`. First, a delivery was offered on a wire without acknowledgement: it stays readable, but it is not backlog, because
nobody can acknowledge it there. Second, a pending delivery is *held*: it is backlog, but no session can read, claim or
acknowledge it before it is released (`core.holds`).
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import compress, islice

from msgspec import Struct

from tieline.contract.delivery import State
from tieline.contract.keys import Range

_SETTLED = 2 * State.ACKED
_ACKLESS = 2 * State.OFFERED + 1
_HELD = 2 * State.PENDING + 1
_RUN = re.compile(rb"\x01+")
_COMPACT_AT = 256
_LOOKED_AT = 4096
"""One `read` scans at most this many deliveries, plus four times its limit. The next `read` continues after them."""
_IS_AWAITED = bytes(rung < _SETTLED and rung != _ACKLESS for rung in range(256))
"""For each number of a stored state: 1 if somebody may still acknowledge a delivery in this state, otherwise 0."""

_IS_WAITING = bytes(rung in (2 * State.PENDING, 2 * State.OFFERED) for rung in range(256))
"""For each number of a stored state: 1 if the delivery is not held, nobody saw it, and somebody may still acknowledge
it; otherwise 0."""


class Image(Struct, frozen=True):
    """Copy of an inbox as bytes, for a snapshot.

    `base` is the key of the first delivery. Each of the other fields has one value for each delivery. `rungs` has the
    states, as numbers.
    """

    base: int
    offsets: bytes
    stream_seqs: bytes
    rungs: bytes


class Entry(Struct, frozen=True):
    """One delivery that is not settled (acked, expired or dead). `offset` is the log offset of its message."""

    key: int
    offset: int
    stream_seq: int
    state: State


class Inbox:
    """The deliveries of one member. Only the broker changes this object."""

    __slots__ = ("_base", "_head", "_offsets", "_rungs", "_stream_seqs", "backlog", "held")

    def __init__(self) -> None:
        # Key of the entry at index 0 of the arrays.
        self._base = 1
        # Index of the first entry that is not known to be settled.
        self._head = 0
        self._offsets = array("q")
        self._stream_seqs = array("q")
        self._rungs = bytearray()
        # Unsettled deliveries that a session could still acknowledge.
        self.backlog = 0
        # Held deliveries; the backlog includes them.
        self.held = 0

    @property
    def next_key(self) -> int:
        """The key that the next delivery will get."""
        return self._base + len(self._rungs)

    @property
    def first_unsettled(self) -> int:
        """The lowest key that may be unsettled. Every delivery with a lower key is acked, expired or dead."""
        return self._base + self._head

    @property
    def unoffered(self) -> int:
        """Number of deliveries that were not offered to the member yet. Held deliveries do not count."""
        return self._rungs.count(2 * State.PENDING, self._head)

    def append(self, offset: int, stream_seq: int) -> int:
        """Add a delivery of the message at this log offset, with its number in its stream. Return the new key."""
        key = self._base + len(self._rungs)
        self._offsets.append(offset)
        self._stream_seqs.append(stream_seq)
        self._rungs.append(0)
        self.backlog += 1
        return key

    def state(self, key: int) -> State | None:
        """Return the state of a delivery.

        Return `None` if the delivery is settled (acked, expired or dead) and no longer in memory, or if no delivery has
        this key yet.
        """
        index = key - self._base
        if index < self._head or index >= len(self._rungs):
            return None
        return State(self._rungs[index] >> 1)

    def offset(self, key: int) -> int | None:
        """Return the log offset of a delivery's message; `None` if the delivery is not in memory."""
        index = key - self._base
        return self._offsets[index] if self._head <= index < len(self._rungs) else None

    def entry(self, key: int) -> Entry | None:
        """Return the delivery with this key; `None` if it is acked, expired, dead or unknown."""
        state = self.state(key)
        if state is None or state >= State.ACKED:
            return None
        index = key - self._base
        return Entry(key, self._offsets[index], self._stream_seqs[index], state)

    def find(self, offset: int) -> int | None:
        """Return the key of the delivery of the message at this log offset.

        Return `None` if the delivery is acked, expired, dead or unknown.
        """
        # Offsets grow with keys.
        index = bisect_left(self._offsets, offset, self._head)
        if index == len(self._offsets) or self._offsets[index] != offset or self._rungs[index] >= _SETTLED:
            return None
        return self._base + index

    def move(self, first: int, last: int, state: State, *, ackless: bool = False) -> list[Range]:
        """Change the state of the deliveries with keys `first` to `last`. Return the ranges of keys that changed.

        A delivery moves only to a higher state and never out of a settled state (acked, expired, dead), so a second
        equal call changes nothing. With `ackless`, the deliveries were offered on a wire without acknowledgement. A
        held delivery can only become `expired` or `dead`, because nobody has received it.
        """
        low = max(first - self._base, self._head)
        high = min(last - self._base + 1, len(self._rungs))
        if low >= high:
            return []
        rung = 2 * state + (1 if ackless else 0)
        segment = self._rungs[low:high]
        below = min(2 * state, _SETTLED)
        stuck = bool(self.held) and state < State.EXPIRED and _HELD in segment
        if max(segment) < below and not stuck:
            ranges = [(low + self._base, high + self._base - 1)]
        else:
            # If an ackless delivery is offered again on a wire with acknowledgement, somebody may acknowledge it now.
            awaited_again = _ACKLESS if rung == _ACKLESS - 1 else -1
            ranges = list(_runs(segment, below, awaited_again, low + self._base, without=_HELD if stuck else -1))
        for start, end in ranges:
            self._set(start - self._base, end - self._base + 1, rung)
        if state >= State.ACKED:
            self._advance_head()
        return ranges

    def hold(self, first: int, last: int, *, held: bool = True) -> list[Range]:
        """Hold the pending deliveries with keys `first` to `last`. With `held=False`, release the held deliveries.

        No session can read a held delivery. Return the ranges of keys that changed.
        """
        low = max(first - self._base, self._head)
        high = min(last - self._base + 1, len(self._rungs))
        before, after = (0, _HELD) if held else (_HELD, 0)
        ranges = list(_runs(self._rungs[low:high], 0, before, low + self._base)) if low < high else []
        for start, end in ranges:
            count = end - start + 1
            self._rungs[start - self._base : end - self._base + 1] = bytes((after,)) * count
            self.held += count if held else -count
        return ranges

    def is_held(self, key: int) -> bool:
        """True if the delivery with this key is held: no session can read it before it is released."""
        index = key - self._base
        return self._head <= index < len(self._rungs) and self._rungs[index] == _HELD

    def is_held_at(self, offset: int) -> bool:
        """True if the delivery of the message at this log offset is held, so that no session can read it yet."""
        if not self.held:
            return False
        key = self.find(offset)
        return key is not None and self.is_held(key)

    def held_entries(self) -> Iterator[Entry]:
        """Yield all deliveries that are held: pending, and not readable before they are released."""
        index = self._rungs.find(_HELD, self._head)
        while index >= 0:
            yield Entry(index + self._base, self._offsets[index], self._stream_seqs[index], State.PENDING)
            index = self._rungs.find(_HELD, index + 1)

    def _set(self, low: int, high: int, rung: int) -> None:
        if self.held:
            self.held -= self._rungs.count(_HELD, low, high)
        if rung >= _SETTLED or rung == _ACKLESS:
            segment = self._rungs[low:high]
            self.backlog -= (high - low) - segment.count(_ACKLESS)
        elif _ACKLESS in self._rungs[low:high]:
            # The delivery was ackless, and now somebody may acknowledge it again.
            self.backlog += self._rungs[low:high].count(_ACKLESS)
        self._rungs[low:high] = bytes((rung,)) * (high - low)

    def _advance_head(self) -> None:
        rungs, head, end = self._rungs, self._head, len(self._rungs)
        while head < end and rungs[head] >= _SETTLED:
            head += 1
        self._head = head
        if head >= _COMPACT_AT and 2 * head >= end:
            del self._offsets[:head], self._stream_seqs[:head], self._rungs[:head]
            self._base += head
            self._head = 0

    def read(
        self, after: int, limit: int, *, last: int | None = None, unoffered_until: int = 0, unseen: bool = False
    ) -> tuple[list[Entry], int]:
        """Return deliveries with keys above `after`, and the last key that was scanned.

        The result has no more than `limit` deliveries. Deliveries that are settled (acked, expired, dead) or held (not
        to be delivered yet) are left out. With `last`, no key above `last` is scanned. Deliveries with keys below
        `unoffered_until` are returned only if they were not offered yet. With `unseen`, deliveries are returned only if
        nothing proves that they were seen.
        """
        entries: list[Entry] = []
        index = max(after + 1 - self._base, self._head)
        end = len(self._rungs) if last is None else min(len(self._rungs), last + 1 - self._base)
        border = unoffered_until - self._base
        bound = 2 * State.SEEN if unseen else _SETTLED
        end = min(end, index + _LOOKED_AT + 4 * limit)
        while index < end and len(entries) < limit:
            rung = self._rungs[index]
            if rung < (2 * State.OFFERED if index < border else bound) and rung != _HELD:
                entries.append(
                    Entry(index + self._base, self._offsets[index], self._stream_seqs[index], State(rung >> 1))
                )
            index += 1
        return entries, self._base + index - 1

    def unseen(self, first: int, last: int) -> list[Range]:
        """Return the ranges of keys from `first` to `last` whose deliveries are not known to be seen.

        Held deliveries (not to be delivered yet) are left out.
        """
        low = max(first - self._base, self._head)
        high = min(last - self._base + 1, len(self._rungs))
        if low >= high:
            return []
        return list(_runs(self._rungs[low:high], 2 * State.SEEN, -1, low + self._base, without=_HELD))

    def waiting(self, limit: int) -> list[Entry]:
        """Return the oldest deliveries that nobody saw, and that somebody may still acknowledge.

        Held deliveries (not to be delivered yet) are left out.
        """
        # The regular expression runs in C. A member may have a million deliveries.
        runs = _RUN.finditer(self._rungs.translate(_IS_WAITING), self._head)
        indexes = islice((index for run in runs for index in range(*run.span())), limit)
        return [
            Entry(index + self._base, self._offsets[index], self._stream_seqs[index], State(self._rungs[index] >> 1))
            for index in indexes
        ]

    def is_ackless(self, key: int) -> bool:
        """True if a delivery was offered on a wire without acknowledgement, and nothing shows that it was seen."""
        index = key - self._base
        return self._head <= index < len(self._rungs) and self._rungs[index] == _ACKLESS

    def awaited_offsets(self) -> Iterator[int]:
        """Yield the log offsets of messages that somebody may still acknowledge. Retention keeps these messages."""
        awaited = self._rungs[self._head :].translate(_IS_AWAITED)
        yield from compress(self._offsets[self._head :], awaited)

    def ackless_until(self, offset: int) -> list[Range]:
        """Return ranges of keys: deliveries on a wire without acknowledgement, for messages up to a log offset.

        Only deliveries for which `is_ackless` is true count. Such a delivery expires when the hub deletes its old
        message.
        """
        keys: list[Range] = []
        # Offsets grow with keys.
        end = bisect_right(self._offsets, offset, self._head)
        index = self._rungs.find(_ACKLESS, self._head, end)
        while index >= 0:
            keys.append((index + self._base, index + self._base))
            index = self._rungs.find(_ACKLESS, index + 1, end)
        return keys

    def image(self) -> Image:
        """Return a copy of the inbox as bytes, for a snapshot."""
        head = self._head
        return Image(
            self._base + head,
            self._offsets[head:].tobytes(),
            self._stream_seqs[head:].tobytes(),
            bytes(self._rungs[head:]),
        )

    @classmethod
    def from_image(cls, image: Image) -> "Inbox":
        """Return a new inbox that is built from the copy in a snapshot."""
        inbox = cls()
        inbox._base = image.base
        inbox._offsets.frombytes(image.offsets)
        inbox._stream_seqs.frombytes(image.stream_seqs)
        inbox._rungs = bytearray(image.rungs)
        inbox.backlog = sum(1 for rung in inbox._rungs if rung < _SETTLED and rung != _ACKLESS)
        inbox.held = inbox._rungs.count(_HELD)
        assert len(inbox._offsets) == len(inbox._stream_seqs) == len(inbox._rungs), "a torn snapshot"
        return inbox


def _runs(segment: bytearray, below: int, exception: int, base: int, *, without: int = -1) -> Iterator[Range]:
    """Yield the ranges of keys of those deliveries whose stored state matches.

    `segment` has the states of deliveries with consecutive keys, as numbers. `base` is the key of the first delivery. A
    state matches if its number is lower than `below` and not equal to `without`, or if it equals `exception`.
    """
    # The regular expression runs in C. A member may have a million deliveries.
    for run in _RUN.finditer(segment.translate(_moving(below, exception, without))):
        yield run.start() + base, run.end() - 1 + base


@cache
def _moving(below: int, exception: int, without: int) -> bytes:
    """Return a table for `bytes.translate`: for each number of a stored state 1 if it matches, else 0.

    A number matches if it is lower than `below` and not equal to `without`, or if it equals `exception`.
    """
    return bytes((rung < below and rung != without) or rung == exception for rung in range(256))
