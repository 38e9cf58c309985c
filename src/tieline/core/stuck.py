"""Stuck deliveries: lists deliveries that nobody has seen for a while, and dead ones, for people who run the hub.

An inbox has the keys of its deliveries and their states, and no times. So this rule reads the oldest messages that
wait, and leaves out those that are too young.
"""

from collections.abc import Mapping

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Message
from tieline.contract.reply import Reply, Stuck, StuckDelivery
from tieline.core.batch import Batch
from tieline.core.dead_letters import DeadLetter, DeadLetters
from tieline.core.directory import Directory, Session
from tieline.core.inbox import Entry
from tieline.core.reading import READ_LOG
from tieline.core.rules import Rules, decides

_OWN_MAX = 500
"""Most waiting messages of all members that are read to find those of one sender."""
_TEXT_CHARS = 200


class StuckRules(Rules):
    """Rule for the command that lists stuck deliveries."""

    def __init__(self, batch: Batch, directory: Directory, dead_letters: DeadLetters) -> None:
        self._batch = batch
        self._store = batch.store
        self._limits = batch.limits
        self._directory = directory
        self._dead_letters = dead_letters

    @decides(c.ReadStuck)
    def read(self, session: Session, command: c.ReadStuck) -> Reply:
        """Reply with the deliveries that nobody has seen for a while, and with the dead ones.

        A session without the permission `log.read` gets only those of its own messages.
        """
        limit = max(1, min(command.limit, self._limits.read_max))
        waiting = self._waiting(limit if session.may(READ_LOG) else max(limit, _OWN_MAX))
        died = list(reversed(self._dead_letters.rows))
        offsets = sorted({entry.offset for entry, _ in waiting} | {letter.offset for letter in died})
        found, _ = self._store.messages(offsets, self._limits.page_bytes_max)
        shown = {offset: one for offset, one in found.items() if session.may(READ_LOG) or session.said(one)}
        before_ms = self._batch.now_ms - max(0, command.older_ms)
        unseen = (_unseen(shown, entry, member, before_ms) for entry, member in waiting)
        dead = (_dead(shown, letter) for letter in died)
        return Stuck(
            unseen=tuple(one for one in unseen if one is not None)[:limit],
            dead=tuple(one for one in dead if one is not None)[:limit],
        )

    def _waiting(self, limit: int) -> list[tuple[Entry, MemberName]]:
        """Return the oldest deliveries of all members that nobody saw, with their recipients."""
        found = [
            (entry, account.name)
            for account in self._directory.accounts.values()
            if account.inbox.backlog > account.inbox.held
            for entry in account.inbox.waiting(limit)
        ]
        return sorted(found, key=lambda one: one[0].offset)[:limit]


def _unseen(shown: Mapping[int, Message], entry: Entry, member: MemberName, before_ms: int) -> StuckDelivery | None:
    message = shown.get(entry.offset)
    if message is None or message.sent_at_ms > before_ms:
        return None
    return _stuck(message, member, entry.state)


def _dead(shown: Mapping[int, Message], letter: DeadLetter) -> StuckDelivery | None:
    message = shown.get(letter.offset)
    return None if message is None else _stuck(message, letter.member, State.DEAD, letter.evidence, letter.at_ms)


def _stuck(message: Message, member: MemberName, state: State, evidence: str = "", at_ms: int = 0) -> StuckDelivery:
    return StuckDelivery(
        message_id=message.id,
        offset=message.offset,
        sender=message.sender,
        target=str(message.content.target),
        text=(message.content.title or message.content.body)[:_TEXT_CHARS],
        sent_at_ms=message.sent_at_ms,
        member=member,
        state=state,
        evidence=evidence,
        at_ms=at_ms,
    )
