"""The loop rule: agents that answer each other without end are stopped, and nobody else is.

A message's cause is what it explicitly replies to, if somebody else said that and it is remembered; else the last
message that was offered to its sender in the same thread; else the last that was offered to it from the same target.
Only a cause within the reply window counts, because a quick answer looks automatic: such a message has one hop more
than its cause, any other starts at zero, and so does everything that a human says. Past the limit the send is refused,
and the conversation in which the chain ran is paused for a while, no other.

Agents that pass a message on in a ring (A to B, B to C, C to A) answer nobody, so none of this sees them. For a message
without such a cause, the last that was offered to its sender from anywhere is a guess: it may have led to this one or
not. A guess alone counts nothing, because work that is handed out and reported on looks just like it. It counts when
the chain comes round: among the messages that led here, a few steps back, the same sender wrote to the same target.
Each round adds its steps; a round that is missing starts the count at zero.

What was never offered to the sender cannot have caused anything, so members that only send are never stopped; and those
without an identity are offered nothing. The state is a bounded memory of recent messages; it is not durable, because a
restart outlasts the window.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from tieline.contract.identifiers import MessageId
from tieline.contract.limits import Limits
from tieline.contract.message import Content, Kind
from tieline.contract.refusal import Code, Refusal

_PAUSED_MAX = 10_000
"""Pauses at the same time; past it the ones that end first are lifted."""

_PAIR = 2
_NAME_CHARACTERS_MAX = 1000
"""Far more than a thread or a channel has; what is paused is kept in memory."""

_RING_MAX = 16
"""Members of a ring that is noticed: looking further back would take long, and find more that is chance."""


class Trace(Struct, frozen=True, gc=False):
    """What the rule remembers of a message."""

    id: MessageId
    offset: int
    sender: str
    hops: int
    at_ms: int
    target: str
    thread: str | None
    parent: MessageId | None
    """What led to it, surely or by a guess."""

    @property
    def place(self) -> str:
        """Where a recipient would answer: the sender, or the channel."""
        return f"@{self.sender}" if self.target.startswith("@") else self.target

    @property
    def conversation(self) -> str:
        """What is paused when the chain that it belongs to loops."""
        return _conversation(self.thread, self.target, self.sender)


class Judgement(Struct, frozen=True, gc=False):
    """What the rule says of a new message."""

    hops: int
    cause: MessageId | None
    parent: MessageId | None = None
    """What led to it, surely or by a guess, unless a human says it."""


class Loop(Struct, frozen=True):
    """A message that is refused because its chain is too long."""

    refusal: Refusal
    conversation: str
    """To be paused."""
    last: str
    """Who said what led to it."""


_INNOCENT = Judgement(0, None)
_Key = TypeVar("_Key", bound=Hashable)


def conversation(content: Content, sender: str) -> str:
    """The conversation that a message belongs to."""
    return _conversation(content.thread, str(content.target), sender)


def find_conversation(name: str) -> str | Refusal:
    """A conversation as somebody names it; of two members either may come first."""
    parts = name.split("+")
    if len(parts) == _PAIR and all(part.startswith("@") and len(part) > 1 for part in parts):
        return "+".join(sorted(parts))
    if len(name) <= _NAME_CHARACTERS_MAX and (name == "*" or name.startswith(("#", "obj:", "thread:"))):
        return name
    text = "a conversation is thread:ID, #channel, obj:ID, * for everybody, or @one+@other"
    return Refusal(Code.INVALID_REQUEST, text)


def _conversation(thread: str | None, target: str, sender: str) -> str:
    if thread:
        return f"thread:{thread}"
    if target.startswith("@"):
        one, other = sorted((f"@{sender}", target))
        return f"{one}+{other}"
    return target


class _Memory(Generic[_Key]):
    """The most recent traces by key, in two generations: when the younger is full, the older is forgotten at once.

    Forgetting one at a time would be finer, but a dictionary that loses its first key again and again slows down.
    """

    __slots__ = ("_generation_max", "_old", "_young")

    def __init__(self, size_max: int) -> None:
        self._generation_max = max(1, size_max // 2)
        self._young: dict[_Key, Trace] = {}
        self._old: dict[_Key, Trace] = {}

    def get(self, key: _Key) -> Trace | None:
        return self._young.get(key) or self._old.get(key)

    def put(self, key: _Key, trace: Trace) -> None:
        young = self._young
        young[key] = trace
        if len(young) >= self._generation_max:
            self._old, self._young = young, {}

    def pop(self, key: _Key) -> Trace | None:
        young, old = self._young.pop(key, None), self._old.pop(key, None)
        return young or old

    def items(self) -> Iterator[tuple[_Key, Trace]]:
        return iter({**self._old, **self._young}.items())


class Loops:
    """Recent messages, what was offered to whom, and which conversations are paused."""

    __slots__ = ("_by_id", "_by_offset", "_latest", "_limits", "_offered", "_paused", "_rings")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_id: _Memory[str] = _Memory(limits.loop_memory_max)
        self._by_offset: _Memory[int] = _Memory(limits.loop_memory_max)
        # The last message that was offered to a member in a thread or from a place.
        self._offered: _Memory[tuple[str, str]] = _Memory(limits.loop_memory_max)
        # The last message that was offered to a member from anywhere.
        self._latest: dict[str, Trace] = {}
        # Conversation to the time when its pause ends, in the order of those times.
        self._paused: dict[str, int] = {}
        # The last message of the chain that came round in a paused conversation.
        self._rings: dict[str, MessageId] = {}

    def judge(self, content: Content, sender: str, now_ms: int, *, human: bool) -> Judgement | Refusal | Loop:
        """Decide on a message before it is accepted."""
        if content.kind is not Kind.CHAT:
            return _INNOCENT
        if self._paused and not human:
            refusal = self._check_pause(conversation(content, sender), now_ms)
            if refusal is not None:
                return refusal
        cause = self._cause(content, sender)
        window_ms = self._limits.reply_window_ms
        if cause is None or now_ms - cause.at_ms > window_ms:
            known = content.reply_to if cause is None else cause.id
            guess = None if human else self._latest.get(sender)
            if guess is None or now_ms - guess.at_ms > window_ms:
                return _INNOCENT if known is None else Judgement(0, known)
            return self._judge_guess(content, sender, known, guess)
        if human:
            return Judgement(0, cause.id)
        hops = cause.hops + 1
        if hops <= self._limits.hops_max:
            return Judgement(hops, cause.id, cause.id)
        text = f"{hops} quick replies in a row in {cause.conversation}: it is paused; wait, or ask a human to resume it"
        return Loop(Refusal(Code.LOOP_DETECTED, text), cause.conversation, cause.sender)

    def _judge_guess(self, content: Content, sender: str, known: MessageId | None, guess: Trace) -> Judgement | Loop:
        """Decide on a message that may or may not pass on what its sender was offered last."""
        round_before, steps = self._round_before(sender, str(content.target), guess)
        if round_before is None:
            return Judgement(0, known, guess.id)
        hops = round_before.hops + steps
        if hops <= self._limits.hops_max:
            return Judgement(hops, guess.id, guess.id)
        name = conversation(content, sender)
        self._rings[name] = guess.id
        text = f"a message came round again and again, {hops} steps in all: {name} is paused; wait, or ask a human"
        return Loop(Refusal(Code.LOOP_DETECTED, f"{text} to resume it"), name, guess.sender)

    def _round_before(self, sender: str, target: str, last: Trace) -> tuple[Trace | None, int]:
        """The message of this sender to this target in the chain that ends with `last`, and how many steps back."""
        trace: Trace | None = last
        for steps in range(1, _RING_MAX + 1):
            if trace is None or (trace.sender == sender and trace.target == target):
                return trace, steps
            trace = None if trace.parent is None else self._by_id.get(trace.parent)
        return None, 0

    def _check_pause(self, name: str, now_ms: int) -> Refusal | None:
        until_ms = self._paused.get(name)
        if until_ms is None:
            return None
        if now_ms >= until_ms:
            del self._paused[name]
            self._rings.pop(name, None)
            return None
        seconds = (until_ms - now_ms + 999) // 1000
        text = f"{name} is paused; it resumes in {seconds} s or by 'tieline resume'"
        return Refusal(Code.THREAD_PAUSED, text)

    def _cause(self, content: Content, sender: str) -> Trace | None:
        if content.reply_to is not None:
            named = self._by_id.get(content.reply_to)
            if named is not None and named.sender != sender:
                return named
        if content.thread:
            last = self._offered.get((sender, f"thread:{content.thread}"))
            if last is not None:
                return last
        return self._offered.get((sender, str(content.target)))

    def note(
        self, message_id: MessageId, offset: int, content: Content, sender: str, judgement: Judgement, at_ms: int
    ) -> None:
        """Remember an accepted message."""
        if content.kind is not Kind.CHAT:
            return
        target, hops, parent = str(content.target), judgement.hops, judgement.parent
        trace = Trace(message_id, offset, sender, hops, at_ms, target, content.thread, parent)
        self._by_id.put(message_id, trace)
        self._by_offset.put(offset, trace)

    def offered(self, recipient: str, offset: int) -> None:
        """A remembered message reached a session of a member."""
        trace = self._by_offset.get(offset)
        if trace is None or trace.sender == recipient:
            return
        self._latest[recipient] = trace
        if len(self._latest) > self._limits.loop_memory_max:
            self._latest.clear()
        self._offer((recipient, trace.place), trace)
        if trace.thread:
            self._offer((recipient, f"thread:{trace.thread}"), trace)

    def _offer(self, key: tuple[str, str], trace: Trace) -> None:
        known = self._offered.get(key)
        if known is None or known.offset < trace.offset:
            self._offered.put(key, trace)

    def offset_of(self, message_id: MessageId) -> int | None:
        """Where a remembered message stands in the log."""
        trace = self._by_id.get(message_id)
        return trace.offset if trace is not None else None

    def forget(self, offsets: range) -> None:
        """Messages at these log offsets were taken back: others will stand there."""
        for offset in offsets:
            trace = self._by_offset.pop(offset)
            if trace is not None:
                self._by_id.pop(trace.id)

    def pause(self, name: str, now_ms: int) -> Callable[[], object]:
        """Pause a conversation; returns what takes that back."""
        before = self._paused.pop(name, None)
        self._paused[name] = now_ms + self._limits.pause_ms
        if len(self._paused) > _PAUSED_MAX:
            first = next(iter(self._paused))
            del self._paused[first]
            self._rings.pop(first, None)
        return lambda: self._paused.pop(name, None) if before is None else self._paused.update({name: before})

    def shift(self, step_ms: int) -> None:
        """The clock was set by this much: pauses last as long as before."""
        self._paused = {name: until_ms + step_ms for name, until_ms in self._paused.items()}

    def pauses(self, now_ms: int) -> tuple[tuple[str, int], ...]:
        """Paused conversations with the ends of their pauses."""
        return tuple((name, until_ms) for name, until_ms in self._paused.items() if until_ms > now_ms)

    def resume(self, name: str) -> bool:
        """End a pause; says whether there was one. Its memory is cleared, so that the chain starts anew."""
        for key, trace in self._offered.items():
            if trace.conversation == name:
                self._offered.pop(key)
                self._by_id.pop(trace.id)
                self._by_offset.pop(trace.offset)
        last = self._rings.pop(name, None)
        for _ in range(_RING_MAX):
            if last is None:
                break
            cut = self._by_id.pop(last)
            last = cut.parent if cut is not None else None
        return self._paused.pop(name, None) is not None
