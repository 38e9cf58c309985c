"""Streams: one ordered sequence of messages for each topic, sender and recipient.

The module finds the deliveries that a recipient missed.
"""

from collections.abc import Collection
from functools import lru_cache

from tieline.contract import command as c
from tieline.contract.delivery import Replayed, State, StreamCursor
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Reply, Streams, StreamView
from tieline.core.directory import Account, Session
from tieline.core.rules import Rules, decides
from tieline.core.store import Store

_SEPARATOR = "\x1f"

_LOOKS_MAX = 1000
"""Largest number of messages read for one answer to `ReadStreams`."""
_LOOKS_MIN = 16


@lru_cache(maxsize=1024)
def stream_name(sender: str, topic: str) -> str:
    """Return the name of the stream for a message. Senders without an identity at the same place share one stream."""
    _, at, place = sender.partition("@")
    return f"{at + place if at else sender}{_SEPARATOR}{topic}"


def refuse_more(accounts: Collection[Account], stream: str, limits: Limits) -> Refusal | None:
    """Return a refusal if a recipient already has too many streams, so that `stream` cannot be added; otherwise `None`.

    There is a limit because each new topic makes a new stream, and a sender can invent any number of topics.
    """
    sender = stream.partition(_SEPARATOR)[0] + _SEPARATOR
    for account in accounts:
        if stream in account.streams:
            continue
        if len(account.streams) >= limits.streams_max:
            return Refusal(Code.TOO_MANY_STREAMS, f"{account.name} has {len(account.streams)} streams")
        if len(account.streams) >= limits.topics_max:
            own = sum(other.startswith(sender) for other in account.streams)
            if own >= limits.topics_max:
                return Refusal(Code.TOO_MANY_STREAMS, f"{account.name} has {own} topics of this sender already")
    return None


class StreamRules(Rules):
    """Rule for the command `ReadStreams`, by which a member finds the deliveries that it missed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @decides(c.ReadStreams)
    def read(self, session: Session, command: c.ReadStreams) -> Reply:
        """Reply with the last number in each stream of the session's member, and the deliveries that it missed.

        A stream has the messages of one sender on one topic.
        """
        if session.account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member has streams")
        positions = {(position.topic, position.peer): position.last_seq for position in command.positions}
        views = []
        missing: dict[str, range] = {}
        for stream, last_seq in session.account.streams.items():
            peer, _, topic = stream.partition(_SEPARATOR)
            position = positions.get((topic, peer), positions.get((topic, None)))
            views.append(StreamView(topic=topic, peer=peer, position=position, last_seq=last_seq))
            if position is not None and position < last_seq:
                missing[stream] = range(max(position, 0) + 1, last_seq + 1)
        views.sort(key=lambda view: (view.topic, view.peer))
        found, following, stale = self._find(session, missing, command.following)
        return Streams(streams=tuple(views), replay=tuple(found), stale=stale, following=following)

    def _find(
        self, session: Session, missing: dict[str, range], cursor: StreamCursor | None
    ) -> tuple[list[Replayed], StreamCursor | None, bool]:
        """Return missed deliveries, in key order; the cursor for the next page; and true if some are no longer stored.

        `missing` has, for each stream, the numbers of the deliveries to find. `cursor` came with the previous page.

        The result leaves out unsettled deliveries (not acked, expired or dead), because the hub sends them again by
        itself. A session that cannot acknowledge gets each delivery only once. So for such a session the result also
        has unsettled deliveries that were offered before.
        """
        account = session.account
        assert account is not None, "only a member has streams"
        found: list[Replayed] = []
        looks = _LOOKS_MAX
        stale = False
        for stream in sorted(stream for stream in missing if cursor is None or stream >= cursor.stream):
            wanted = missing[stream]
            if cursor is None or cursor.stream != stream:
                cursor = StreamCursor(stream, None, len(wanted))
            peer, _, topic = stream.partition(_SEPARATOR)
            before, left, more = cursor.before, cursor.left, True
            while more:
                if looks <= 0:
                    return _in_order(found), StreamCursor(stream, before, left), stale
                # Usually the missing messages are the newest, so a page of about that size is enough.
                limit = min(looks, len(wanted) + _LOOKS_MIN)
                page = self._store.received(account.number, account.name, peer, before, limit)
                looks -= page.looked
                before, more = page.following, page.following is not None
                for one in page.received:
                    if one.topic != topic or one.stream_seq not in wanted:
                        continue
                    left -= 1
                    entry = account.inbox.entry(one.key)
                    if entry is None or (not session.acknowledges and entry.state is not State.PENDING):
                        found.append(Replayed(one.key, one.offset, one.stream_seq))
                    # Stream sequences grow with log offsets, so older messages have lower sequences.
                    more = more and one.stream_seq > wanted.start
            looks -= 1
            stale = stale or left > 0
        return _in_order(found), None, stale


def _in_order(found: list[Replayed]) -> list[Replayed]:
    return sorted(found, key=lambda replayed: replayed.key)
