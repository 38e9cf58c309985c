"""Holds: messages that are accepted and stored now, and delivered later.

The broker asks this module before it accepts a message. At the end of each batch it lets this module release the
deliveries that are due. In its inbox, a held delivery is `pending` and cannot be read, claimed or acknowledged.

A delivery is held for one of three reasons:

- Its conversation is *paused*. A person paused it, or the loop rule did because agents answered each other too often in
  a row (their *hops* exceeded the hard limit, see `core.loops`). The delivery waits until the pause ends.
- It is *slowed*, because agents answered each other often in a row. The delivery waits until a given time.
- It is *behind* another held delivery in its stream (topic, sender, recipient). It waits because a stream keeps its
  order.

A delivery that is held for any reason also waits while its own conversation is paused, even if the pause begins later.
Each stream with held deliveries has a queue, and only the first delivery of a queue is checked. If the loop rule paused
a conversation, one delivery is released every `pause_ms` until none is left. So an endless conversation becomes very
slow, and useful work does not stop for ever.

The store keeps the list of conversations that are paused or have their limits lifted. The log says which deliveries are
held. The time at which a slowed delivery is due is not stored, so after a restart the delivery is due at once.
"""

import heapq
import shlex
from array import array
from collections import deque
from collections.abc import Mapping
from itertools import islice

import msgspec
from msgspec import Struct

from tieline.contract import event
from tieline.contract.delivery import HELD, REMEDY, SLOWED, State, Step
from tieline.contract.event import Allowed, Paused, Resumed
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Content, Kind, Message
from tieline.contract.reply import Pause
from tieline.core.batch import Batch
from tieline.core.directory import Account, Directory
from tieline.core.escalation import Escalation
from tieline.core.inbox import Entry
from tieline.core.loops import Judgement, Loops, conversation
from tieline.core.outcome import Post
from tieline.core.store import Store
from tieline.core.streams import stream_name

_SETTING = "holds"
_PAGE = 256
"""Number of held deliveries in one page, when their messages are read at a start."""

_NAMES_MAX = 8
"""Largest number of paused conversations in a reply to the reader of an inbox. This many names fit in a line of
text."""

_BEHIND = "an earlier message of the same sender is held, and order is kept"


class _StoredPause(Struct, array_like=True):
    """Stored record of a conversation that is paused, or (with `allowed`) whose limits are lifted.

    The limits are those on the number of answers between agents.
    """

    name: str
    until_ms: int
    by: str = ""
    reason: str = ""
    allowed: bool = False


_decoder = msgspec.json.Decoder(list[_StoredPause])


class Verdict(Struct, frozen=True):
    """Decision to hold a message, and the reason.

    The message is held while its conversation is paused, and at least until `due_ms`.
    """

    reason: str
    due_ms: int = 0
    """The time at which a slowed message is released; 0 if it is not slowed."""


class _Segment:
    """Part of the queue of a stream: deliveries of the same conversation that wait until the same time.

    They also wait while their conversation is paused. `name` is empty for messages that no pause holds.
    """

    __slots__ = ("due_ms", "keys", "name", "start")

    def __init__(self, name: str, due_ms: int) -> None:
        self.name = name
        self.due_ms = due_ms
        self.keys = array("q")
        # Index of the first key that is not released yet.
        self.start = 0


_Stream = tuple[int, str]
"""A stream of one recipient: the recipient's member number, and the name of the stream."""


def _paused_with(message: Message) -> str:
    """Return the conversation whose pause holds a message. It is empty if no pause holds messages of this kind."""
    return conversation(message.content, message.sender) if message.content.kind is Kind.CHAT else ""


def command(word: str, conversation: str) -> str:
    """Return the command line `tieline WORD CONVERSATION` for a person to enter. The name is quoted for the shell."""
    return f"tieline {word} {shlex.quote(conversation)}"


class Holds:
    """The conversations that are paused or whose limits are lifted, and the deliveries that are held.

    A held delivery is stored, but not delivered before it is released.
    """

    __slots__ = (
        "_batch",
        "_directory",
        "_due",
        "_escalation",
        "_external_inbox_sessions",
        "_limits",
        "_loops",
        "_pauses",
        "_queues",
        "_recheck",
        "_recheck_members",
        "_store",
        "_unsaved",
        "_unsaved_ms",
        "_waiting",
    )

    def __init__(
        self,
        batch: Batch,
        directory: Directory,
        loops: Loops,
        escalation: Escalation,
        external_inbox_sessions: Mapping[MemberName, SessionId],
    ) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._loops = loops
        self._escalation = escalation
        self._external_inbox_sessions = external_inbox_sessions
        self._pauses: dict[str, _StoredPause] = {}
        self._queues: dict[_Stream, deque[_Segment]] = {}
        # By conversation and stream: the number of held deliveries, which wait while the conversation is paused.
        self._waiting: dict[str, dict[_Stream, int]] = {}
        # Heap of (time, 0, conversation), and of (time, recipient, stream) for slowed deliveries. Some may be outdated.
        self._due: list[tuple[int, int, str]] = []
        # Streams to check again, because their first delivery may be due.
        self._recheck: set[_Stream] = set()
        # Numbers of members whose streams must all be checked again.
        self._recheck_members: set[int] = set()
        # True if a pause changed since the last commit. The second is the sum of all clock changes since then.
        self._unsaved = False
        self._unsaved_ms = 0

    def restore(self, settings: Mapping[str, bytes], before: "Holds | None") -> None:
        """Restore pauses from the stored `settings`, and the queues of held deliveries from the inboxes.

        In a rollback, `before` is the object from before the rollback. Deliveries that were held in `before` keep their
        pause or due time.
        """
        self._unsaved_ms = before._unsaved_ms if before else 0
        for stored in _decoder.decode(settings.get(_SETTING) or b"[]"):
            stored.until_ms += self._unsaved_ms
            self._set_pause(stored)
        known: dict[int, dict[int, tuple[str, _Segment]]] = {}
        for (number, stream), queue in (before._queues if before else {}).items():
            keys = known.setdefault(number, {})
            for segment in queue:
                keys.update(dict.fromkeys(segment.keys[segment.start :], (stream, segment)))
        for account in self._directory.accounts.values():
            if account.inbox.held:
                self._restore_queues(account, known.get(account.number, {}))

    def _restore_queues(self, account: Account, known: dict[int, tuple[str, _Segment]]) -> None:
        """Restore the queues of a member's held deliveries.

        `known` has, by key, the stream of a delivery and its segment of the queue. For keys that are not in `known`,
        read the messages from the store first.
        """
        entries = list(account.inbox.held_entries())
        self._read([entry for entry in entries if entry.key not in known], known)
        for entry in entries:
            topic_stream, segment = known[entry.key]
            stream = (account.number, topic_stream)
            self._append(stream, entry.key, segment.name, segment.due_ms)
            self._recheck.add(stream)

    def _read(self, entries: list[Entry], known: dict[int, tuple[str, _Segment]]) -> None:
        """Read the messages of held deliveries from the store, and add their streams and conversations to `known`.

        Due times are not stored, so these deliveries are due at once.
        """
        for start in range(0, len(entries), _PAGE):
            page = entries[start : start + _PAGE]
            while page:
                found, considered = self._store.messages([entry.offset for entry in page], self._limits.page_bytes_max)
                for entry in page[:considered]:
                    message = found.get(entry.offset)
                    assert message is not None, "retention keeps what is unsettled"
                    stream = stream_name(message.sender, message.content.topic)
                    known[entry.key] = stream, _Segment(_paused_with(message), 0)
                page = page[considered:]

    # Questions of the broker.

    @property
    def any(self) -> bool:
        """True if any delivery is held: stored, but not to be delivered yet."""
        return bool(self._queues)

    def allows(self, content: Content, sender: str, now_ms: int) -> bool:
        """True if somebody has lifted the limits of the conversation to which this message belongs.

        Then its agents may answer each other without limit.
        """
        stored = self._pauses.get(conversation(content, sender)) if self._pauses else None
        return stored is not None and stored.allowed and stored.until_ms > now_ms

    @property
    def any_paused(self) -> bool:
        """True if any conversation is paused, or has its limits lifted."""
        return bool(self._pauses)

    def verdict(self, name: str, *, agent: bool) -> Verdict | None:
        """Return the decision to hold a message, if its conversation `name` is paused; otherwise `None`.

        If the loop rule (the limit on answers between agents) paused the conversation, only messages of agents are
        held. `agent` is true if an agent sent the message.
        """
        stored = self._pauses.get(name)
        if stored is None or stored.allowed or not (agent or stored.by):
            return None
        return Verdict(stored.reason)

    def keep(self, post: Post, stream: str, verdict: Verdict | None) -> str:
        """Hold the deliveries of a message that must wait: they are stored, but not delivered yet.

        Return the reason, or an empty string if none is held. With a `verdict`, all deliveries must wait. Without a
        `verdict`, a delivery waits only if its `stream` has held deliveries for the same recipient. A delivery to a
        member with an external inbox is never held, because other processes take deliveries from the external inbox in
        the order of keys.
        """
        reason = ""
        for name, number, key in zip(post.recipients, post.numbers, post.keys, strict=True):
            behind = (number, stream) in self._queues
            if (verdict is None and not behind) or name in self._external_inbox_sessions:
                continue
            reason = verdict.reason if verdict is not None else self._behind((number, stream))
            account = self._directory.accounts[number]
            self._append((number, stream), key, _paused_with(post.message), verdict.due_ms if verdict else 0)
            post.held.add(number)
            step = Step(State.PENDING, self._batch.now_ms, evidence=reason)
            self._batch.ladder.note(account, account.inbox.hold(key, key), step)
        return reason

    def _behind(self, stream: _Stream) -> str:
        waits = any(self._is_paused(segment.name) for segment in self._queues[stream])
        return f"{HELD if waits else SLOWED}{_BEHIND}"

    def _append(self, stream: _Stream, key: int, name: str, due_ms: int) -> None:
        queue = self._queues.setdefault(stream, deque())
        if not queue or (queue[-1].name, queue[-1].due_ms) != (name, due_ms) or due_ms:
            queue.append(_Segment(name, due_ms))
            if due_ms:
                heapq.heappush(self._due, (due_ms, *stream))
        queue[-1].keys.append(key)
        if name:
            counts = self._waiting.setdefault(name, {})
            counts[stream] = counts.get(stream, 0) + 1

    # Commands of people who manage conversations.

    def pause(self, name: str, by: str, reason: str = "", judgement: Judgement | None = None) -> None:
        """Pause a conversation. New messages in the conversation are held from now on.

        `by` is the member who asked for the pause. `by` is empty if the loop rule (the limit on answers between agents)
        pauses the conversation. Then `judgement` is the result of the loop rule for the message that led to the pause.
        """
        reason = reason or f"{HELD}{by} paused {name}{REMEDY}delivers it: {command('resume', name)}"
        self._set_pause(_StoredPause(name, self._batch.now_ms + self._limits.pause_ms, by, reason))
        self._change()
        self._batch.record(Paused(name, (judgement.cause if judgement else None) or "", by), urgent=bool(by))

    def allow(self, name: str, by: str, until_ms: int) -> None:
        """Lift the limits of a conversation until `until_ms`, and release its held deliveries.

        Then its agents may answer each other without limit.
        """
        self.resume(name, by)
        self._set_pause(_StoredPause(name, until_ms, by, allowed=True))
        self._change()
        self._batch.record(Allowed(name, by, until_ms))

    def resume(self, name: str, by: str = "") -> None:
        """End the pause of a conversation, or apply its limits again if they were lifted.

        `by` is the member who asked for this; empty if the time is over. If the conversation is neither paused nor
        without limits, change nothing.
        """
        stored = self._pauses.pop(name, None)
        if stored is None:
            return
        self._recheck.update(self._waiting.get(name, ()))
        self._loops.forget(name)
        self._change()
        if not stored.allowed:
            self._batch.record(Resumed(name, by))

    def list(self, now_ms: int) -> tuple[Pause, ...]:
        """Return the conversations that are paused or whose limits are lifted, sorted by the end time."""
        listed = [
            Pause(
                conversation=each.name,
                until_ms=each.until_ms,
                by=each.by,
                held=sum(self._waiting.get(each.name, {}).values()),
                reason=each.reason,
                allowed=each.allowed,
            )
            for each in self._pauses.values()
            if each.until_ms > now_ms
        ]
        return tuple(sorted(listed, key=lambda pause: pause.until_ms))

    def names_of(self, account: Account) -> tuple[str, ...]:
        """Return the names of a few paused conversations in which deliveries of this member are held."""
        names = (
            name
            for name, streams in self._waiting.items()
            if self._is_paused(name) and any(number == account.number for number, _ in streams)
        )
        return tuple(sorted(islice(names, _NAMES_MAX)))

    def shift(self, step_ms: int) -> None:
        """Shift all times by `step_ms`, because somebody set the clock. So each wait lasts as long as planned."""
        self._due = []
        for stored in self._pauses.values():
            stored.until_ms += step_ms
            self._set_pause(stored)
        for stream, queue in self._queues.items():
            for segment in queue:
                if segment.due_ms:
                    segment.due_ms += step_ms
                    heapq.heappush(self._due, (segment.due_ms, *stream))
        self._unsaved_ms += step_ms

    def save(self, store: Store) -> None:
        """Write all pauses to the store if any changed. They are stored together, in one row."""
        if self._unsaved or self._unsaved_ms:
            store.save_setting(_SETTING, msgspec.json.encode(list(self._pauses.values())))

    def committed(self) -> None:
        """Note that the saved pauses are durable. `save` writes the pauses again only after one of them changes."""
        self._unsaved = False
        self._unsaved_ms = 0

    def _is_paused(self, name: str) -> bool:
        stored = self._pauses.get(name)
        return stored is not None and not stored.allowed

    def _set_pause(self, stored: _StoredPause) -> None:
        self._pauses[stored.name] = stored
        heapq.heappush(self._due, (stored.until_ms, 0, stored.name))

    def _change(self) -> None:
        """Note that a pause changed, so that `save` writes all pauses.

        If there are too many pauses, drop the pauses that end first.
        """
        self._batch.changed = self._batch.dirty = self._unsaved = True
        while len(self._pauses) > self._limits.holds_max:
            first = min(self._pauses.values(), key=lambda stored: stored.until_ms)
            del self._pauses[first.name]
            self._recheck.update(self._waiting.get(first.name, ()))

    # Releases.

    def recheck(self, account: Account) -> None:
        """Make the next `work` check if held deliveries of this member are due.

        Call this after a held delivery expired, or when the member gets an external inbox.
        """
        self._recheck_members.add(account.number)

    def work(self, most: int) -> bool:
        """Release held deliveries that are due. Return true if some may be left for the next batch.

        `most` is the largest number of deliveries to release in this call. This runs after all commands of a batch, so
        that no reply of the batch depends on a released delivery.
        """
        if self._recheck_members:
            self._recheck.update(stream for stream in self._queues if stream[0] in self._recheck_members)
            self._recheck_members.clear()
        if self._unsaved_ms:
            self._batch.dirty = True
        # Check streams first. The end of a pause then releases the oldest message that is still held.
        left = self._release_streams(most)
        while left > 0 and self._due and self._due[0][0] <= self._batch.now_ms:
            due_ms, number, name = heapq.heappop(self._due)
            if number:
                self._recheck.add((number, name))
                continue
            stored = self._pauses.get(name)
            if stored is not None and stored.until_ms == due_ms:
                self._end(stored)
                left -= 1
        return self._release_streams(left) <= 0

    def _release_streams(self, most: int) -> int:
        """Release due deliveries of the streams in `_recheck`.

        `most` is the largest number of deliveries to release. Return the part of `most` that is left.
        """
        while self._recheck and most > 0:
            stream = self._recheck.pop()
            most -= self._release_stream(stream, most)
            if most <= 0:
                self._recheck.add(stream)
        return most

    def _end(self, stored: _StoredPause) -> None:
        """End a pause whose time is over.

        If the loop rule (the limit on answers between agents) made the pause and deliveries still wait, release one
        delivery and pause again.
        """
        waiting = self._waiting.get(stored.name, {})
        if stored.by or not waiting:
            self.resume(stored.name)
            return
        accounts = self._directory.accounts
        heads = [stream for stream in waiting if self._queues[stream][0].name == stored.name]
        if heads:
            # Release the oldest message of the conversation, for any recipient.
            stream = min(heads, key=lambda head: accounts[head[0]].inbox.offset(self._first(head)) or 0)
            self._release(stream, 1)
            self._recheck.add(stream)
        stored.until_ms = self._batch.now_ms + self._limits.pause_ms
        self._set_pause(stored)
        self._change()

    def _first(self, stream: _Stream) -> int:
        segment = self._queues[stream][0]
        return segment.keys[segment.start]

    def _release_stream(self, stream: _Stream, most: int) -> int:
        """Release deliveries of a stream, in order. Stop at the first delivery that must still wait.

        `most` is the largest number of deliveries to release. Return the number of released deliveries.
        """
        account = self._directory.accounts.get(stream[0])
        released = 0
        while released < most and (queue := self._queues.get(stream)) is not None:
            segment = queue[0]
            gone = account is None or not account.inbox.is_held(segment.keys[segment.start])
            waits = segment.due_ms > self._batch.now_ms or self._is_paused(segment.name)
            waits = waits and not (account is not None and account.name in self._external_inbox_sessions)
            if waits and not gone:
                break
            count = 1 if waits else min(len(segment.keys) - segment.start, most - released)
            self._release(stream, count)
            released += count
        return released

    def _release(self, stream: _Stream, count: int) -> None:
        """Release the first `count` deliveries of a stream. Deliveries that have expired are skipped."""
        account = self._directory.accounts.get(stream[0])
        queue = self._queues[stream]
        segment = queue[0]
        keys = segment.keys[segment.start : segment.start + count]
        segment.start += count
        if segment.start == len(segment.keys):
            queue.popleft()
            if not queue:
                del self._queues[stream]
        if segment.name:
            counts = self._waiting[segment.name]
            counts[stream] -= count
            if not counts[stream]:
                del counts[stream]
            if not counts:
                del self._waiting[segment.name]
        if account is None:
            return
        step = Step(State.PENDING, self._batch.now_ms)
        for key in keys:
            if account.inbox.hold(key, key, held=False):
                self._batch.ladder.note(account, [(key, key)], step, event.Released)
                self._batch.outcome.released.setdefault(account.name, []).append(key)
                self._escalation.expect_released(account.number, key)
                account.changed = self._batch.dirty = self._batch.outcome.urgent = True
