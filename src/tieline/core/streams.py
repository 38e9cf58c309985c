"""Streams: the ordered sequence per (topic, sender, recipient), and what a recipient needs to go on in its own."""

from typing import TYPE_CHECKING

from tieline.contract import command as c
from tieline.contract.delivery import Replayed, State
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Reply, Streams, StreamView
from tieline.core.directory import Account

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_SEPARATOR = "\x1f"


def stream_name(sender: str, topic: str) -> str:
    """The stream of a recipient that a message counts in. Those without an identity share one per place."""
    _, at, place = sender.partition("@")
    return f"{at + place if at else sender}{_SEPARATOR}{topic}"


def read(broker: "Broker", command: c.ReadStreams) -> Reply:
    """Where the streams of the session's member stand, and what it has to be given again."""
    session = broker.session(command.session)
    if isinstance(session, Refusal):
        return session
    if session.account is None:
        return Refusal(Code.INVALID_REQUEST, "only a member has streams")
    positions = {(position.topic, position.peer): position.last_seq for position in command.positions}
    views = []
    missing: dict[str, range] = {}
    for stream, last_seq in session.account.streams.items():
        peer, _, topic = stream.partition(_SEPARATOR)
        position = positions.get((topic, peer), positions.get((topic, None)))
        views.append(StreamView(topic, peer, position, last_seq))
        if position is not None and position < last_seq:
            missing[stream] = range(max(position, 0) + 1, last_seq + 1)
    views.sort(key=lambda view: (view.topic, view.peer))
    replay, left = _find(broker, session.account, missing, given_once=not session.acknowledges)
    return Streams(tuple(views), tuple(replay), left > 0)


def _find(
    broker: "Broker", account: Account, missing: dict[str, range], *, given_once: bool
) -> tuple[list[Replayed], int]:
    """What of the missing does not come by itself, in key order, and how many are not kept any more.

    What is not settled comes by itself, but to one who is given each delivery once only until it was offered.
    """
    found: list[Replayed] = []
    left = sum(map(len, missing.values()))
    if not left:
        return found, 0
    for received in broker.store.received(account.number):
        wanted = missing.get(stream_name(received.sender, received.topic))
        if wanted is None or received.stream_seq not in wanted:
            continue
        left -= 1
        entry = account.inbox.entry(received.key)
        if entry is None or (given_once and entry.state is not State.PENDING):
            found.append(Replayed(received.key, received.offset, received.stream_seq))
        if not left:
            break
    found.reverse()
    return found, left
