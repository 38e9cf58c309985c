"""Watches: who is told of changes and messages without being a session that they concern.

Above: the local hub, on the event loop. Below: nothing. Each watch says what it wants (`Interest`), and is looked up by
that, so that a message costs nothing for those who did not ask for it.
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
"""A kind of notice, the target of a message, or the name of its sender."""


def _keys(interest: Interest) -> Iterable[_Key]:
    if interest.members:
        yield from (MemberAppeared, MemberVanished)
    if interest.channels:
        yield from (ChannelAppeared, ChannelVanished)
    if interest.subscriptions:
        yield SubscriptionsChanged
    if interest.said:
        yield Said
    yield from interest.targets
    yield from interest.senders


class Watches:
    """All watches of one hub, in the order in which they began."""

    def __init__(self) -> None:
        # Tuples, because a receiver that is being told something may begin or end a watch.
        self._receivers: dict[_Key, tuple[Receiver, ...]] = {}

    def add(self, interest: Interest, receiver: Receiver) -> Callable[[], None]:
        """Begin a watch; the returned function ends it."""
        keys = tuple(dict.fromkeys(_keys(interest)))

        # One of its own for each watch: the same receiver may be in several.
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
        """A member or channel came or went, or a member joined or left a channel."""
        self._tell(self._receivers.get(type(change), ()), change)

    def posted(self, message: Message, origin: SessionId) -> None:
        """A message was accepted. A watch that asked for its target and for its sender is told once."""
        receivers = self._receivers
        found = receivers.get(message.content.target, ())
        said = receivers.get(message.sender)
        if said is not None:
            found = (*found, *(receiver for receiver in said if receiver not in found))
        if found:
            self._tell(found, Posted(message, origin))

    def said(self) -> None:
        """Messages were accepted."""
        self._tell(self._receivers.get(Said, ()), Said())

    def _tell(self, receivers: Iterable[Receiver], notice: Notice) -> None:
        for receiver in receivers:
            try:
                receiver(notice)
            except Exception:
                # A receiver that fails must not keep the others from hearing.
                log.exception("a receiver failed")
