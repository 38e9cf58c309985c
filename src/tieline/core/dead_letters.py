"""Dead letters: the newest deliveries that could not be made. By them, a person finds the messages that never arrive.

A dead delivery leaves its inbox, and no row of the log names its message. So this list notes the message when its
delivery becomes dead. The list is stored as one small value, in the same commit as the new state of the delivery.
"""

from collections import deque
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tieline.contract.delivery import Step
from tieline.contract.identifiers import MemberName
from tieline.contract.keys import Ranges
from tieline.core.directory import Account
from tieline.core.store import Store

DEAD_LETTERS_MAX = 100
"""Largest number of dead letters that are remembered: more than a person looks through."""
_SETTING = "dead_letters"


class DeadLetter(Struct, frozen=True, array_like=True):
    """A dead delivery: it could not be made. `offset` is the log offset of its message, `member` the recipient."""

    offset: int
    member: MemberName
    at_ms: int
    evidence: str


_decoder = msgspec.json.Decoder(list[DeadLetter])


class DeadLetters:
    """The newest dead deliveries, oldest first."""

    def __init__(self, settings: Mapping[str, bytes]) -> None:
        self.rows = deque(_decoder.decode(settings.get(_SETTING) or b"[]"), DEAD_LETTERS_MAX)
        # True if the rows differ from the stored value.
        self._unsaved = False

    def note(self, account: Account, ranges: Ranges, step: Step) -> None:
        """Note the deliveries of a member that are about to become dead. Call this before the inbox changes.

        `ranges` has their keys. `step` has the time and the reason.
        """
        for first, last in ranges:
            newest = min(last, account.inbox.next_key - 1)
            for key in range(max(first, newest - DEAD_LETTERS_MAX + 1), newest + 1):
                entry = account.inbox.entry(key)
                if entry is not None:
                    self.rows.append(DeadLetter(entry.offset, account.name, step.at_ms, step.evidence))
                    self._unsaved = True

    def save(self, store: Store) -> None:
        """Write the list of dead deliveries to the store, if the list changed."""
        if self._unsaved:
            store.save_setting(_SETTING, msgspec.json.encode(list(self.rows)))

    def committed(self) -> None:
        """Note that the saved list is durable, so that `save` writes it again only after the next change."""
        self._unsaved = False
