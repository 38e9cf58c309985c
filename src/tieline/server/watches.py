"""Watches: callbacks that get notices about messages and changes, even if these do not concern their own session.

Used by: the local hub, on the event loop. Uses: nothing. Each watch has an `Interest`: the notices that it asks for. A
table finds the watches of a message by their interest, so other watches cost no time.
"""

from collections.abc import Callable, Iterable

import structlog

from tieline.contract.hub import (
    Change,
    ChannelAppeared,
    ChannelVanished,
    Interest,
    MemberAppeared,
    MemberVanished,
    MessageRedacted,
    Notice,
    Posted,
    Said,
    SubscriptionsChanged,
)
from tieline.contract.identifiers import SessionId
from tieline.contract.message import Message
from tieline.contract.target import Target

log = structlog.get_logger(__name__)

Receiver = Callable[[Notice], None]

_Key = type | Target | str
"""Key by which the callbacks for a notice are found: a kind of notice, the target of a message, or its sender's
name."""


def _keys(interest: Interest) -> Iterable[_Key]:
    if interest.members:
        yield from (MemberAppeared, MemberVanished)
    if interest.channels:
        yield from (ChannelAppeared, ChannelVanished)
    if interest.subscriptions:
        yield SubscriptionsChanged
    if interest.redactions:
        yield MessageRedacted
    if interest.said:
        yield Said
    yield from interest.targets
    yield from interest.senders


class Watches:
    """Table of all watches of one hub. A watch is a callback with an `Interest`: the notices that it wants to get."""

    def __init__(self) -> None:
        # Tuples, because a receiver may start or end a watch while it is called.
        self._receivers: dict[_Key, tuple[Receiver, ...]] = {}

    def add(self, interest: Interest, receiver: Receiver) -> Callable[[], None]:
        """Call `receiver` with every notice that matches `interest`. Return a function that ends this watch."""
        keys = tuple(dict.fromkeys(_keys(interest)))

        # Each watch has its own function, because several watches may share a receiver.
        def tell(notice: Notice) -> None:
            receiver(notice)

        for key in keys:
            self._receivers[key] = (*self._receivers.get(key, ()), tell)

        def stop() -> None:
            for key in keys:
                left = tuple(other for other in self._receivers.pop(key, ()) if other is not tell)
                if left:
                    self._receivers[key] = left

        return stop

    def changed(self, change: Change) -> None:
        """Tell the interested watches about a change of members, channels, subscriptions or a message."""
        self._tell(self._receivers.get(type(change), ()), change)

    def posted(self, message: Message, origin: SessionId) -> None:
        """Tell the interested watches about an accepted message. `origin` is the session that sent the message.

        A watch that matches both the target and the sender of the message gets only one notice.
        """
        receivers = self._receivers
        found = receivers.get(message.content.target, ())
        said = receivers.get(message.sender)
        if said is not None:
            found = (*found, *(receiver for receiver in said if receiver not in found))
        if found:
            self._tell(found, Posted(message, origin))

    def said(self) -> None:
        """Tell the watches with `Interest.said` that the hub has accepted some messages.

        The notice does not contain the messages.
        """
        self._tell(self._receivers.get(Said, ()), Said())

    def _tell(self, receivers: Iterable[Receiver], notice: Notice) -> None:
        for receiver in receivers:
            try:
                receiver(notice)
            except Exception:
                # One failing receiver must not stop the notices to the others.
                log.exception("a receiver failed")
