"""The Hub port: all that a protocol sees of the hub.

Above: protocols, the hub's own wire, the console. Below: the in-process exchange, or a remote hub. A protocol that
stands before this port cannot tell which. Everything here happens on one event loop, and in one order: replies,
offers and changes reach their receivers in the order in which the broker decided them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.channel import ChannelId
from tieline.contract.command import AnsweredBy, Command
from tieline.contract.identifiers import ChannelName, MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply

_R = TypeVar("_R")


class MemberAppeared(Struct, frozen=True):
    """A member was made."""

    name: MemberName


class MemberVanished(Struct, frozen=True):
    """A member was removed."""

    name: MemberName


class ChannelAppeared(Struct, frozen=True):
    """A channel has its first subscriber, or another name."""

    name: ChannelName
    id: ChannelId


class ChannelVanished(Struct, frozen=True):
    """A channel lost its last subscriber."""

    name: ChannelName


class SubscriptionsChanged(Struct, frozen=True):
    """A member joined or left a channel."""

    name: MemberName


Change = MemberAppeared | MemberVanished | ChannelAppeared | ChannelVanished | SubscriptionsChanged


class Listener(Protocol):
    """The receiving end of a session. Its methods return at once and never raise."""

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """A new delivery for the session's member. Keys come in order from `Hub.listen` on; those left out are held."""

    def released(self, keys: Sequence[int]) -> None:
        """Deliveries that were left out are held no more: `Fetch` has them now."""

    def progress(self, step: Progress) -> None:
        """A followed message took a step."""

    def end(self, why: Refusal) -> None:
        """The hub ended the session."""


class Observer(Protocol):
    """Sees what passes through the hub as a whole, for wires that are not sessions of a member."""

    def posted(self, message: Message, origin: SessionId) -> None:
        """A message was accepted from the session `origin`."""

    def changed(self, change: Change) -> None:
        """The set of members or channels changed."""


class Hub(Protocol):
    """What a protocol may do with the hub."""

    limits: Limits

    def submit(self, commands: Sequence[Command], done: Callable[[Sequence[Reply]], None] | None = None) -> None:
        """Hand over commands; `done` gets their replies, in order, after the commit that made them durable."""

    async def ask(self, command: AnsweredBy[_R]) -> _R | Refusal:
        """Hand over one command and wait for its reply."""

    def listen(self, session: SessionId, listener: Listener, member: MemberName | None = None) -> None:
        """Tell this listener what concerns the session, until `forget`.

        With `member`, also offer it every new delivery of that member from now on; this may be added later.
        """

    def forget(self, session: SessionId) -> None:
        """The listener of this session is gone. Saying so again does nothing."""

    def tail(
        self, session: SessionId, member: MemberName, receiver: Callable[[Sequence[ActivityRow]], None]
    ) -> Callable[[], None]:
        """Tell this receiver what a member does, once durable, until the session ends or the function is called.

        Only after `FollowActivity` was answered by `Done`. The receiver returns at once and never raises.
        """

    def observe(self, observer: Observer, *, posts: bool = True) -> Callable[[], None]:
        """Show everything to this observer until the returned function is called; without `posts`, only changes.

        Calling that function again does nothing.
        """


class Custodian(Protocol):
    """Holds a member's deliveries outside the hub as well, where others can take them: whoever is first has each.

    The hub asks before it settles one. It does so on its own thread, so the answer must be quick.
    """

    session: SessionId
    """The session of the custodian itself: what it settles there it has won before."""

    def win(self, message: Message, key: int) -> bool | None:
        """Take a delivery from those outside; false if one of them was first, `None` if that cannot be told."""

    def finish(self, keys: Sequence[int]) -> None:
        """What was won is settled, durably."""

    def give_back(self, keys: Sequence[int]) -> None:
        """What was won is not settled after all: it waits outside again, for whoever is first."""


class EntrustingHub(Hub, Protocol):
    """A hub that can leave deliveries with a custodian. One that is far away cannot: it would wait for each answer."""

    def entrust(self, member: MemberName, custodian: Custodian | None) -> None:
        """Ask this custodian from now on before a delivery of the member is settled; with `None`, nobody any more."""
