"""The Hub port: all that a protocol sees of the hub.

Above: protocols, the hub's own wire, the console. Below: the local hub, in process, or a remote hub. A protocol that
stands before this port cannot tell which. Everything here happens on one event loop, and every value that crosses the
port can be encoded.

Order:

- Commands of one session are decided in the order of their submission. Between sessions there is no order, but a
  session that replaces others opens after all that they had asked before.
- Replies, notices and offers come in the order of the decisions. Decisions that share a commit are told together: first
  all replies, then changes, `Said`, each message as `Posted` and then as offers, releases, progress, ends of sessions.
  So a reply comes before the notices of what its command did.
- A command that settles deliveries of a member with an external inbox waits for the inbox's answer, and what its
  session asks after it waits behind it. A question that nobody can answer any more leaves the delivery as it is.
- Replies about activity, and to searches, are made elsewhere: they may come after replies to later commands.

Losses:

- What a reply, a notice or an offer tells is durable, but for one thing: that a delivery was offered or acknowledged.
  After a crash that may be undone, and the delivery comes again under the same key.
- When the hub is lost, what waits for a reply is refused and all sessions end (`Listener.end`). A refused command may
  have been decided all the same: a wire id makes it safe to send again.
- An offer is made once. Whoever left some out, or comes back, asks for them (`Fetch`), from the last key that it has.
- A notice is given once, to those who watch at that moment, and never repeated. Whoever keeps a copy of what notices
  tell begins to watch first and reads the whole then (`ListMembers`, `ListChannels`); and again after its sessions
  ended, because notices may have been lost with them.
- `Said` stands for any number of messages. Whoever hears it reads on from the last offset that it has.
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
from tieline.contract.target import Target

_R = TypeVar("_R")


class MemberAppeared(Struct, frozen=True, tag=True):
    """A member was made."""

    name: MemberName


class MemberVanished(Struct, frozen=True, tag=True):
    """A member was removed."""

    name: MemberName


class ChannelAppeared(Struct, frozen=True, tag=True):
    """A channel has its first subscriber, or another name."""

    name: ChannelName
    id: ChannelId


class ChannelVanished(Struct, frozen=True, tag=True):
    """A channel lost its last subscriber."""

    name: ChannelName


class SubscriptionsChanged(Struct, frozen=True, tag=True):
    """A member joined or left a channel."""

    name: MemberName


Change = MemberAppeared | MemberVanished | ChannelAppeared | ChannelVanished | SubscriptionsChanged


class Posted(Struct, frozen=True, tag=True):
    """A message was accepted from the session `origin`."""

    message: Message
    origin: SessionId


class Said(Struct, frozen=True, tag=True):
    """Messages were accepted, one or more. Their content is not told."""


Notice = Change | Posted | Said


class Interest(Struct, frozen=True, kw_only=True):
    """The notices that a watcher wants, and no others."""

    members: bool = False
    """`MemberAppeared` and `MemberVanished`."""
    channels: bool = False
    """`ChannelAppeared` and `ChannelVanished`."""
    subscriptions: bool = False
    """`SubscriptionsChanged`."""
    targets: tuple[Target, ...] = ()
    """`Posted` for every message that is addressed to one of these."""
    senders: tuple[MemberName, ...] = ()
    """`Posted` for every message under one of these names, to whomever; see `Message.verified`."""
    said: bool = False
    """`Said` after anything was said. Several messages may be told of together."""


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


class Question(Struct, frozen=True):
    """Deliveries of a member that the hub wants to settle, for its external inbox to win."""

    number: int
    member: MemberName
    deliveries: tuple[tuple[int, Message], ...]
    """Keys and messages."""


class ExternalInbox(Protocol):
    """Holds a member's deliveries outside the hub as well, where others can take them: whoever is first has each.

    Its methods are called in the order of the hub's decisions, return at once and never raise.
    """

    def asked(self, question: Question) -> None:
        """Take these from those outside, as far as nobody was first, and tell by `Hub.resolve`."""

    def finish(self, keys: Sequence[int]) -> None:
        """What was won is settled, durably."""

    def give_back(self, keys: Sequence[int]) -> None:
        """What was won is not settled after all: it waits outside again, for whoever is first."""


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

    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        """Give this receiver the notices that it is interested in, until the returned function is called.

        The receiver returns at once and never raises. Calling that function again does nothing.
        """

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        """Ask this external inbox from now on before a delivery of the member is settled; with `None`, nobody any more.

        What is settled by this session, which is the inbox's own, was won before.
        """

    def resolve(self, question: int, won: Sequence[int], taken: Sequence[int]) -> None:
        """The external inbox has won these keys, and others were first at those; of any other key it cannot be told.

        Whatever waits for it is decided then, and answered.
        """
