"""The loop rule: counts how often agents have answered each other in a row.

The *hops* of a message are the number of answers of agents, one caused by the other, that led to it. Above a soft limit
the hub slows the messages of such a chain, and above a hard limit it holds them (`core.holds`). The loop rule never
refuses or drops a message.

**Cause.** The rule looks for the message that caused a new message. The sender must have received that message, and
must have seen, claimed or acknowledged it. Each received message causes at most one new message. If the new message is
an explicit reply, its cause is the message that it names, even without an acknowledgement. On a wire without
acknowledgement, only explicit replies have a cause. Without an explicit reply, a new message answers all messages that
came from its target since the sender last wrote there. If some of them are in the same thread, it answers only these.
If several members wrote, for example in a channel, the rule continues the shortest of their chains, so that ten reports
to one request count as one hop and not as ten. The rule prefers chains that have hops, because otherwise any message
from a bystander would set the count of a loop back to zero.

**Count.** Only answers of agents count. A message of a person or a script has no hops. Only answers at the speed of
agents count: from `hop_ms_min` to `reply_window_ms` after the cause reached the sender. Programs answer sooner.

**Rings.** Agents that pass messages on (A to B, B to C, C to A) do not answer each other. So the rule makes a guess for
a message without a cause, if the target has not written to the sender lately. The guess is that the cause is the last
message that the sender read, in the same thread or in any thread. A guess alone adds no hops, because delegated work
looks the same. The guess counts if the messages form a ring: a few steps back, through guesses and explicit replies
only, the same sender wrote to the same target. Each round adds its number of steps.

The rule remembers only a limited number of recent messages. This memory is lost at a restart.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from tieline.contract.identifiers import MessageId
from tieline.contract.limits import Limits
from tieline.contract.message import Content, Kind
from tieline.contract.refusal import Code, Refusal

_PAIR = 2
_NAME_CHARACTERS_MAX = 1000
"""Maximum length of a conversation name. Names of paused conversations are kept in memory. Real names are far
shorter."""

_RING_MAX = 16
"""Largest number of steps in a ring of messages (A to B, B to C, C to A) for which the rule searches.

A search for longer rings would be slow, and would find more rings by chance.
"""

_UNANSWERED_MAX = 32
"""Largest number of unanswered messages from one source (a member or a channel) that are remembered for a member.

A member with more unanswered messages does not answer each of them.
"""


class RecentMessage(Struct, frozen=True, gc=False):
    """A recent message, with the fields that the loop rule needs: its sender, target, hops and cause.

    The hops are the number of answers of agents, one caused by the other, that led to the message.
    """

    id: MessageId
    offset: int
    sender: str
    hops: int
    at_ms: int
    target: str
    thread: str | None
    chain: MessageId
    """The first message of the chain of answers that this message belongs to."""
    parent: MessageId | None
    """The message that caused this one. The cause may be a guess."""
    answers: bool
    """True if the message was sent to the source of its cause. Then it is part of a dialogue. It is not part of a ring
    (A to B, B to C, C to A)."""

    @property
    def source(self) -> str:
        """The target that an answer to this message has: the sender of this message, or its channel."""
        return f"@{self.sender}" if self.target.startswith("@") else self.target

    @property
    def conversation(self) -> str:
        """The name of the conversation of this message."""
        return _conversation(self.thread, self.target, self.sender)


class _Heard:
    """Record that a message reached a member: the time, and if the member has read and answered the message."""

    __slots__ = ("answered", "at_ms", "message", "seen")

    def __init__(self, message: RecentMessage, at_ms: int) -> None:
        self.message = message
        # Time of the first offer to the member.
        self.at_ms = at_ms
        # True if there is evidence that the member read the message.
        self.seen = False
        # True if the message has caused a message of the member.
        self.answered = False


class _Source:
    """The messages from one source (a member or a channel) that a member has read and not answered.

    The next message of the member to this source answers all of them.
    """

    __slots__ = ("heard", "last_ms")

    def __init__(self) -> None:
        self.heard: list[_Heard] = []
        # Time when the member read the newest message.
        self.last_ms = 0

    def unanswered(self) -> list[_Heard]:
        return [heard for heard in self.heard if not heard.answered]


class Judgement(Struct, frozen=True, gc=False):
    """Result of the loop rule for a new message: the message that caused it, and its hops.

    The hops are the number of answers of agents, one caused by the other, that led to the message.
    """

    hops: int
    cause: MessageId | None
    parent: MessageId | None = None
    """The cause, which may be a guess. `None` if the message does not continue a chain."""
    chain: MessageId | None = None
    """The first message of the chain. `None` if the chain begins with this message."""
    since_ms: int = 0
    """Time at which the cause reached the sender; 0 if the message has no hops."""
    answers: bool = False
    """True if the message is sent to the source of its cause."""


INNOCENT = Judgement(0, None)
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


def conversation(content: Content, sender: str) -> str:
    """Return the name of the conversation that a message belongs to, such as `thread:ID`, `#channel` or `@a+@b`."""
    return _conversation(content.thread, str(content.target), sender)


def find_conversation(name: str) -> str | Refusal:
    """Check the name of a conversation, such as `#channel` or `@b+@a`, and return it, or a refusal if it is invalid.

    A pair of members is sorted: `@b+@a` becomes `@a+@b`.
    """
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


class _Memory(Generic[_Key, _Value]):
    """A cache of recent values in two dictionaries, young and old. When the young one is full, it replaces the old one.

    It does not remove the oldest key alone, because a dictionary becomes slow if its first key is removed often.
    """

    __slots__ = ("_generation_max", "_old", "_young")

    def __init__(self, size_max: int) -> None:
        self._generation_max = max(1, size_max // 2)
        self._young: dict[_Key, _Value] = {}
        self._old: dict[_Key, _Value] = {}

    def get(self, key: _Key) -> _Value | None:
        young = self._young.get(key)
        return young if young is not None else self._old.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        young = self._young
        young[key] = value
        if len(young) >= self._generation_max:
            self._old, self._young = young, {}

    def values(self) -> Iterable[_Value]:
        return [*self._old.values(), *self._young.values()]

    def forget(self, keys: Iterable[_Key]) -> None:
        for key in keys:
            self._young.pop(key, None)
            self._old.pop(key, None)


class Loops:
    """Memory of the loop rule, which limits answers between agents.

    It has recent messages, and the messages that each member has read and not answered yet.
    """

    __slots__ = ("_by_id", "_by_offset", "_heard", "_latest", "_limits", "_sources", "_told", "_undo")

    def __init__(self, limits: Limits, undo: list[Callable[[], object]]) -> None:
        """Create an empty memory. Methods add functions to `undo` that take back their changes, if a batch fails."""
        self._limits = limits
        self._undo = undo
        size = limits.loop_memory_max
        self._by_id: _Memory[str, RecentMessage] = _Memory(size)
        self._by_offset: _Memory[int, RecentMessage] = _Memory(size)
        # Messages that reached a member, by recipient and log offset.
        self._heard: _Memory[tuple[str, int], _Heard] = _Memory(size)
        # Unanswered messages, by recipient and source.
        self._sources: _Memory[tuple[str, str], _Source] = _Memory(size)
        # The last message that each member read, by member and thread. The thread `None` stands for any thread.
        self._latest: _Memory[tuple[str, str | None], _Heard] = _Memory(size)
        # Chains about which people got a hub message, with its kind.
        self._told: _Memory[tuple[MessageId, str], bool] = _Memory(size)

    # Judging new messages.

    def judge(self, content: Content, sender: str, now_ms: int, *, counts: bool) -> Judgement:
        """Return the cause and the hops of a message, before the message is accepted.

        The cause is the earlier message that it answers. The hops are the number of answers of agents that led to it.
        If `counts` is false, the hops are zero. The caller sets it to false if the sender is no agent, or if the limits
        of the conversation are lifted.
        """
        if content.kind is not Kind.CHAT:
            return INNOCENT
        target = str(content.target)
        causes = self._take_causes(content, target, sender)
        if causes:
            best = self._best([heard for heard in causes if self._in_pace(heard, now_ms)])
            cause = (best or causes[-1]).message
            answers = target == cause.source
            if best is None or not counts:
                return Judgement(0, cause.id, answers=answers)
            return Judgement(cause.hops + 1, cause.id, cause.id, cause.chain, best.at_ms, answers)
        known = None if content.reply_to is None else Judgement(0, content.reply_to)
        guess = self._latest.get((sender, content.thread)) if counts else None
        if guess is None and counts and content.thread is not None:
            guess = self._latest.get((sender, None))
        if guess is None or not self._in_pace(guess, now_ms):
            return known or INNOCENT
        source = self._sources.get((sender, target))
        if source is not None and now_ms - source.last_ms <= self._limits.reply_window_ms:
            # The target wrote to the sender lately. So this is a dialogue, and the sender does not pass a message on.
            return known or INNOCENT
        return self._judge_guess(content, target, sender, guess)

    def _judge_guess(self, content: Content, target: str, sender: str, guess: _Heard) -> Judgement:
        """Return the result of the loop rule for a message that may be caused by `guess`.

        `guess` is the last message that the sender read. The message has hops (counts as an answer) only if the
        messages form a ring, such as A to B, B to C, C to A.
        """
        last = guess.message
        before, steps = self._round_before(sender, target, last)
        if before is None or guess.answered:
            return Judgement(0, content.reply_to, last.id)
        self._answer([guess])
        chain = last.chain if last.hops else before.chain
        return Judgement(before.hops + steps, last.id, last.id, chain, guess.at_ms)

    def _round_before(self, sender: str, target: str, last: RecentMessage) -> tuple[RecentMessage | None, int]:
        """Search back from `last`, from cause to cause, for a message of this sender to this target.

        If there is such a message a few steps back, the messages form a ring (A to B, B to C, C to A). Then return this
        message and the number of steps. Otherwise return `None` and 0.
        """
        recent: RecentMessage | None = last
        for steps in range(1, _RING_MAX + 1):
            if recent is None or recent.answers:
                return None, 0
            if recent.sender == sender and recent.target == target:
                return recent, steps
            recent = None if recent.parent is None else self._by_id.get(recent.parent)
        return None, 0

    def _take_causes(self, content: Content, target: str, sender: str) -> Sequence[_Heard]:
        """Return the messages that a new message answers, and mark them as answered."""
        if content.reply_to is not None:
            named = self._take_named(content.reply_to, sender)
            if named is not None:
                return [named]
        source = self._sources.get((sender, target))
        if source is None or not source.heard:
            return ()
        found = source.unanswered()
        # Objectives have their own limits, so a message of an objective is answered only in its thread.
        elsewhere = [heard for heard in found if not (heard.message.thread or "").startswith("obj:")]
        found = [heard for heard in found if heard.message.thread == content.thread] or elsewhere
        self._answer(found, source)
        return found

    def _answer(self, found: list[_Heard], source: _Source | None = None) -> None:
        """Mark these messages as answered, and remove them from the unanswered messages of `source`."""
        for heard in found:
            heard.answered = True
        if source is not None:
            source.heard = source.unanswered()
        self._undo.append(partial(_ask_again, found, source))

    def _take_named(self, message_id: MessageId, sender: str) -> _Heard | None:
        """Return the message that a reply names, and mark it as answered.

        Return `None` if that message is not remembered, has the same sender, or was answered before.
        """
        recent = self._by_id.get(message_id)
        if recent is None or recent.sender == sender:
            return None
        heard = self._heard.get((sender, recent.offset))
        if heard is None:
            heard = _Heard(recent, recent.at_ms)
            self._heard.put((sender, recent.offset), heard)
        if heard.answered:
            return None
        self._answer([heard])
        return heard

    def _in_pace(self, heard: _Heard, now_ms: int) -> bool:
        return self._limits.hop_ms_min <= now_ms - heard.at_ms <= self._limits.reply_window_ms

    def _best(self, causes: list[_Heard]) -> _Heard | None:
        """Return the cause whose chain of answers the new message continues; `None` if there are no causes.

        Take the longest chain of each sender. Of these chains, choose the shortest that has hops (counted answers), or
        any if none has hops.
        """
        longest: dict[str, _Heard] = {}
        for heard in causes:
            other = longest.get(heard.message.sender)
            if other is None or heard.message.hops >= other.message.hops:
                longest[heard.message.sender] = heard
        chains = list(longest.values())
        return min([heard for heard in chains if heard.message.hops] or chains, key=_hops_of, default=None)

    # Noting events.

    def note(
        self, message_id: MessageId, offset: int, content: Content, sender: str, judgement: Judgement, at_ms: int
    ) -> None:
        """Remember an accepted message, with the cause and the number of hops in `judgement`.

        The hops are the number of answers that led to the message.
        """
        if content.kind is not Kind.CHAT:
            return
        target, hops = str(content.target), judgement.hops
        chain = (judgement.chain if hops else None) or message_id
        parent, answers = judgement.parent, judgement.answers
        recent = RecentMessage(message_id, offset, sender, hops, at_ms, target, content.thread, chain, parent, answers)
        self._by_id.put(message_id, recent)
        self._by_offset.put(offset, recent)

    def reached(self, recipient: str, offset: int, now_ms: int, *, seen: bool) -> None:
        """Remember that the message at this log offset was offered to a member. With `seen`, the member has read it."""
        recent = self._by_offset.get(offset)
        if recent is None or recent.sender == recipient:
            return
        heard = self._heard.get((recipient, offset))
        if heard is None:
            heard = _Heard(recent, now_ms)
            self._heard.put((recipient, offset), heard)
        if not seen or heard.seen:
            return
        heard.seen = True
        self._latest.put((recipient, None), heard)
        if recent.thread:
            self._latest.put((recipient, recent.thread), heard)
        source = self._sources.get((recipient, recent.source))
        if source is None:
            source = _Source()
            self._sources.put((recipient, recent.source), source)
        source.last_ms = now_ms
        source.heard.append(heard)
        if len(source.heard) > _UNANSWERED_MAX:
            source.heard = source.unanswered()[-_UNANSWERED_MAX // 2 :]

    def offset_of(self, message_id: MessageId) -> int | None:
        """Return the log offset of a recent message; `None` if the loop rule does not remember the message."""
        recent = self._by_id.get(message_id)
        return recent.offset if recent is not None else None

    def sender_of(self, message_id: MessageId | None) -> str:
        """Return the sender of a recent message; empty if the loop rule does not remember the message."""
        recent = self._by_id.get(message_id) if message_id is not None else None
        return recent.sender if recent is not None else ""

    def is_news(self, judgement: Judgement, what: str) -> bool:
        """Return true if no hub message of the kind `what` was sent to people about this chain of messages yet.

        Call this only to send such a message: the next call with the same chain and kind returns false.
        """
        if judgement.chain is None or self._told.get((judgement.chain, what)):
            return False
        told = (judgement.chain, what)
        self._told.put(told, True)
        self._undo.append(partial(self._told.forget, (told,)))
        return True

    def take_back(self, offsets: range) -> None:
        """Forget the messages at these log offsets. A rollback removed them, and new messages will get the offsets."""
        gone = [recent for recent in map(self._by_offset.get, offsets) if recent is not None]
        self._by_id.forget(recent.id for recent in gone)
        self._by_offset.forget(recent.offset for recent in gone)

    def forget(self, name: str) -> None:
        """Forget the chains of answers that went through the conversation `name`.

        Then the number of answers (hops) is counted from zero again.
        """
        chains = {recent.chain for recent in self._by_offset.values() if recent.conversation == name}
        gone = [recent for recent in self._by_offset.values() if recent.chain in chains]
        self._by_id.forget(recent.id for recent in gone)
        self._by_offset.forget(recent.offset for recent in gone)
        offsets = {recent.offset for recent in gone}
        for heard in self._heard.values():
            if heard.message.offset in offsets:
                heard.answered = True

    def shift(self, step_ms: int) -> None:
        """Shift all times by `step_ms`, because somebody set the clock. So the age of each message stays the same."""
        for heard in self._heard.values():
            heard.at_ms += step_ms
        for source in self._sources.values():
            source.last_ms += step_ms


def _ask_again(found: list[_Heard], source: _Source | None) -> None:
    for heard in found:
        heard.answered = False
    if source is not None:
        source.heard = found + source.heard


def _hops_of(heard: _Heard) -> int:
    return heard.message.hops
