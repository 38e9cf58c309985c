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
- A command that settles deliveries (acknowledges or ends them) of a member with an external inbox waits for the inbox's
  answer, and later commands of the same session wait behind it. If nobody can answer the question any more, the
  delivery stays as it is.
- Replies about activity, about readers of the logs, and to searches are outside this order: they may come after
  replies to later commands.

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
    """Notice: a member was created."""

    name: MemberName


class MemberVanished(Struct, frozen=True, tag=True):
    """Notice: a member was removed."""

    name: MemberName


class ChannelAppeared(Struct, frozen=True, tag=True):
    """Notice: a channel got its first subscriber, or a new name."""

    name: ChannelName
    id: ChannelId


class ChannelVanished(Struct, frozen=True, tag=True):
    """Notice: no channel has this name any more."""

    name: ChannelName
    ended: bool = False
    """True if the channel got another name or was archived; false if its last subscriber left."""


class SubscriptionsChanged(Struct, frozen=True, tag=True):
    """Notice: a member joined or left a channel."""

    name: MemberName


Change = MemberAppeared | MemberVanished | ChannelAppeared | ChannelVanished | SubscriptionsChanged


class Posted(Struct, frozen=True, tag=True):
    """Notice: the hub accepted this message; `origin` is the session that sent it."""

    message: Message
    origin: SessionId


class Said(Struct, frozen=True, tag=True):
    """Notice: the hub accepted one or more messages. The notice does not contain them."""


Notice = Change | Posted | Said


class Interest(Struct, frozen=True, kw_only=True):
    """The kinds of notices that a watcher wants to get; see `Hub.watch`."""

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
    """The callbacks of a session: the hub calls them with news. They must return at once and never raise."""

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Take a new delivery of the session's member. Keys ascend; a skipped key is a delivery that is held.

        `key` is the delivery's key, `stream_seq` its number in its stream.
        """

    def released(self, keys: Sequence[int]) -> None:
        """Take the keys of deliveries that were skipped because they were held. `Fetch` returns them now."""

    def progress(self, step: Progress) -> None:
        """Take a change of state of a delivery, of a message that the session follows (`Follow`)."""

    def end(self, why: Refusal) -> None:
        """Take the reason for which the hub ended the session."""


class Question(Struct, frozen=True):
    """Question to a member's external inbox: may the hub acknowledge or end these deliveries?

    The inbox must win them first, because somebody outside the hub may already have taken them.
    """

    number: int
    member: MemberName
    deliveries: tuple[tuple[int, Message], ...]
    """The deliveries: the key and the message of each."""


class ExternalInbox(Protocol):
    """A second place, outside the hub, that also holds a member's deliveries, such as files in a folder.

    Others can take deliveries there, and the first to take one has it. The hub calls the methods in the order of its
    decisions. They must return at once and never raise.
    """

    def asked(self, question: Question) -> None:
        """Take back the deliveries that nobody outside has taken yet, and report by `Hub.resolve`."""

    def finish(self, keys: Sequence[int]) -> None:
        """Remove deliveries that this inbox won: the hub has stored that they are acknowledged or ended."""

    def give_back(self, keys: Sequence[int]) -> None:
        """Put deliveries that this inbox won back outside, where anybody can take them: the hub did not end them."""


class Hub(Protocol):
    """The operations of the hub that a protocol may use."""

    limits: Limits

    def submit(self, commands: Sequence[Command], done: Callable[[Sequence[Reply]], None] | None = None) -> None:
        """Give commands to the hub. `done` gets their replies, in order, when the results are stored durably."""

    async def ask(self, command: AnsweredBy[_R]) -> _R | Refusal:
        """Give one command to the hub, wait, and return its reply or a refusal."""

    def listen(self, session: SessionId, listener: Listener, member: MemberName | None = None) -> None:
        """Call this listener with news about the session, until `forget`.

        With `member`, also offer it every new delivery of that member from now on; a second call may add `member`.
        """

    def forget(self, session: SessionId) -> None:
        """Remove the listener of this session. A second call does nothing."""

    def tail(
        self, session: SessionId, member: MemberName, receiver: Callable[[Sequence[ActivityRow]], None]
    ) -> Callable[[], None]:
        """Call `receiver` with every new activity of a member, when it is stored durably.

        It ends with the session, or when the returned function is called. Call this method only after `FollowActivity`
        was answered by `Done`. The receiver must return at once and never raise.
        """

    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `receiver` with each notice of the kinds in `interest`, until the returned function is called.

        The receiver must return at once and never raise. A second call of the returned function does nothing.
        """

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        """Ask this external inbox before a delivery of the member is acknowledged or ended; `None` removes the inbox.

        `session` is the inbox's own session. For deliveries that this session acknowledges, the hub does not ask.
        """

    def resolve(self, question: int, won: Sequence[int], taken: Sequence[int]) -> None:
        """Answer the question with this number: the external inbox won the keys `won`, others had taken `taken`.

        The outcome of any other key is unknown. The hub then decides the commands that waited, and replies to them.
        """
