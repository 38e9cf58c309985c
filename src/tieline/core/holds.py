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
from array import array
from collections import deque
from collections.abc import Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from tieline.contract import event
from tieline.contract.delivery import HELD, REMEDY, SLOWED, State, Step
from tieline.contract.event import Allowed, Paused, Resumed
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Content, Kind
from tieline.contract.reply import Pause
from tieline.contract.target import TargetKind
from tieline.core import notices
from tieline.core.directory import Account, Session
from tieline.core.inbox import Entry
from tieline.core.loops import Judgement, conversation
from tieline.core.objectives import thread
from tieline.core.outcome import Post
from tieline.core.store import Store
from tieline.core.streams import stream_name

if TYPE_CHECKING:
    from tieline.core.broker import Broker

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


class Holds:
    """Paused and allowed conversations, and the deliveries that wait."""

    __slots__ = (
        "_due",
        "_queues",
        "_recheck",
        "_recheck_members",
        "_standing",
        "_unsaved",
        "_unsaved_ms",
        "_waiting",
    )

    def __init__(self) -> None:
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

    def restore(self, broker: "Broker", settings: Mapping[str, bytes], before: "Holds") -> None:
        """Take up what the store kept; of deliveries that were held `before` too, what they wait for."""
        self._unsaved_ms = before._unsaved_ms
        for standing in _decoder.decode(settings.get(_SETTING) or b"[]"):
            standing.until_ms += self._unsaved_ms
            self._stand(standing)
        known: dict[int, dict[int, tuple[str, _Part]]] = {}
        for (number, stream), queue in before._queues.items():
            keys = known.setdefault(number, {})
            for part in queue:
                keys.update(dict.fromkeys(part.keys[part.start :], (stream, part)))
        for account in broker.directory.accounts.values():
            if account.inbox.held:
                self._take_up(broker, account, known.get(account.number, {}))

    def _take_up(self, broker: "Broker", account: Account, known: dict[int, tuple[str, _Part]]) -> None:
        """Take up a member's held deliveries, in their order; the messages of those that are not known are read."""
        entries = list(account.inbox.held_entries())
        self._read(broker, [entry for entry in entries if entry.key not in known], known)
        for entry in entries:
            topic_stream, part = known[entry.key]
            stream = (account.number, topic_stream)
            paused = part.name in self._standing and not self._standing[part.name].allowed
            self._append(stream, entry.key, Verdict("", part.name if paused else "", part.due_ms))
            self._recheck.add(stream)

    def _read(self, broker: "Broker", entries: list[Entry], known: dict[int, tuple[str, _Part]]) -> None:
        """Read what held deliveries may wait for: the end of a pause. When one was due is not kept."""
        for start in range(0, len(entries), _PAGE):
            page = entries[start : start + _PAGE]
            while page:
                found, considered = broker.store.messages(
                    [entry.offset for entry in page], broker.limits.page_bytes_max
                )
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

    def decide(
        self, broker: "Broker", session: Session, content: Content, judgement: Judgement, found: Collection[Account]
    ) -> Verdict | None:
        """Say whether a message is to be held, whatever stands before it in its stream."""
        if content.kind is not Kind.CHAT or _kind(session) is MemberKind.HUMAN:
            return None
        if not judgement.hops and not self._standing:
            return None
        name = conversation(content, session.speaker)
        agent = _kind(session) is MemberKind.AGENT
        standing = self._standing.get(name)
        if standing is not None and not standing.allowed and (agent or standing.by):
            return Verdict(standing.reason, name)
        limits = broker.limits
        soft, hard = _limits_of(broker, session, content)
        if judgement.hops > hard:
            setting = "objective_hops_max" if hard == limits.objective_hops_max else "hops_max"
            why = _why(HELD, judgement, name, f"{setting} = {hard}")
            reason = f"{why}{REMEDY}lifts the limit: {notices.command('allow', name)}"
            self.pause(broker, name, "", reason, judgement)
            cause = broker.loops.sender_of(judgement.cause)
            notices.held(broker, name, why, (session.speaker, cause), found)
            broker.outcome.warnings.append(reason)
            return Verdict(reason, name)
        if judgement.hops <= soft:
            return None
        setting = "objective_hops_soft" if soft == limits.objective_hops_soft else "hops_soft"
        why = _why(SLOWED, judgement, name, f"{setting} = {soft}")
        reason = f"{why}{REMEDY}lifts the limit: {notices.command('allow', name)}"
        if broker.loops.is_news(judgement, "slowed"):
            notices.slowed(broker, name, why)
            broker.outcome.warnings.append(reason)
        due_ms = judgement.since_ms + _space_ms(limits, judgement.hops, soft, hard)
        return Verdict(reason, due_ms=due_ms) if due_ms > broker.now_ms else None

    def keep(self, broker: "Broker", post: Post, stream: str, verdict: Verdict | None) -> str:
        """Hold the deliveries of a message that must wait; returns why, if there are any.

        What a custodian has outside the hub is there for anybody to take, in the order of keys: it is never held.
        """
        reason = ""
        for name, number, key in zip(post.recipients, post.numbers, post.keys, strict=True):
            behind = (number, stream) in self._queues
            if (verdict is None and not behind) or name in broker.custodians:
                continue
            reason = verdict.reason if verdict is not None else self._behind((number, stream))
            account = broker.directory.accounts[number]
            self._append((number, stream), key, verdict or Verdict(reason))
            post.held.add(number)
            step = Step(State.PENDING, broker.now_ms, evidence=reason)
            broker.ladder.note(account, account.inbox.hold(key, key), step)
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

    def pause(self, broker: "Broker", name: str, by: str, reason: str = "", judgement: Judgement | None = None) -> None:
        """Hold what is said in a conversation from now on."""
        reason = reason or f"{HELD}{by} paused {name}{REMEDY}delivers it: {notices.command('resume', name)}"
        self._stand(_Standing(name, broker.now_ms + broker.limits.pause_ms, by, reason))
        self._change(broker)
        broker.record(Paused(name, (judgement.cause if judgement else None) or "", by), urgent=bool(by))

    def allow(self, broker: "Broker", name: str, by: str, until_ms: int) -> None:
        """Lift the limits of a conversation, and let go what is held in it."""
        self.resume(broker, name, by)
        self._stand(_Standing(name, until_ms, by, allowed=True))
        self._change(broker)
        broker.record(Allowed(name, by, until_ms))

    def resume(self, broker: "Broker", name: str, by: str = "") -> None:
        """End a pause; nothing happens if there is none."""
        standing = self._standing.pop(name, None)
        if standing is None:
            return
        self._recheck.update(self._waiting.get(name, ()))
        broker.loops.forget(name)
        self._change(broker)
        if not standing.allowed:
            broker.record(Resumed(name, by))

    def list(self, now_ms: int) -> tuple[Pause, ...]:
        """Paused and allowed conversations."""
        listed = [
            Pause(
                each.name,
                each.until_ms,
                each.by,
                sum(self._waiting.get(each.name, {}).values()),
                each.reason,
                each.allowed,
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

    def _change(self, broker: "Broker") -> None:
        """Note that a pause changed. Past their limit, the pauses that end first are let go."""
        broker.changed = broker.dirty = self._unsaved = True
        while len(self._standing) > broker.limits.holds_max:
            first = min(self._standing.values(), key=lambda standing: standing.until_ms)
            del self._standing[first.name]
            self._recheck.update(self._waiting.get(first.name, ()))

    # What is let go.

    def recheck(self, account: Account) -> None:
        """A held delivery of a member has expired, or its member has a custodian now: look what may go on."""
        self._recheck_members.add(account.number)

    def work(self, broker: "Broker", most: int) -> bool:
        """Release what is due, though at most so many deliveries; says whether any are left for the next batch.

        After all commands of a batch, so that none of its answers is about what is released.
        """
        if self._recheck_members:
            self._recheck.update(stream for stream in self._queues if stream[0] in self._recheck_members)
            self._recheck_members.clear()
        if self._unsaved_ms:
            broker.dirty = True
        # Streams that may go on come before pauses that end: the end of one releases the oldest message behind it.
        left = self._go_on_all(broker, most)
        while left > 0 and self._due and self._due[0][0] <= broker.now_ms:
            due_ms, number, name = heapq.heappop(self._due)
            if number:
                self._recheck.add((number, name))
                continue
            standing = self._standing.get(name)
            if standing is not None and standing.until_ms == due_ms:
                self._end(broker, standing)
                left -= 1
        return self._go_on_all(broker, left) <= 0

    def _go_on_all(self, broker: "Broker", most: int) -> int:
        """Release at most so many deliveries of the streams that may go on; returns how many more it could have."""
        while self._recheck and most > 0:
            stream = self._recheck.pop()
            most -= self._go_on(broker, stream, most)
            if most <= 0:
                self._recheck.add(stream)
        return most

    def _end(self, broker: "Broker", standing: _Standing) -> None:
        """End a pause. One for hops lets a single delivery pass, and ends when none is left."""
        waiting = self._waiting.get(standing.name, {})
        if standing.by or not waiting:
            self.resume(broker, standing.name)
            return
        accounts = broker.directory.accounts
        heads = [stream for stream in waiting if self._queues[stream][0].name == standing.name]
        if heads:
            # The oldest message of the conversation, whoever it is for.
            stream = min(heads, key=lambda head: accounts[head[0]].inbox.offset(self._first(head)) or 0)
            self._release(broker, stream, 1)
            self._recheck.add(stream)
        standing.until_ms = broker.now_ms + broker.limits.pause_ms
        self._stand(standing)
        self._change(broker)

    def _first(self, stream: _Stream) -> int:
        part = self._queues[stream][0]
        return part.keys[part.start]

    def _go_on(self, broker: "Broker", stream: _Stream, most: int) -> int:
        """Release what stands first in a stream, as far as it waits for nothing any more; returns how many."""
        account = broker.directory.accounts.get(stream[0])
        released = 0
        while released < most and (queue := self._queues.get(stream)) is not None:
            part = queue[0]
            gone = account is None or not account.inbox.is_held(part.keys[part.start])
            paused = self._standing.get(part.name)
            waits = part.due_ms > broker.now_ms or (paused is not None and not paused.allowed)
            waits = waits and not (account is not None and account.name in broker.custodians)
            if waits and not gone:
                break
            count = 1 if waits else min(len(part.keys) - part.start, most - released)
            self._release(broker, stream, count)
            released += count
        return released

    def _release(self, broker: "Broker", stream: _Stream, count: int) -> None:
        """Release the first deliveries of a stream. Those that expired meanwhile are passed over."""
        account = broker.directory.accounts.get(stream[0])
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
        step = Step(State.PENDING, broker.now_ms)
        for key in keys:
            if account.inbox.hold(key, key, held=False):
                broker.ladder.note(account, [(key, key)], step, event.Released)
                broker.outcome.released.setdefault(account.name, []).append(key)
                broker.escalation.expect_released(account.number, key, broker.now_ms)
                account.changed = broker.dirty = broker.outcome.urgent = True


def _kind(session: Session) -> MemberKind | None:
    return session.account.member.kind if session.account is not None else None


def _limits_of(broker: "Broker", session: Session, content: Content) -> tuple[int, int]:
    """The hops that a message may have before its chain is slowed, and before it is held."""
    limits = broker.limits
    place = str(content.target) if content.target.kind is TargetKind.OBJECTIVE else content.thread or ""
    account = session.account
    # Anybody can name an objective; its limits are for those whose work it is, while it is.
    if place.startswith("obj:") and account is not None:
        row = broker.objectives.find_open(place.removeprefix("obj:"))
        if row is not None and account.number in thread(row, broker.directory):
            return limits.objective_hops_soft, limits.objective_hops_max
    return limits.hops_soft, limits.hops_max


def _space_ms(limits: Limits, hops: int, soft: int, hard: int) -> int:
    """How long after its cause the delivery of a slowed message comes."""
    more_ms = limits.space_ms_max - limits.space_ms_min
    return limits.space_ms_min + more_ms * (hops - soft - 1) // max(1, hard - soft - 1)


def _why(what: str, judgement: Judgement, name: str, setting: str) -> str:
    return f"{what}agents answered each other {judgement.hops} times in a row, up to {name}, past {setting}"
