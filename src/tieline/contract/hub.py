"""The Hub port: all that a protocol sees of the hub.

Above: protocols, the hub's own wire, the console. Below: the local hub, in process, or a remote hub. A protocol cannot
tell a local hub from a remote one. Everything here happens on one event loop, and every value that crosses the port can
be encoded.

Order:

- Commands of one session are decided in the order of their submission. Commands of different sessions have no order,
  except that a session that replaces others opens after all earlier commands of those sessions.
- Replies, notices and offers come in the order of the decisions. Decisions that share a commit are published together:
  first all replies, then changes, `Said`, each message as `Posted` and then as offers, releases, progress, ends of
  sessions. So a reply comes before the notices about the effects of its command.
- A command that settles deliveries of a member with an external inbox waits for the inbox's answer, and later commands
  of the same session wait behind it. If nobody can answer the question any more, the delivery stays as it is.
- Replies about activity and replies to searches are outside this order: they may come after replies to later commands.

Losses:

- Replies, notices and offers report durable facts, with one exception: the fact that a delivery was offered or
  acknowledged. A crash may undo that fact, and then the delivery comes again under the same key.
- When the hub is lost, commands that wait for a reply are refused and all sessions end (`Listener.end`). A refused
  command may still have been decided: a wire id makes it safe to send again.
- An offer is made once. A client that skipped offers, or that reconnects, fetches them from its last key on (`Fetch`).
- A notice is given once, to the watchers of that moment, and never repeated. A client that keeps a copy of the state
  behind notices starts to watch first and then reads the whole state (`ListMembers`, `ListChannels`). The client reads
  the whole state again after its sessions ended, because notices may have been lost with them.
- `Said` stands for any number of messages. A client that receives `Said` reads on from its last offset.
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
    """One or more messages were accepted. The notice does not contain them."""


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
    """`Posted` for every message from one of these names, to any target; see `Message.verified`."""
    said: bool = False
    """`Said` after messages were accepted. One notice may stand for several messages."""


class Listener(Protocol):
    """The receiving end of a session. Its methods return at once and never raise."""

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """A new delivery for the session's member. Keys come in order from `Hub.listen` on; skipped keys are held."""

    def released(self, keys: Sequence[int]) -> None:
        """Skipped deliveries were released from their hold: `Fetch` returns them now."""

    def progress(self, step: Progress) -> None:
        """A followed message took a step."""

    def end(self, why: Refusal) -> None:
        """The hub ended the session."""


class Question(Struct, frozen=True):
    """Deliveries of a member that the hub wants to settle. The member's external inbox must win them first."""

    number: int
    member: MemberName
    deliveries: tuple[tuple[int, Message], ...]
    """Keys and messages."""


class ExternalInbox(Protocol):
    """Keeps a member's deliveries outside the hub as well, where others can take them. The first to take one has it.

    Its methods are called in the order of the hub's decisions, return at once and never raise.
    """

    def asked(self, question: Question) -> None:
        """Take back the deliveries that nobody outside has taken yet, and report by `Hub.resolve`."""

    def finish(self, keys: Sequence[int]) -> None:
        """The deliveries that this inbox won are settled, durably."""

    def give_back(self, keys: Sequence[int]) -> None:
        """The deliveries that this inbox won are not settled after all. Put them back outside, for anybody to take."""


class Hub(Protocol):
    """The operations of the hub that a protocol may use."""

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
        """Remove the listener of this session. A second call does nothing."""

    def tail(
        self, session: SessionId, member: MemberName, receiver: Callable[[Sequence[ActivityRow]], None]
    ) -> Callable[[], None]:
        """Give a member's activity to this receiver, once durable, until the session ends or the function is called.

        Call it only after `FollowActivity` was answered by `Done`. The receiver returns at once and never raises.
        """

    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        """Give this receiver the notices that it is interested in, until the returned function is called.

        The receiver returns at once and never raises. Calling that function again does nothing.
        """

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        """Ask this external inbox before each settlement of the member's deliveries; `None` removes the inbox.

        `session` is the inbox's own session. The inbox has already won the deliveries that this session settles.
        """

    def resolve(self, question: int, won: Sequence[int], taken: Sequence[int]) -> None:
        """Answer a question: the external inbox won the keys `won`, and others had taken the keys `taken` first.

        The outcome of any other key is unknown. The hub then decides the commands that waited, and replies to them.
        """
