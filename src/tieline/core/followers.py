"""Followers: sessions that asked to be informed about each status change of a message's deliveries.

The rules that move deliveries, escalate them, or end sessions call this module. The followers are kept in memory only.
A rollback undoes the changes that the failed batch made to the followers.
"""

from collections.abc import Iterable
from functools import partial

from tieline.contract.delivery import SETTLED, State
from tieline.contract.identifiers import SessionId
from tieline.contract.keys import Ranges, each_key
from tieline.contract.message import Message
from tieline.contract.reach import Way
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Progress
from tieline.core.batch import Batch
from tieline.core.directory import Account, Session
from tieline.core.outcome import Followed


class Followers:
    """The messages that sessions follow. A session is informed about each status change of these messages."""

    __slots__ = ("_batch", "_limits", "by_offset")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._limits = batch.limits
        # Key: the log offset of the message.
        self.by_offset: dict[int, Followed] = {}

    def follow(self, session: Session, message: Message, unsettled: set[int]) -> Refusal | None:
        """From now on, inform a session about each status change of a message's deliveries.

        Return a refusal if too many messages are followed; otherwise `None`. `unsettled` has the numbers of the
        recipients whose delivery is not acked, expired or dead yet.
        """
        followers, limits = self.by_offset, self._limits
        own = sum(session.id in other.sessions for other in followers.values())
        if own >= limits.session_follows_max:
            return Refusal(Code.TOO_MANY_FOLLOWED, f"this session follows {own} unsettled messages already")
        if len(followers) >= limits.follows_max and message.offset not in followers:
            return Refusal(Code.TOO_MANY_FOLLOWED, f"{limits.follows_max} unsettled messages are followed already")
        followed = followers.setdefault(message.offset, Followed(message.id, set(), unsettled))
        if session.id not in followed.sessions:
            followed.sessions.add(session.id)
            self._batch.undo.append(partial(self._unfollow, message.offset, session.id))
        return None

    def drop(self, session: Session) -> None:
        """Stop informing a session about the messages that it follows, for example because it ends."""
        followers = self.by_offset
        for offset in [offset for offset, one in followers.items() if session.id in one.sessions]:
            followed = followers[offset]
            followed.sessions.remove(session.id)
            self._batch.undo.append(partial(self._put_back_session, offset, followed, session.id))
            if not followed.sessions:
                del followers[offset]

    def tell(self, account: Account, first: int, last: int, state: State) -> None:
        """Tell followers that deliveries of a member, with keys `first` to `last`, are about to move to `state`."""
        inbox, followers, batch = account.inbox, self.by_offset, self._batch
        keys: Iterable[int] = range(max(first, inbox.first_unsettled), min(last, inbox.next_key - 1) + 1)
        if len(followers) < last - first:
            found = (inbox.find(offset) for offset in followers)
            keys = sorted(key for key in found if key is not None and first <= key <= last)
        for key in keys:
            entry = inbox.entry(key)
            if entry is None or entry.state >= state or entry.offset not in followers:
                continue
            if state <= State.ACKED and inbox.is_held(key):
                # A held delivery does not move, because its member has not received it yet.
                continue
            followed = followers[entry.offset]
            self._say(
                followed, Progress(message_id=followed.message_id, member=account.name, state=state, at_ms=batch.now_ms)
            )
            batch.outcome.urgent = True
            if state in SETTLED:
                batch.undo.append(partial(self._put_back, entry.offset, followed, account.number))
                followed.unsettled.discard(account.number)
                if not followed.unsettled:
                    del followers[entry.offset]

    def tell_fall(self, account: Account, ranges: Ranges, way: Way) -> None:
        """Tell followers that unseen deliveries of a member (`ranges` of keys) were escalated to another way, `way`."""
        for key in each_key(ranges):
            entry = account.inbox.entry(key)
            followed = self.by_offset.get(entry.offset) if entry else None
            if entry is not None and followed is not None:
                now_ms = self._batch.now_ms
                self._say(
                    followed,
                    Progress(
                        message_id=followed.message_id,
                        member=account.name,
                        state=entry.state,
                        at_ms=now_ms,
                        way=way.value,
                    ),
                )

    def _say(self, followed: Followed, step: Progress) -> None:
        self._batch.outcome.progress.extend((session, step) for session in followed.sessions)

    def _unfollow(self, offset: int, session: SessionId) -> None:
        # The changes that were made later are undone already, so the message is followed here.
        followed = self.by_offset[offset]
        followed.sessions.remove(session)
        if not followed.sessions:
            del self.by_offset[offset]

    def _put_back(self, offset: int, followed: Followed, number: int) -> None:
        followed.unsettled.add(number)
        self.by_offset[offset] = followed

    def _put_back_session(self, offset: int, followed: Followed, session: SessionId) -> None:
        followed.sessions.add(session)
        self.by_offset[offset] = followed
