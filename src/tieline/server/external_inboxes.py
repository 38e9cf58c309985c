"""External inboxes in the local hub: a command waits until an external inbox has won the deliveries that it settles.

Above: the local hub's main loop, on the broker's thread. Below: the rules in `core.settlement`. Only one command at a
time waits for an answer, so that the hub never asks for a delivery twice at once. Other commands that need an answer
wait behind it. Later commands of their sessions wait too, because the commands of a session are decided in order.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog

from tieline.contract import command as c
from tieline.contract.hub import ExternalInbox, Question
from tieline.contract.identifiers import MemberName, SessionId
from tieline.core.broker import Broker
from tieline.core.external_inboxes import Answers
from tieline.core.settlement import Wanted
from tieline.server.turns import Item

Won = tuple[MemberName, int]
"""A delivery that an external inbox won, by member and key."""

log = structlog.get_logger(__name__)


class Answer:
    """An external inbox's answer. Without a number: a member has another external inbox now, or none."""

    __slots__ = ("number", "taken", "won")

    def __init__(self, number: int = 0, won: Sequence[int] = (), taken: Sequence[int] = ()) -> None:
        self.number = number
        self.won = frozenset(won)
        self.taken = frozenset(taken)


class AttachedInboxes:
    """External inboxes by member. Any thread may ask or report; the inboxes are called on the event loop."""

    def __init__(self, answer: Callable[[Answer], None]) -> None:
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._inboxes: dict[MemberName, ExternalInbox] = {}

    def change(self, member: MemberName, inbox: ExternalInbox | None) -> None:
        """Set or remove the external inbox of a member."""
        if inbox is not None:
            self._inboxes[member] = inbox
        elif self._inboxes.pop(member, None) is not None:
            self._answer(Answer())

    def ask(self, question: Question) -> None:
        """Ask the external inbox of a question's member."""
        self._loop.call_soon_threadsafe(self._ask, question)

    def finish(self, won: Sequence[Won]) -> None:
        """Report to external inboxes that the deliveries that they won are settled durably."""
        self._loop.call_soon_threadsafe(self._tell, won, True)

    def give_back(self, won: Sequence[Won]) -> None:
        """Report to external inboxes that the deliveries that they won are not settled after all."""
        self._loop.call_soon_threadsafe(self._tell, won, False)

    def _ask(self, question: Question) -> None:
        inbox = self._inboxes.get(question.member)
        try:
            if inbox is not None:
                inbox.asked(question)
                return
        except Exception:
            log.exception("an external inbox failed", member=question.member)
        self._answer(Answer(question.number))

    def _tell(self, won: Sequence[Won], finished: bool) -> None:
        keys: dict[MemberName, list[int]] = {}
        for name, key in won:
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
    """Commands that wait for an external inbox, in the order of their submission. Belongs to the broker's thread."""

    def __init__(
        self,
        broker: Broker,
        inboxes: AttachedInboxes,
        replaced: Callable[[c.Attach], Iterable[SessionId]],
    ) -> None:
        self._broker = broker
        self._inboxes = inboxes
        self._replaced = replaced
        self._waiting: deque[Item] = deque()
        # Number of waiting commands of each session.
        self._sessions: Counter[SessionId] = Counter()
        # The open question; and the answers so far for the first waiting command.
        self._question: Question | None = None
        self._answers: Answers = {}
        self._number = 0

    def admit(self, items: list[Item]) -> list[Item]:
        """Return the items that can be decided now; queue the others."""
        if not self._broker.external_inboxes.sessions and not self._waiting:
            return items
        admitted = []
        for item in items:
            if self._must_wait(item[0]):
                self._waiting.append(item)
                self._sessions.update(_sessions(item))
            else:
                admitted.append(item)
        return admitted

    def add(self, commands: Iterable[c.Command]) -> None:
        """Queue these commands in any case. Nobody waits for their replies."""
        self._waiting.extend(((command,), None) for command in commands)

    def take(self, answer: Answer) -> None:
        """Note an answer."""
        question = self._question
        if question is None or (answer.number and answer.number != question.number):
            return
        if not answer.number and question.member in self._broker.external_inboxes.sessions:
            return
        self._question = None
        for key, _ in question.deliveries:
            outcome = True if key in answer.won else False if key in answer.taken else None
            self._answers[question.member, key] = outcome

    def ready(self) -> Iterator[Item]:
        """Yield items that can be decided now, one at a time; then ask for the deliveries that the next item needs."""
        while self._waiting and self._question is None:
            item = self._waiting[0]
            wanted = self._needs(item[0], self._answers)
            if wanted is not None:
                self._number += 1
                self._question = Question(self._number, wanted[0], tuple(wanted[1]))
                self._inboxes.ask(self._question)
                return
            self._waiting.popleft()
            self._sessions -= Counter(_sessions(item))
            self._broker.external_inboxes.answers = answers = self._answers
            self._answers = {}
            try:
                yield item
            finally:
                self._broker.external_inboxes.answers = {}
            unused = self._broker.settlement.unused(answers)
            if unused:
                self._inboxes.give_back(unused)

    def finish(self) -> None:
        """Report to external inboxes which deliveries are settled durably."""
        inboxes = self._broker.external_inboxes
        finished, inboxes.finished = inboxes.finished, []
        self._inboxes.finish(finished)

    def abandon(self) -> list[Item]:
        """Remove and return all waiting items, because no answer will come."""
        left = list(self._waiting)
        self._waiting.clear()
        self._sessions.clear()
        self._question = None
        return left

    def _must_wait(self, commands: Sequence[c.Command]) -> bool:
        if self._sessions and commands:
            first = commands[0]
            theirs = self._replaced(first) if isinstance(first, c.Attach) else (getattr(first, "session", None),)
            if any(session in self._sessions for session in theirs):
                return True
        return self._needs(commands, {}) is not None

    def _needs(self, commands: Sequence[c.Command], answers: Answers) -> Wanted | None:
        try:
            return self._broker.settlement.needs(commands, answers)
        except Exception:  # noqa: BLE001 - whatever it is, deciding the command meets it too, and refuses that
            return None


def _sessions(item: Item) -> set[SessionId]:
    found = {getattr(command, "session", None) for command in item[0]}
    return {session for session in found if session is not None}
