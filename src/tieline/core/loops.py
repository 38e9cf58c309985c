"""The loop rule: it counts how long agents have been answering each other.

A message's *hops* are the answers of agents, at the pace of agents, that led to it. Past limits the hub slows and then
holds what comes of such a chain (`core.holds`); nothing is ever refused or dropped for it.

**Cause.** Concurrency is no causality. A message can be caused by one that its sender was sent, and had seen, claimed
or acknowledged before it spoke; and each received message causes at most one. What it explicitly replies to comes
first, and needs no acknowledgement: where a wire has none, an explicit reply is all that counts. Otherwise the sender
answers what its target told it since it last spoke there, in the same thread if there is any. All of that is answered
then. If several spoke, as in a channel, the shortest of their chains goes on, so that ten reports to one request are
one hop and not ten; chains of no hops are left out, or a bystander would end a loop of others.

**Count.** Only hops of agents count: what a person or a script says starts at zero. And only at the pace of agents,
from `hop_ms_min` to `reply_window_ms` after the cause reached the sender: programs answer sooner.

**Rings.** Agents that pass messages on (A to B, B to C, C to A) answer nobody. So a message without a cause, to
somebody who has told its sender nothing lately, may have been caused by what its sender heard last, in the same
thread or at all. Such a guess alone counts nothing, because work that is handed out looks just like it. It counts
when it comes round: a few steps back, by guesses and explicit replies alone, the same sender wrote to the same
target. Each round adds its steps.

The state is a bounded memory of recent messages; it is not durable.
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
"""Far more than a thread or a channel has; what is paused is kept in memory."""

_RING_MAX = 16
"""Members of a ring that is noticed: looking further back would take long, and find more that is chance."""

_UNANSWERED_MAX = 32
"""Messages from one place that wait for an answer: more are not answered one by one."""


class RecentMessage(Struct, frozen=True, gc=False):
    """A message as the loop rule remembers it."""

    id: MessageId
    offset: int
    sender: str
    hops: int
    at_ms: int
    target: str
    thread: str | None
    chain: MessageId
    """The first message of its chain."""
    parent: MessageId | None
    """What led to it, surely or by a guess."""
    answers: bool
    """Whether it went back to where its cause came from: a step of a dialogue, and not of a ring."""

    @property
    def place(self) -> str:
        """Where a recipient would answer: the sender, or the channel."""
        return f"@{self.sender}" if self.target.startswith("@") else self.target

    @property
    def conversation(self) -> str:
        """The conversation that it belongs to."""
        return _conversation(self.thread, self.target, self.sender)


class _Heard:
    """A message that reached a member."""

    __slots__ = ("answered", "at_ms", "message", "seen")

    def __init__(self, message: RecentMessage, at_ms: int) -> None:
        self.message = message
        # When it was first offered to the member.
        self.at_ms = at_ms
        # Whether there is evidence that the member read it.
        self.seen = False
        # Whether it has caused a message of the member.
        self.answered = False


class _Place:
    """What a member read from one place, and has not answered."""

    __slots__ = ("heard", "last_ms")

    def __init__(self) -> None:
        self.heard: list[_Heard] = []
        # When the newest of it came.
        self.last_ms = 0

    def unanswered(self) -> list[_Heard]:
        return [heard for heard in self.heard if not heard.answered]


class Judgement(Struct, frozen=True, gc=False):
    """What the rule says of a new message."""

    hops: int
    cause: MessageId | None
    parent: MessageId | None = None
    chain: MessageId | None = None
    """The first message of its chain, if another than this one."""
    since_ms: int = 0
    """When the cause reached the sender, if there are hops."""
    answers: bool = False


INNOCENT = Judgement(0, None)
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


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


class _Memory(Generic[_Key, _Value]):
    """The most recent values by key, in two generations: when the younger is full, the older is forgotten at once.

    Forgetting one at a time would be finer, but a dictionary that loses its first key again and again slows down.
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
    """Recent messages, and what each member read of them and did not answer yet."""

    __slots__ = ("_by_id", "_by_offset", "_heard", "_latest", "_limits", "_places", "_told", "_undo")

    def __init__(self, limits: Limits, undo: list[Callable[[], object]]) -> None:
        """What takes a judgement back goes into `undo`: the message may never be accepted, and be sent again."""
        self._limits = limits
        self._undo = undo
        size = limits.loop_memory_max
        self._by_id: _Memory[str, RecentMessage] = _Memory(size)
        self._by_offset: _Memory[int, RecentMessage] = _Memory(size)
        # What reached whom, by recipient and log offset.
        self._heard: _Memory[tuple[str, int], _Heard] = _Memory(size)
        # By recipient and place.
        self._places: _Memory[tuple[str, str], _Place] = _Memory(size)
        # What each member read last, in each thread, and without one in any.
        self._latest: _Memory[tuple[str, str | None], _Heard] = _Memory(size)
        # Chains that people were told of, with what they were told.
        self._told: _Memory[tuple[MessageId, str], bool] = _Memory(size)

    # What is judged.

    def judge(self, content: Content, sender: str, now_ms: int, *, counts: bool) -> Judgement:
        """Look at a message before it is accepted. Without `counts`, it starts at zero, whatever led to it."""
        if content.kind is not Kind.CHAT:
            return INNOCENT
        target = str(content.target)
        causes = self._take_causes(content, target, sender)
        if causes:
            best = self._best([heard for heard in causes if self._in_pace(heard, now_ms)])
            cause = (best or causes[-1]).message
            answers = target == cause.place
            if best is None or not counts:
                return Judgement(0, cause.id, answers=answers)
            return Judgement(cause.hops + 1, cause.id, cause.id, cause.chain, best.at_ms, answers)
        known = None if content.reply_to is None else Judgement(0, content.reply_to)
        guess = self._latest.get((sender, content.thread)) or self._latest.get((sender, None)) if counts else None
        if guess is None or not self._in_pace(guess, now_ms):
            return known or INNOCENT
        place = self._places.get((sender, target))
        if place is not None and now_ms - place.last_ms <= self._limits.reply_window_ms:
            # It passes nothing on to whom it talks with.
            return known or INNOCENT
        return self._judge_guess(content, target, sender, guess)

    def _judge_guess(self, content: Content, target: str, sender: str, guess: _Heard) -> Judgement:
        """Judge a message that may or may not pass on what its sender heard last."""
        last = guess.message
        before, steps = self._round_before(sender, target, last)
        if before is None or guess.answered:
            return Judgement(0, content.reply_to, last.id)
        self._answer([guess])
        chain = last.chain if last.hops else before.chain
        return Judgement(before.hops + steps, last.id, last.id, chain, guess.at_ms)

    def _round_before(self, sender: str, target: str, last: RecentMessage) -> tuple[RecentMessage | None, int]:
        """The message of this sender to this target in the ring that ends with `last`, and how many steps back."""
        recent: RecentMessage | None = last
        for steps in range(1, _RING_MAX + 1):
            if recent is None or recent.answers:
                return None, 0
            if recent.sender == sender and recent.target == target:
                return recent, steps
            recent = None if recent.parent is None else self._by_id.get(recent.parent)
        return None, 0

    def _take_causes(self, content: Content, target: str, sender: str) -> Sequence[_Heard]:
        """What a message answers; it is answered by that."""
        if content.reply_to is not None:
            named = self._take_named(content.reply_to, sender)
            if named is not None:
                return [named]
        place = self._places.get((sender, target))
        if place is None or not place.heard:
            return ()
        found = place.unanswered()
        # An objective has limits of its own, so what was said there is answered there.
        elsewhere = [heard for heard in found if not (heard.message.thread or "").startswith("obj:")]
        found = [heard for heard in found if heard.message.thread == content.thread] or elsewhere
        self._answer(found, place)
        return found

    def _answer(self, found: list[_Heard], place: _Place | None = None) -> None:
        """This is answered now; at its place, if there is one, it waits no more."""
        for heard in found:
            heard.answered = True
        if place is not None:
            place.heard = place.unanswered()
        self._undo.append(partial(_ask_again, found, place))

    def _take_named(self, message_id: MessageId, sender: str) -> _Heard | None:
        """What an explicit reply answers, if it is remembered, somebody else's, and not answered yet."""
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
        """The message whose chain goes on: of each sender the longest chain, and of those the shortest with hops."""
        longest: dict[str, _Heard] = {}
        for heard in causes:
            other = longest.get(heard.message.sender)
            if other is None or heard.message.hops >= other.message.hops:
                longest[heard.message.sender] = heard
        chains = list(longest.values())
        return min([heard for heard in chains if heard.message.hops] or chains, key=_hops_of, default=None)

    # What happened.

    def note(
        self, message_id: MessageId, offset: int, content: Content, sender: str, judgement: Judgement, at_ms: int
    ) -> None:
        """Remember an accepted message."""
        if content.kind is not Kind.CHAT:
            return
        target, hops = str(content.target), judgement.hops
        chain = (judgement.chain if hops else None) or message_id
        about = (target, content.thread, chain, judgement.parent, judgement.answers)
        recent = RecentMessage(message_id, offset, sender, hops, at_ms, *about)
        self._by_id.put(message_id, recent)
        self._by_offset.put(offset, recent)

    def reached(self, recipient: str, offset: int, now_ms: int, *, seen: bool) -> None:
        """A message was offered to a member, or there is evidence that the member read it."""
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
        place = self._places.get((recipient, recent.place))
        if place is None:
            place = _Place()
            self._places.put((recipient, recent.place), place)
        place.last_ms = now_ms
        place.heard.append(heard)
        if len(place.heard) > _UNANSWERED_MAX:
            place.heard = place.unanswered()[-_UNANSWERED_MAX // 2 :]

    def offset_of(self, message_id: MessageId) -> int | None:
        """The log offset of a remembered message."""
        recent = self._by_id.get(message_id)
        return recent.offset if recent is not None else None

    def sender_of(self, message_id: MessageId | None) -> str:
        """Who said a remembered message."""
        recent = self._by_id.get(message_id) if message_id is not None else None
        return recent.sender if recent is not None else ""

    def is_news(self, judgement: Judgement, what: str) -> bool:
        """Whether this is told of a chain for the first time."""
        if judgement.chain is None or self._told.get((judgement.chain, what)):
            return False
        told = (judgement.chain, what)
        self._told.put(told, True)
        self._undo.append(partial(self._told.forget, (told,)))
        return True

    def take_back(self, offsets: range) -> None:
        """Messages at these log offsets were taken back: others will stand there."""
        gone = [recent for recent in map(self._by_offset.get, offsets) if recent is not None]
        self._by_id.forget(recent.id for recent in gone)
        self._by_offset.forget(recent.offset for recent in gone)

    def forget(self, name: str) -> None:
        """Forget the chains that went through a conversation, so that they start anew."""
        chains = {recent.chain for recent in self._by_offset.values() if recent.conversation == name}
        gone = [recent for recent in self._by_offset.values() if recent.chain in chains]
        self._by_id.forget(recent.id for recent in gone)
        self._by_offset.forget(recent.offset for recent in gone)
        offsets = {recent.offset for recent in gone}
        for heard in self._heard.values():
            if heard.message.offset in offsets:
                heard.answered = True

    def shift(self, step_ms: int) -> None:
        """The clock was set by this much: what was heard a while ago was heard as long ago as before."""
        for heard in self._heard.values():
            heard.at_ms += step_ms
        for place in self._places.values():
            place.last_ms += step_ms


def _ask_again(found: list[_Heard], place: _Place | None) -> None:
    for heard in found:
        heard.answered = False
    if place is not None:
        place.heard = found + place.heard


def _hops_of(heard: _Heard) -> int:
    return heard.message.hops
