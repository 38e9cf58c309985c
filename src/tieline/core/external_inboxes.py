"""External inboxes: deliveries that a process outside the hub can also take. The first to take a delivery has it.

The unread messages of a local agent are files, and any process of the agent may claim a file. So before the hub settles
such a delivery, for any reason and session, the member's external inbox must win the delivery. `core.settlement` finds
the deliveries to win before a command is decided. The caller of the broker asks the external inbox, and puts the
answers here. The hub may settle a delivery that was won. A delivery that was lost was taken outside, which acknowledges
it. The external inbox lets go of a won delivery only after the commit, so that after a crash it can give the delivery
back. A delivery that was won and then not settled is also given back.
"""

from collections.abc import Iterator

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.keys import Range, Ranges
from tieline.core.batch import Batch
from tieline.core.directory import Account, Session

EVIDENCE = "taken outside the hub"

PAGE = 256
"""Number of deliveries in one question to an external inbox."""

Answers = dict[tuple[MemberName, int], bool | None]
"""By member and key: true if the delivery was won, false if it was taken outside, `None` if unknown."""


class ExternalInboxes:
    """External inboxes, their answers, and the deliveries won from them."""

    __slots__ = ("_batch", "_owed", "_won", "answers", "finished", "sessions")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # The sessions of external inboxes, by the name of their member.
        self.sessions: dict[MemberName, SessionId] = {}
        # Answers of the external inboxes for the commands that are being decided.
        self.answers: Answers = {}
        self.start_over()

    def start_over(self) -> None:
        """Forget all won deliveries, as after a start."""
        self._won: list[tuple[MemberName, int]] = []
        # Number of won deliveries, from the start of the list, that are owed.
        self._owed = 0
        # Won deliveries whose settlement is committed. The caller of the broker tells the external inboxes.
        self.finished: list[tuple[MemberName, int]] = []

    def session_to_ask(self, account: Account, session: Session | None) -> SessionId | None:
        """The session of the external inbox to ask. `None` if there is none, or if it is the session that settles."""
        inbox_session = self.sessions.get(account.name)
        return None if session is not None and session.id == inbox_session else inbox_session

    def win(
        self, account: Account, ranges: Ranges, state: State, session: Session | None, why: str
    ) -> tuple[Ranges, Ranges]:
        """Split deliveries of an external inbox: ranges that the hub may settle, and ranges taken outside."""
        # The external inbox does not have a held delivery yet, so the hub may settle it.
        won = [(key, key) for first, last in ranges for key in _held(account, first, last)]
        taken: list[Range] = []
        for key in each_unsettled(account, ranges):
            if (account.name, key) not in self.answers:
                if session is None:
                    # Chores, and deliveries that came after the question, wait for the answer of the external inbox.
                    self._batch.outcome.unsettled.append(
                        c.Settle(member=account.name, key=key, state=state, evidence=why)
                    )
                continue
            answer = self.answers[account.name, key]
            if answer:
                won.append((key, key))
                self._won.append((account.name, key))
            elif answer is not None:
                taken.append((key, key))
        return won, taken

    def owe(self) -> None:
        """Mark the deliveries won so far as settled and owed. Their settlement is not committed yet."""
        self._owed = len(self._won)

    def commit(self) -> None:
        """Mark the deliveries won so far as settled and committed."""
        self._owed = 0
        self.finished += self._won
        self._won.clear()

    def roll_back(self) -> None:
        """Forget the won deliveries that are not owed, because a rollback undid their settlement."""
        del self._won[self._owed :]


def each_unsettled(account: Account, ranges: Ranges) -> Iterator[int]:
    """Keys of the unsettled deliveries in these ranges that are not held."""
    for first, last in ranges:
        after = first - 1
        while after < last:
            entries, through = account.inbox.read(after, PAGE)
            yield from (entry.key for entry in entries if entry.key <= last)
            if through + 1 >= account.inbox.next_key:
                break
            after = through


def _held(account: Account, first: int, last: int) -> Iterator[int]:
    if account.inbox.held:
        yield from (entry.key for entry in account.inbox.held_entries() if first <= entry.key <= last)
