"""External inboxes: places outside the hub from which other processes can also take deliveries of a member.

A delivery belongs to the first process that takes it.

The unread messages of a local agent are files, and any process of the agent may take a file. So before the hub settles
such a delivery, it asks the member's external inbox. The external inbox answers that the delivery is *reserved* for the
hub, or that another process has *taken* it.

`core.settlement` finds the deliveries to ask for, before a command is decided. The caller of the broker asks the
external inbox, and stores the answers in `Answers`. The hub may settle a reserved delivery. A taken delivery counts as
acknowledged. The external inbox removes a reserved delivery only after the commit, so that it can give the delivery
back after a crash. It also gives back a reserved delivery that no command settled.
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
"""Largest number of deliveries in one question to an external inbox."""

Reserved = tuple[MemberName, int]
"""A delivery, by member and key, that an external inbox has reserved for the hub."""


class Answers:
    """Answers of external inboxes: which deliveries are reserved for the hub, and which were taken outside.

    The broker uses the answers for the commands that it handles next.
    """

    __slots__ = ("asked_through", "by_delivery")

    def __init__(self) -> None:
        # By member and key: true if the delivery is reserved for the hub, false if a process outside took it, `None` if
        # that is not known.
        self.by_delivery: dict[tuple[MemberName, int], bool | None] = {}
        # By member: the highest key that the hub has asked about. It asks in ascending order of keys.
        self.asked_through: dict[MemberName, int] = {}

    def reserved(self) -> list[Reserved]:
        """Return the deliveries that are reserved for the hub, so that it may settle (acknowledge or end) them."""
        return [delivery for delivery, answer in self.by_delivery.items() if answer]


class ExternalInboxes:
    """The open external inboxes, their answers to the hub's questions, and the deliveries reserved for the hub."""

    __slots__ = ("_batch", "_published_count", "_reserved", "answers", "finished", "sessions")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # The sessions of external inboxes, by the name of their member.
        self.sessions: dict[MemberName, SessionId] = {}
        # Answers of the external inboxes for the commands that are being decided.
        self.answers = Answers()
        self.start_over()

    def start_over(self) -> None:
        """Forget all deliveries that were reserved for the hub.

        Call this when the hub starts or loads its state again.
        """
        self._reserved: list[Reserved] = []
        # Number of deliveries, from the start of the list `_reserved`, that a rollback must keep; see `mark_published`.
        self._published_count = 0
        # Reserved deliveries whose settlement is committed. The caller of the broker tells the external inboxes.
        self.finished: list[Reserved] = []

    def session_to_ask(self, account: Account, session: Session | None) -> SessionId | None:
        """Return the session of the external inbox that the hub must ask before it settles a delivery of this member.

        To settle means to acknowledge or end. Return `None` if the member has no external inbox, or if `session` is the
        session of the external inbox itself.
        """
        inbox_session = self.sessions.get(account.name)
        return None if session is not None and session.id == inbox_session else inbox_session

    def reserve(
        self, account: Account, ranges: Ranges, state: State, session: Session | None, why: str
    ) -> tuple[Ranges, Ranges]:
        """Return the deliveries in `ranges` that the hub may settle, and the deliveries that were taken outside.

        To settle means to acknowledge or end. The answers of the external inbox decide this. A delivery without an
        answer is in neither result. If the hub itself settles deliveries (`session` is `None`), a delivery without an
        answer is added to the outcome, so that the external inbox is asked. `state` and `why` are the state and the
        evidence for settling that delivery after the answer.
        """
        # The external inbox does not have a held delivery yet, so the hub may settle it.
        reserved = [key for first, last in ranges for key in _held(account, first, last)]
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
                reserved.append(key)
                self._reserved.append((account.name, key))
            elif answer is not None:
                taken.append(key)
        return join_keys(reserved), join_keys(taken)

    def mark_published(self) -> None:
        """Make a rollback keep the deliveries that were reserved for the hub so far.

        Clients were already told that these deliveries are acknowledged or ended, but this is not committed yet.
        """
        self._published_count = len(self._reserved)

    def commit(self) -> None:
        """Add the deliveries that were reserved so far to `finished`.

        A commit has stored that these deliveries are acknowledged or ended.
        """
        self._published_count = 0
        self.finished += self._reserved
        self._reserved.clear()

    def roll_back(self) -> None:
        """Forget the deliveries that were reserved since the last `mark_published`.

        A rollback undid the change that acknowledged or ended them.
        """
        del self._reserved[self._published_count :]


def each_unsettled(account: Account, ranges: Ranges) -> Iterator[Entry]:
    """Yield a member's deliveries in these ranges that are neither settled nor held.

    Settled means acked, expired or dead. Held means not to be delivered yet.
    """
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
