"""External inboxes: deliveries that somebody outside the hub can take as well, and whoever is first has them.

A local agent's unread messages are files that any of its processes may claim. Before the hub settles such a delivery,
for whatever reason and session, the member's external inbox must win it. `core.settlement` finds what has to be won
before a command is decided; whoever drives the broker asks for that, and puts the answers here. What was won may then
be settled; what was lost was taken, which acknowledges it. The inbox lets go of what it won after the commit, so that a
crash in between finds it and can give it back. What was won and is not settled after all is given back.
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
"""Deliveries that are asked for at once."""

Answers = dict[tuple[MemberName, int], bool | None]
"""By member and key: true for what was won, false for what was taken, `None` where that cannot be told."""


class ExternalInboxes:
    """External inboxes, their answers, and the deliveries won from them."""

    __slots__ = ("_batch", "_owed", "_won", "answers", "finished", "sessions")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # The sessions of external inboxes, by the name of their member.
        self.sessions: dict[MemberName, SessionId] = {}
        # What they answered for the commands that are being decided.
        self.answers: Answers = {}
        self.start_over()

    def start_over(self) -> None:
        """Nothing was won since the last commit."""
        self._won: list[tuple[MemberName, int]] = []
        # How many of them are owed.
        self._owed = 0
        # What was won and is settled, durably; whoever drives the broker tells the external inboxes.
        self.finished: list[tuple[MemberName, int]] = []

    def session_to_ask(self, account: Account, session: Session | None) -> SessionId | None:
        """The session of the external inbox that must be asked: there is one, and it is not itself who settles."""
        inbox_session = self.sessions.get(account.name)
        return None if session is not None and session.id == inbox_session else inbox_session

    def win(
        self, account: Account, ranges: Ranges, state: State, session: Session | None, why: str
    ) -> tuple[Ranges, Ranges]:
        """Those of an external inbox's deliveries that the hub may settle, and those that were taken outside."""
        # A held delivery was not put outside yet.
        won = [(key, key) for first, last in ranges for key in _held(account, first, last)]
        taken: list[Range] = []
        for key in each_unsettled(account, ranges):
            if (account.name, key) not in self.answers:
                if session is None:
                    # A chore, or what came between the question and now: it is done when the inbox has answered.
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
        """Deliveries won so far are settled, although that is not committed yet."""
        self._owed = len(self._won)

    def commit(self) -> None:
        """Deliveries won so far are settled, durably."""
        self._owed = 0
        self.finished += self._won
        self._won.clear()

    def roll_back(self) -> None:
        """Forget what was won and is not owed: it is not settled after all."""
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
