"""External inboxes: deliveries that a process outside the hub can also take. The first to take a delivery has it.

The unread messages of a local agent are files, and any process of the agent may claim a file. So before the hub settles
such a delivery, for any reason and session, the member's external inbox must win the delivery. `core.settlement` finds
the deliveries to win before a command is decided. The caller of the broker asks the external inbox, and puts the
answers here. The hub may settle a delivery that was won. A delivery that was lost was taken outside, which acknowledges
it. The external inbox lets go of a won delivery only after the commit, so that after a crash it can give the delivery
back. A delivery that was won and then not settled is also given back.
"""

from collections.abc import Iterator

from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.keys import Ranges, join_keys
from tieline.core.batch import Batch
from tieline.core.directory import Account, Session
from tieline.core.inbox import Entry

EVIDENCE = "taken outside the hub"

PAGE = 256
"""Number of deliveries in one question to an external inbox."""

Won = tuple[MemberName, int]
"""A delivery that an external inbox won, by member and key."""


class Answers:
    """Answers of external inboxes, for the commands decided next: which deliveries they won, or found taken outside."""

    __slots__ = ("asked_through", "by_delivery")

    def __init__(self) -> None:
        # By member and key: true if the delivery was won, false if it was taken outside, `None` if unknown.
        self.by_delivery: dict[tuple[MemberName, int], bool | None] = {}
        # By member: the highest key that was asked for. Keys are asked for in ascending order.
        self.asked_through: dict[MemberName, int] = {}

    def won(self) -> list[Won]:
        """Return the deliveries that the external inboxes won, so that the hub may settle them."""
        return [delivery for delivery, answer in self.by_delivery.items() if answer]


class ExternalInboxes:
    """The open external inboxes, their answers to the hub's questions, and the deliveries won from them."""

    __slots__ = ("_batch", "_owed", "_won", "answers", "finished", "sessions")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # The sessions of external inboxes, by the name of their member.
        self.sessions: dict[MemberName, SessionId] = {}
        # Answers of the external inboxes for the commands that are being decided.
        self.answers = Answers()
        self.start_over()

    def start_over(self) -> None:
        """Forget all won deliveries, as after a start."""
        self._won: list[Won] = []
        # Number of won deliveries, from the start of the list, that are owed.
        self._owed = 0
        # Won deliveries whose settlement is committed. The caller of the broker tells the external inboxes.
        self.finished: list[Won] = []

    def session_to_ask(self, account: Account, session: Session | None) -> SessionId | None:
        """Return the session of the external inbox that must be asked before a delivery of this member is settled.

        `None` if the member has no external inbox, or if the external inbox itself (`session`) settles the delivery.
        """
        inbox_session = self.sessions.get(account.name)
        return None if session is not None and session.id == inbox_session else inbox_session

    def win(
        self, account: Account, ranges: Ranges, state: State, session: Session | None, why: str
    ) -> tuple[Ranges, Ranges]:
        """Split deliveries by the external inbox's answers: those that the hub may settle, and those taken outside.

        A delivery without an answer is in neither result. If the hub itself settles it (`session` is `None`), it is
        added to the outcome, so that the external inbox is asked. `state` and `why` say how it will be settled then.
        """
        # The external inbox does not have a held delivery yet, so the hub may settle it.
        won = [key for first, last in ranges for key in _held(account, first, last)]
        taken: list[int] = []
        answers = self.answers.by_delivery
        for entry in each_unsettled(account, ranges):
            key = entry.key
            if (account.name, key) not in answers:
                if session is None:
                    # Chores, and deliveries that came after the question, wait for the answer of the external inbox.
                    self._batch.outcome.unsettled.setdefault((account.name, state, why), []).append(key)
                continue
            answer = answers[account.name, key]
            if answer:
                won.append(key)
                self._won.append((account.name, key))
            elif answer is not None:
                taken.append(key)
        return join_keys(won), join_keys(taken)

    def owe(self) -> None:
        """Keep the deliveries won so far through a rollback: their settlement is published, but not committed yet."""
        self._owed = len(self._won)

    def commit(self) -> None:
        """Add the deliveries won so far to `finished`, because their settlement is committed."""
        self._owed = 0
        self.finished += self._won
        self._won.clear()

    def roll_back(self) -> None:
        """Forget the won deliveries that are not owed, because a rollback undid their settlement."""
        del self._won[self._owed :]


def each_unsettled(account: Account, ranges: Ranges) -> Iterator[Entry]:
    """Yield a member's deliveries in these ranges that are neither settled nor held."""
    for first, last in ranges:
        after = first - 1
        while after < last:
            entries, through = account.inbox.read(after, PAGE, last=last)
            yield from entries
            if through == after:
                break
            after = through


def _held(account: Account, first: int, last: int) -> Iterator[int]:
    if account.inbox.held:
        yield from (entry.key for entry in account.inbox.held_entries() if first <= entry.key <= last)
