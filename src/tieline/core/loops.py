"""The loop rule: agents that answer each other without end are stopped, and nobody else is.

A message's cause is what it explicitly replies to, if that is remembered; else the last message of its thread by
somebody else; else the last message that its target sent it. Only a cause within the reply window counts, because a
quick answer looks automatic: such a message has one hop more than its cause, any other starts at zero, and so does
everything a human says. Past the limit the send is refused and that conversation alone is paused for a while.

The state is a bounded memory of recent messages, one entry a conversation; it is not durable, because a restart
outlasts the window.
"""

from collections.abc import Iterator

from msgspec import Struct

from tieline.contract.identifiers import MessageId
from tieline.contract.limits import Limits
from tieline.contract.message import Content, Kind
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import TargetKind


class Trace(Struct, frozen=True, gc=False):
    """What the rule remembers of a message."""

    id: MessageId
    sender: str
    hops: int
    at_ms: int


class Judgement(Struct, frozen=True):
    """What the rule says of a new message."""

    hops: int
    cause: MessageId | None


_INNOCENT = Judgement(0, None)


def conversation(content: Content, sender: str) -> str:
    """The conversation that a message belongs to: what is paused when it loops."""
    if content.thread:
        return f"thread:{content.thread}"
    target = content.target
    if target.kind is TargetKind.MEMBER:
        one, other = sorted((sender, target.name))
        return f"@{one}+@{other}"
    return str(target)


class _Memory:
    """The most recent traces by key, in two generations: when the younger is full, the older is forgotten at once.

    Forgetting one at a time would be finer, but a dictionary that loses its first key again and again slows down.
    """

    __slots__ = ("_generation_max", "_old", "_young")

    def __init__(self, size_max: int) -> None:
        self._generation_max = max(1, size_max // 2)
        self._young: dict[str, Trace] = {}
        self._old: dict[str, Trace] = {}

    def get(self, key: str) -> Trace | None:
        return self._young.get(key) or self._old.get(key)

    def put(self, key: str, trace: Trace) -> None:
        self._young[key] = trace
        if len(self._young) >= self._generation_max:
            self._old, self._young = self._young, {}

    def pop(self, key: str) -> Trace | None:
        young, old = self._young.pop(key, None), self._old.pop(key, None)
        return young or old

    def __iter__(self) -> Iterator[str]:
        return iter({**self._old, **self._young})


class Loops:
    """Recent messages by conversation, and which conversations are paused."""

    __slots__ = ("_by_id", "_last", "_last_other", "_limits", "_paused")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # The last message of each conversation; of two-party ones, the last in each direction.
        self._last = _Memory(limits.loop_memory_max)
        # The last message of each conversation that is not by the sender of the last one.
        self._last_other = _Memory(limits.loop_memory_max)
        # The same memory by message id, for explicit replies.
        self._by_id = _Memory(limits.loop_memory_max)
        # Conversation to the time when its pause ends.
        self._paused: dict[str, int] = {}

    def judge(self, content: Content, sender: str, now_ms: int, *, human: bool) -> Judgement | Refusal:
        """Decide on a message before it is accepted."""
        if content.kind is not Kind.CHAT:
            return _INNOCENT
        if self._paused and not human:
            name = conversation(content, sender)
            until_ms = self._paused.get(name)
            if until_ms is not None and now_ms < until_ms:
                return Refusal(
                    Code.THREAD_PAUSED,
                    f"{name} is paused because agents looped in it; it resumes by command or in "
                    f"{(until_ms - now_ms + 999) // 1000} s",
                )
            self._paused.pop(name, None)
        cause = self._cause(content, sender)
        if cause is None:
            return Judgement(0, content.reply_to)
        if human or now_ms - cause.at_ms > self._limits.reply_window_ms:
            return Judgement(0, cause.id)
        hops = cause.hops + 1
        if hops <= self._limits.hops_max:
            return Judgement(hops, cause.id)
        return Refusal(
            Code.LOOP_DETECTED,
            f"{hops} quick replies in a row in {conversation(content, sender)}: the conversation is paused; "
            f"wait, or ask a human to resume it",
        )

    def _cause(self, content: Content, sender: str) -> Trace | None:
        if content.reply_to is not None:
            named = self._by_id.get(content.reply_to)
            if named is not None:
                return named
        if content.thread:
            last = self._last_by_others(f"thread:{content.thread}", sender)
            if last is not None:
                return last
        target = content.target
        if target.kind is TargetKind.MEMBER:
            return self._last.get(f"@{target.name}>@{sender}")
        return self._last_by_others(str(target), sender)

    def _last_by_others(self, key: str, sender: str) -> Trace | None:
        last = self._last.get(key)
        return last if last is None or last.sender != sender else self._last_other.get(key)

    def note(self, message_id: MessageId, content: Content, sender: str, hops: int, at_ms: int) -> None:
        """Remember an accepted message."""
        if content.kind is not Kind.CHAT:
            return
        trace = Trace(message_id, sender, hops, at_ms)
        self._by_id.put(message_id, trace)
        if content.thread:
            self._remember_shared(f"thread:{content.thread}", trace)
        target = content.target
        if target.kind is TargetKind.MEMBER:
            self._last.put(f"@{sender}>@{target.name}", trace)
        else:
            self._remember_shared(str(target), trace)

    def _remember_shared(self, key: str, trace: Trace) -> None:
        last = self._last.get(key)
        if last is not None and last.sender != trace.sender:
            self._last_other.put(key, last)
        self._last.put(key, trace)

    def pause(self, name: str, now_ms: int) -> None:
        """Pause a conversation."""
        self._paused[name] = now_ms + self._limits.pause_ms

    def resume(self, name: str) -> bool:
        """End a pause; says whether there was one. Its memory is cleared, so that the chain starts anew."""
        for key in [key for key in self._last if key == name or _belongs(key, name)]:
            for memory in (self._last, self._last_other):
                trace = memory.pop(key)
                if trace is not None:
                    self._by_id.pop(trace.id)
        return self._paused.pop(name, None) is not None


def _belongs(direction: str, name: str) -> bool:
    one, separator, other = direction.partition(">")
    return bool(separator) and "+".join(sorted((one, other))) == name
