"""Holds: messages that are accepted and kept, and delivered later.

Above: the broker, which asks before it accepts a message and lets go what is due after each batch. Below: the inboxes,
where a held delivery is `pending` and cannot be read, claimed or acknowledged.

A delivery is held for one of three reasons:

- its conversation is *paused*, by somebody or because its hops passed the limit (`core.loops`), until that ends;
- its chain is *slowed*, until a time;
- it stands *behind* a held one in its stream (topic, sender, recipient), because the order of a stream is promised.

So there is a queue for each stream that has held deliveries, and only its first one is looked at. Of a conversation
that was held for its hops, one delivery is released every `pause_ms` until none is left: a storm that goes on costs
that much, and what was no storm is not stuck for ever.

Paused and allowed conversations are kept in the store, and which deliveries are held is in the log. When a slowed
delivery is due is in neither: after a restart it is due at once.
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
from tieline.contract.message import Content
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
"""Held deliveries whose messages are read at once at a start."""

_NAMES_MAX = 8
"""Conversations that the reader of an inbox is told of: more do not fit a line."""

_BEHIND = "an earlier message of the same sender is held, and order is kept"


class _Standing(Struct, array_like=True):
    """A conversation that is paused or allowed, as it is kept."""

    name: str
    until_ms: int
    by: str = ""
    reason: str = ""
    allowed: bool = False


_decoder = msgspec.json.Decoder(list[_Standing])


class Verdict(Struct, frozen=True):
    """Why a message is held."""

    reason: str
    name: str = ""
    """The conversation whose end of pause it waits for."""
    due_ms: int = 0
    """The time that it waits for."""


class _Part:
    """Neighbours in the queue of a stream that wait for the same."""

    __slots__ = ("due_ms", "keys", "name", "start")

    def __init__(self, name: str, due_ms: int) -> None:
        self.name = name
        self.due_ms = due_ms
        self.keys = array("q")
        # Those before this place are released.
        self.start = 0


_Stream = tuple[int, str]
"""The number of a recipient, and one of its streams."""


def command(word: str, conversation: str) -> str:
    """A command as a person can enter it, whatever the conversation is called."""
    return f"tieline {word} {shlex.quote(conversation)}"


class Holds:
    """Paused and allowed conversations, and the deliveries that wait."""

    __slots__ = (
        "_batch",
        "_directory",
        "_due",
        "_escalation",
        "_external_inbox_sessions",
        "_limits",
        "_loops",
        "_queues",
        "_recheck",
        "_recheck_members",
        "_standing",
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
        self._standing: dict[str, _Standing] = {}
        self._queues: dict[_Stream, deque[_Part]] = {}
        # How many deliveries wait for the end of each pause, and in which streams.
        self._waiting: dict[str, dict[_Stream, int]] = {}
        # (time, 0, conversation) of ends, and (time, recipient, stream) of slowed deliveries; some are out of date.
        self._due: list[tuple[int, int, str]] = []
        # Streams that may go on.
        self._recheck: set[_Stream] = set()
        # Members of whose streams any may go on, by their numbers.
        self._recheck_members: set[int] = set()
        # Whether a pause changed since the last commit, and by how much the clock was set since then.
        self._unsaved = False
        self._unsaved_ms = 0

    def restore(self, settings: Mapping[str, bytes], before: "Holds | None") -> None:
        """Take up what the store kept; of deliveries that were held `before` too, what they wait for."""
        self._unsaved_ms = before._unsaved_ms if before else 0
        for standing in _decoder.decode(settings.get(_SETTING) or b"[]"):
            standing.until_ms += self._unsaved_ms
            self._stand(standing)
        known: dict[int, dict[int, tuple[str, _Part]]] = {}
        for (number, stream), queue in (before._queues if before else {}).items():
            keys = known.setdefault(number, {})
            for part in queue:
                keys.update(dict.fromkeys(part.keys[part.start :], (stream, part)))
        for account in self._directory.accounts.values():
            if account.inbox.held:
                self._take_up(account, known.get(account.number, {}))

    def _take_up(self, account: Account, known: dict[int, tuple[str, _Part]]) -> None:
        """Take up a member's held deliveries, in their order; the messages of those that are not known are read."""
        entries = list(account.inbox.held_entries())
        self._read([entry for entry in entries if entry.key not in known], known)
        for entry in entries:
            topic_stream, part = known[entry.key]
            stream = (account.number, topic_stream)
            paused = part.name in self._standing and not self._standing[part.name].allowed
            self._append(stream, entry.key, Verdict("", part.name if paused else "", part.due_ms))
            self._recheck.add(stream)

    def _read(self, entries: list[Entry], known: dict[int, tuple[str, _Part]]) -> None:
        """Read what held deliveries may wait for: the end of a pause. When one was due is not kept."""
        for start in range(0, len(entries), _PAGE):
            page = entries[start : start + _PAGE]
            while page:
                found, considered = self._store.messages([entry.offset for entry in page], self._limits.page_bytes_max)
                for entry in page[:considered]:
                    message = found.get(entry.offset)
                    assert message is not None, "retention keeps what is unsettled"
                    stream = stream_name(message.sender, message.content.topic)
                    known[entry.key] = stream, _Part(conversation(message.content, message.sender), 0)
                page = page[considered:]

    # What the broker asks.

    @property
    def any(self) -> bool:
        """Whether any delivery is held."""
        return bool(self._queues)

    def allows(self, content: Content, sender: str, now_ms: int) -> bool:
        """Whether the limits are lifted for what is said."""
        standing = self._standing.get(conversation(content, sender)) if self._standing else None
        return standing is not None and standing.allowed and standing.until_ms > now_ms

    @property
    def any_standing(self) -> bool:
        """Whether any conversation is paused or allowed."""
        return bool(self._standing)

    def verdict(self, name: str, *, agent: bool) -> Verdict | None:
        """Hold what is said in a paused conversation. If nobody paused it by hand, only agents are held."""
        standing = self._standing.get(name)
        if standing is None or standing.allowed or not (agent or standing.by):
            return None
        return Verdict(standing.reason, name)

    def keep(self, post: Post, stream: str, verdict: Verdict | None) -> str:
        """Hold the deliveries of a message that must wait; returns why, if there are any.

        What an external inbox has outside the hub is there for anybody to take, in the order of keys: it is never held.
        """
        reason = ""
        for name, number, key in zip(post.recipients, post.numbers, post.keys, strict=True):
            behind = (number, stream) in self._queues
            if (verdict is None and not behind) or name in self._external_inbox_sessions:
                continue
            reason = verdict.reason if verdict is not None else self._behind((number, stream))
            account = self._directory.accounts[number]
            self._append((number, stream), key, verdict or Verdict(reason))
            post.held.add(number)
            step = Step(State.PENDING, self._batch.now_ms, evidence=reason)
            self._batch.ladder.note(account, account.inbox.hold(key, key), step)
        return reason

    def _behind(self, stream: _Stream) -> str:
        waits = any(part.name in self._standing for part in self._queues[stream])
        return f"{HELD if waits else SLOWED}{_BEHIND}"

    def _append(self, stream: _Stream, key: int, verdict: Verdict) -> None:
        queue = self._queues.setdefault(stream, deque())
        if not queue or (queue[-1].name, queue[-1].due_ms) != (verdict.name, verdict.due_ms) or verdict.due_ms:
            queue.append(_Part(verdict.name, verdict.due_ms))
            if verdict.due_ms:
                heapq.heappush(self._due, (verdict.due_ms, *stream))
        queue[-1].keys.append(key)
        if verdict.name:
            counts = self._waiting.setdefault(verdict.name, {})
            counts[stream] = counts.get(stream, 0) + 1

    # What stewards say.

    def pause(self, name: str, by: str, reason: str = "", judgement: Judgement | None = None) -> None:
        """Hold what is said in a conversation from now on."""
        reason = reason or f"{HELD}{by} paused {name}{REMEDY}delivers it: {command('resume', name)}"
        self._stand(_Standing(name, self._batch.now_ms + self._limits.pause_ms, by, reason))
        self._change()
        self._batch.record(Paused(name, (judgement.cause if judgement else None) or "", by), urgent=bool(by))

    def allow(self, name: str, by: str, until_ms: int) -> None:
        """Lift the limits of a conversation, and let go what is held in it."""
        self.resume(name, by)
        self._stand(_Standing(name, until_ms, by, allowed=True))
        self._change()
        self._batch.record(Allowed(name, by, until_ms))

    def resume(self, name: str, by: str = "") -> None:
        """End a pause; nothing happens if there is none."""
        standing = self._standing.pop(name, None)
        if standing is None:
            return
        self._recheck.update(self._waiting.get(name, ()))
        self._loops.forget(name)
        self._change()
        if not standing.allowed:
            self._batch.record(Resumed(name, by))

    def list(self, now_ms: int) -> tuple[Pause, ...]:
        """Paused and allowed conversations."""
        listed = [
            Pause(
                conversation=each.name,
                until_ms=each.until_ms,
                by=each.by,
                held=sum(self._waiting.get(each.name, {}).values()),
                reason=each.reason,
                allowed=each.allowed,
            )
            for each in self._standing.values()
            if each.until_ms > now_ms
        ]
        return tuple(sorted(listed, key=lambda pause: pause.until_ms))

    def names_of(self, account: Account) -> tuple[str, ...]:
        """Some of the paused conversations that deliveries of a member wait for."""
        names = (
            name for name, streams in self._waiting.items() if any(number == account.number for number, _ in streams)
        )
        return tuple(sorted(islice(names, _NAMES_MAX)))

    def shift(self, step_ms: int) -> None:
        """The clock was set by this much: everything lasts as long as before."""
        self._due = []
        for standing in self._standing.values():
            standing.until_ms += step_ms
            self._stand(standing)
        for stream, queue in self._queues.items():
            for part in queue:
                if part.due_ms:
                    part.due_ms += step_ms
                    heapq.heappush(self._due, (part.due_ms, *stream))
        self._unsaved_ms += step_ms

    def save(self, store: Store) -> None:
        """Write the pauses that changed, once for all changes of a batch: they are one row, however many they are."""
        if self._unsaved or self._unsaved_ms:
            store.save_setting(_SETTING, msgspec.json.encode(list(self._standing.values())))

    def committed(self) -> None:
        """Note that the saved pauses are durable."""
        self._unsaved = False
        self._unsaved_ms = 0

    def _stand(self, standing: _Standing) -> None:
        self._standing[standing.name] = standing
        heapq.heappush(self._due, (standing.until_ms, 0, standing.name))

    def _change(self) -> None:
        """Note that a pause changed. Past their limit, the pauses that end first are let go."""
        self._batch.changed = self._batch.dirty = self._unsaved = True
        while len(self._standing) > self._limits.holds_max:
            first = min(self._standing.values(), key=lambda standing: standing.until_ms)
            del self._standing[first.name]
            self._recheck.update(self._waiting.get(first.name, ()))

    # What is let go.

    def recheck(self, account: Account) -> None:
        """A held delivery of a member has expired, or its member has an external inbox now: look what may go on."""
        self._recheck_members.add(account.number)

    def work(self, most: int) -> bool:
        """Release what is due, though at most so many deliveries; says whether any are left for the next batch.

        After all commands of a batch, so that none of its answers is about what is released.
        """
        if self._recheck_members:
            self._recheck.update(stream for stream in self._queues if stream[0] in self._recheck_members)
            self._recheck_members.clear()
        if self._unsaved_ms:
            self._batch.dirty = True
        # Streams that may go on come before pauses that end: the end of one releases the oldest message behind it.
        left = self._go_on_all(most)
        while left > 0 and self._due and self._due[0][0] <= self._batch.now_ms:
            due_ms, number, name = heapq.heappop(self._due)
            if number:
                self._recheck.add((number, name))
                continue
            standing = self._standing.get(name)
            if standing is not None and standing.until_ms == due_ms:
                self._end(standing)
                left -= 1
        return self._go_on_all(left) <= 0

    def _go_on_all(self, most: int) -> int:
        """Release at most so many deliveries of the streams that may go on; returns how many more it could have."""
        while self._recheck and most > 0:
            stream = self._recheck.pop()
            most -= self._go_on(stream, most)
            if most <= 0:
                self._recheck.add(stream)
        return most

    def _end(self, standing: _Standing) -> None:
        """End a pause. One for hops lets a single delivery pass, and ends when none is left."""
        waiting = self._waiting.get(standing.name, {})
        if standing.by or not waiting:
            self.resume(standing.name)
            return
        accounts = self._directory.accounts
        heads = [stream for stream in waiting if self._queues[stream][0].name == standing.name]
        if heads:
            # The oldest message of the conversation, whoever it is for.
            stream = min(heads, key=lambda head: accounts[head[0]].inbox.offset(self._first(head)) or 0)
            self._release(stream, 1)
            self._recheck.add(stream)
        standing.until_ms = self._batch.now_ms + self._limits.pause_ms
        self._stand(standing)
        self._change()

    def _first(self, stream: _Stream) -> int:
        part = self._queues[stream][0]
        return part.keys[part.start]

    def _go_on(self, stream: _Stream, most: int) -> int:
        """Release what stands first in a stream, as far as it waits for nothing any more; returns how many."""
        account = self._directory.accounts.get(stream[0])
        released = 0
        while released < most and (queue := self._queues.get(stream)) is not None:
            part = queue[0]
            gone = account is None or not account.inbox.is_held(part.keys[part.start])
            paused = self._standing.get(part.name)
            waits = part.due_ms > self._batch.now_ms or (paused is not None and not paused.allowed)
            waits = waits and not (account is not None and account.name in self._external_inbox_sessions)
            if waits and not gone:
                break
            count = 1 if waits else min(len(part.keys) - part.start, most - released)
            self._release(stream, count)
            released += count
        return released

    def _release(self, stream: _Stream, count: int) -> None:
        """Release the first deliveries of a stream. Those that expired meanwhile are passed over."""
        account = self._directory.accounts.get(stream[0])
        queue = self._queues[stream]
        part = queue[0]
        keys = part.keys[part.start : part.start + count]
        part.start += count
        if part.start == len(part.keys):
            queue.popleft()
            if not queue:
                del self._queues[stream]
        if part.name:
            counts = self._waiting[part.name]
            counts[stream] -= count
            if not counts[stream]:
                del counts[stream]
            if not counts:
                del self._waiting[part.name]
        if account is None:
            return
        step = Step(State.PENDING, self._batch.now_ms)
        for key in keys:
            if account.inbox.hold(key, key, held=False):
                self._batch.ladder.note(account, [(key, key)], step, event.Released)
                self._batch.outcome.released.setdefault(account.name, []).append(key)
                self._escalation.expect_released(account.number, key)
                account.changed = self._batch.dirty = self._batch.outcome.urgent = True
