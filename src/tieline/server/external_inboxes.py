"""External inboxes in the local hub: commands that settle deliveries wait until an external inbox has reserved them.

Used by: the local hub's main loop, in the broker's thread, which processes commands. Uses: the rules in
`core.settlement`.

A process outside the hub may take a delivery from an external inbox. So before the hub settles such a delivery, it asks
the external inbox. The inbox answers that the delivery is `reserved` for the hub, or that another process has `taken`
it. Only one command at a time waits for an answer, so that the hub never has two open questions about a delivery. Other
commands that need an answer wait behind it. Later commands of their sessions wait, too, because the commands of a
session are executed in order.

An external inbox that does not answer in time is *silent*. Its answer counts as unknown, and the hub asks it nothing
more until the late answer comes. If the external inbox reserved deliveries with its late answer, the hub gives them
back: it tells the external inbox that it does not settle them.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import structlog

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.hub import ExternalInbox, Question
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.keys import join_keys
from tieline.core.broker import Broker
from tieline.core.external_inboxes import EVIDENCE as TAKEN
from tieline.core.external_inboxes import Answers, Reserved
from tieline.core.settlement import Wanted
from tieline.server.turns import Item

log = structlog.get_logger(__name__)


class Answer:
    """Answer of an external inbox to the question `number`.

    An external inbox also holds a member's deliveries, outside the hub. `reserved` are the keys of the deliveries that
    the inbox now keeps for the hub. `taken` are the keys of the deliveries that another process took before the hub
    asked.
    """

    __slots__ = ("number", "reserved", "taken")

    def __init__(self, number: int, reserved: Sequence[int] = (), taken: Sequence[int] = ()) -> None:
        self.number = number
        self.reserved = frozenset(reserved)
        self.taken = frozenset(taken)


class InboxRemoved:
    """Message in place of an `Answer`: the external inbox of `member` was removed, so no answer will come."""

    __slots__ = ("member",)

    def __init__(self, member: MemberName) -> None:
        self.member = member


class AttachedInboxes:
    """Table of the external inboxes of this hub's members. This class passes questions and results to the inboxes.

    An external inbox also holds a member's deliveries, outside the hub. Any thread may call `ask`, `finish` and
    `give_back`. The inboxes are called on the event loop.
    """

    def __init__(self, answer: Callable[[Answer | InboxRemoved], None]) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._inboxes: dict[MemberName, ExternalInbox] = {}

    def change(self, member: MemberName, inbox: ExternalInbox | None) -> None:
        """Set the external inbox of a member, or remove it if `inbox` is `None`."""
        if inbox is not None:
            self._inboxes[member] = inbox
        elif self._inboxes.pop(member, None) is not None:
            self._answer(InboxRemoved(member))

    def ask(self, question: Question) -> None:
        """Ask the external inbox of the question's member to reserve the deliveries in the question for the hub.

        The inbox answers later, through the callback `answer`.
        """
        self._loop.call_soon_threadsafe(self._ask, question)

    def finish(self, reserved: Sequence[Reserved]) -> None:
        """Tell external inboxes that the deliveries in `reserved` are now settled and committed.

        The inboxes have kept these deliveries for the hub.
        """
        self._loop.call_soon_threadsafe(self._tell, reserved, True)

    def give_back(self, reserved: Sequence[Reserved]) -> None:
        """Tell external inboxes that the hub does not settle the deliveries in `reserved`.

        The inboxes have kept these deliveries for the hub. Processes outside the hub may take these deliveries again.
        """
        self._loop.call_soon_threadsafe(self._tell, reserved, False)

    def _ask(self, question: Question) -> None:
        inbox = self._inboxes.get(question.member)
        try:
            if inbox is not None:
                inbox.asked(question)
                return
        except Exception:
            log.exception("an external inbox failed", member=question.member)
        self._answer(Answer(question.number))

    def _tell(self, reserved: Sequence[Reserved], finished: bool) -> None:
        keys: dict[MemberName, list[int]] = {}
        for name, key in reserved:
            keys.setdefault(name, []).append(key)
        for name, theirs in keys.items():
            inbox = self._inboxes.get(name)
            try:
                if inbox is not None:
                    (inbox.finish if finished else inbox.give_back)(theirs)
            except Exception:
                # One failing inbox must not stop the calls to the others.
                log.exception("an external inbox failed", member=name)


class WaitingCommands:
    """Queue of commands that wait for the answer of an external inbox, in the order of their submission.

    An external inbox also holds a member's deliveries, outside the hub. Not thread-safe: use it only in the broker's
    thread, which executes the commands.
    """

    def __init__(
        self,
        broker: Broker,
        inboxes: AttachedInboxes,
        replaced: Callable[[c.Attach], Iterable[SessionId]],
    ) -> None:
        self._broker = broker
        self._inboxes = inboxes
        self._replaced = replaced
        # Each item with the sessions whose later commands wait behind it.
        self._waiting: deque[tuple[Item, frozenset[SessionId]]] = deque()
        # Number of waiting items of each session.
        self._sessions: Counter[SessionId] = Counter()
        # `_question` is the open question, `_deadline` its deadline. `_answers` has the answers so far for the first
        # waiting command.
        self._question: Question | None = None
        self._deadline = 0.0
        self._answers = Answers()
        self._number = 0
        # Silent external inboxes: number of each question whose answer is late → its member.
        self._late: dict[int, MemberName] = {}

    def batches(self, items: list[Item]) -> Iterator[list[Item]]:
        """Yield the items (commands with the callback for replies) that can be executed now, and queue the others.

        First come all of `items` that need not wait. Then come items that waited before, one at a time.
        """
        if self._waiting or self._broker.external_inboxes.sessions:
            items = self._admit(items)
        if items:
            yield items
        yield from self._ready()

    def _admit(self, items: list[Item]) -> list[Item]:
        """Return the items that can be executed now. Queue all other items.

        An item must wait if it ends (acknowledges, discards…) deliveries of an external inbox. An item must also wait
        if earlier commands of its session wait.
        """
        admitted = []
        for item in items:
            if self._must_wait(item[0]):
                sessions = self._sessions_of(item[0])
                self._waiting.append((item, sessions))
                self._sessions.update(sessions)
            else:
                admitted.append(item)
        return admitted

    def add(self, commands: Iterable[c.Command]) -> None:
        """Queue commands of the hub itself, even if they need no answer of an external inbox.

        The replies to these commands are dropped.
        """
        self._waiting.extend((((command,), None), frozenset()) for command in commands)

    def take(self, answer: Answer | InboxRemoved) -> None:
        """Handle the answer of an external inbox to the open question, or the news that no answer will come.

        The answer may also be a late answer to an earlier question.
        """
        question = self._question
        if isinstance(answer, InboxRemoved):
            self._late = {number: member for number, member in self._late.items() if member != answer.member}
            if question is not None and question.member not in self._broker.external_inboxes.sessions:
                self._note(question)
        elif question is not None and answer.number == question.number:
            self._note(question, answer.reserved, answer.taken)
        elif answer.number in self._late:
            self._take_late(self._late.pop(answer.number), answer)

    def _take_late(self, member: MemberName, answer: Answer) -> None:
        """Handle an answer that came too late to be used for its command.

        Tell the external inbox that the hub does not settle the deliveries in `reserved`. Acknowledge the deliveries in
        `taken`, because a process outside the hub has taken them.
        """
        self._give_back_unused([(member, key) for key in answer.reserved])
        if answer.taken:
            # The inbox reports a taken delivery once, so ask for it again and acknowledge it.
            self.add([c.Settle(member=member, ranges=join_keys(answer.taken), state=State.ACKED, evidence=TAKEN)])

    def _note(self, question: Question, reserved: Collection[int] = (), taken: Collection[int] = ()) -> None:
        """Store the answer of an external inbox to a question, for the command that waits for this answer.

        `reserved` and `taken` are keys of deliveries. A delivery that is in neither of them counts as unknown.
        """
        self._question = None
        for key, _ in question.deliveries:
            outcome = True if key in reserved else False if key in taken else None
            self._answers.by_delivery[question.member, key] = outcome

    def _ready(self) -> Iterator[list[Item]]:
        """Yield waiting items (commands with a callback) that can be executed now, one at a time.

        If the next item needs an answer of an external inbox, ask the inbox and stop.
        """
        if self._question is not None and time.monotonic() >= self._deadline:
            log.warning("an external inbox does not answer", member=self._question.member)
            self._late[self._question.number] = self._question.member
            self._note(self._question)
        while self._waiting and self._question is None:
            item, sessions = self._waiting[0]
            wanted = self._needs(item[0], self._answers)
            if wanted is not None:
                self._ask(Question(self._number + 1, wanted[0], tuple(wanted[1])))
                continue
            self._waiting.popleft()
            self._sessions -= Counter(sessions)
            self._broker.external_inboxes.answers = answers = self._answers
            self._answers = Answers()
            try:
                yield [item]
            finally:
                self._broker.external_inboxes.answers = Answers()
            self._give_back_unused(answers.reserved())

    def _ask(self, question: Question) -> None:
        """Ask an external inbox to reserve deliveries for the hub.

        If an earlier answer of this inbox is still missing, do not ask: the new answer counts as unknown.
        """
        if question.member in self._late.values():
            self._note(question)
            return
        self._number = question.number
        self._question = question
        self._deadline = time.monotonic() + self._broker.limits.external_inbox_ms / 1000
        self._inboxes.ask(question)

    def _give_back_unused(self, reserved: Sequence[Reserved]) -> None:
        unused = self._broker.settlement.unused(reserved)
        if unused:
            self._inboxes.give_back(unused)

    def finish(self) -> None:
        """Tell the external inboxes which deliveries the last commit has settled (ended).

        The inboxes have kept these deliveries for the hub.
        """
        inboxes = self._broker.external_inboxes
        finished, inboxes.finished = inboxes.finished, []
        self._inboxes.finish(finished)

    def abandon(self) -> list[Item]:
        """Remove and return all waiting items (commands with a callback). The hub stops, or its store is lost."""
        left = [item for item, _ in self._waiting]
        self._waiting.clear()
        self._sessions.clear()
        self._question = None
        return left

    def _must_wait(self, commands: Sequence[c.Command]) -> bool:
        if self._sessions and not self._sessions.keys().isdisjoint(self._sessions_of(commands)):
            return True
        return self._needs(commands, Answers()) is not None

    def _sessions_of(self, commands: Sequence[c.Command]) -> frozenset[SessionId]:
        """Return the sessions whose later commands must wait behind `commands`.

        These are the sessions of the commands. For the command `Attach`, they are the sessions that the new session
        replaces.
        """
        if commands and isinstance(commands[0], c.Attach):
            return frozenset(self._replaced(commands[0]))
        found = {getattr(command, "session", None) for command in commands}
        return frozenset(session for session in found if session is not None)

    def _needs(self, commands: Sequence[c.Command], answers: Answers) -> Wanted | None:
        try:
            return self._broker.settlement.needs(commands, answers)
        except Exception:  # noqa: BLE001 - whatever it is, deciding the command meets it too, and refuses that
            return None
