"""Followers: sessions that are told of each step that a message takes.

Above: the broker, before deliveries move. Below: `Memory.followers`, by the log offset of the message.
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from tieline.contract.delivery import SETTLED, State
from tieline.contract.reply import Progress
from tieline.core.directory import Account
from tieline.core.outcome import Followed

if TYPE_CHECKING:
    from tieline.core.broker import Broker


def tell(broker: "Broker", account: Account, first: int, last: int, state: State) -> None:
    """Tell followers of those deliveries of a member, `first` to `last`, that are about to reach a state."""
    inbox, followers = account.inbox, broker.followers
    keys: Iterable[int] = range(max(first, inbox.first_unsettled), min(last, inbox.next_key - 1) + 1)
    if len(followers) < last - first:
        found = (inbox.find(offset) for offset in followers)
        keys = sorted(key for key in found if key is not None and first <= key <= last)
    for key in keys:
        entry = inbox.entry(key)
        if entry is None or entry.state >= state or entry.offset not in followers:
            continue
        if state <= State.ACKED and inbox.is_held(key):
            # It does not move: its member was not shown it.
            continue
        followed = followers[entry.offset]
        step = Progress(followed.message_id, account.name, state, broker.now_ms)
        broker.outcome.progress.extend((session, step) for session in followed.sessions)
        broker.outcome.urgent = True
        if state in SETTLED:
            broker.undo.append(partial(_follow_again, broker, entry.offset, followed, account.number))
            followed.unsettled.discard(account.number)
            if not followed.unsettled:
                del followers[entry.offset]


def _follow_again(broker: "Broker", offset: int, followed: Followed, number: int) -> None:
    followed.unsettled.add(number)
    broker.followers[offset] = followed
