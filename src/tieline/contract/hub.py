"""The interface `Hub`, through which protocols use the hub.

Protocols, the hub's own wire and the console call this interface. The local hub (in this process) and the remote hub
implement it. A protocol cannot tell a local hub from a remote one. Everything here happens on one event loop, and every
value that goes through the interface can be encoded.

Order:

- Commands of one session are handled in the order in which they were submitted. Commands of different sessions have no
  order, with one exception. If a new session replaces other sessions, it opens after all earlier commands of the
  replaced sessions.
- Replies, notices and offers (new deliveries) come in the order in which the hub handled the commands. The results of
  commands that share a commit come together: first all replies, then changes, `Said`, each message as `Posted` and then
  as offers, releases, progress, ends of sessions. So a reply comes before the notices about the effects of its command.
- A member may have an external inbox. A command that settles (acknowledges or ends) deliveries of such a member waits
  for the answer of the external inbox. Later commands of the same session wait behind that command. If no answer can
  come any more, the deliveries stay as they are.
- Replies about activity, about readers of the logs, and to searches are outside this order. They may come after replies
  to later commands.

Losses:

- Replies, notices and offers report durable facts, with one exception. A crash may undo the fact that a delivery was
  offered or acknowledged. The delivery then comes again under the same key.
- A remote hub that loses its connection to the hub connects again and goes on. Nothing is lost or done twice.
- When the connection is lost for good, commands that wait for a reply are refused and all sessions end
  (`Listener.end`). The hub may still have carried out a refused command. A client that gave its message a wire id can
  safely send the message again.
- An offer is made once. A client that skipped offers, or that reconnects, fetches them from its last key on (`Fetch`).
- A notice is given once, to the watchers of that moment, and never repeated. A client that keeps its own copy of the
  members or channels starts to watch first, and then reads the whole list (`ListMembers`, `ListChannels`). When its
  sessions have ended, the client reads the whole list again, because it may have missed notices.
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
    """True if the channel was renamed or archived. False if it was removed because its last subscriber left."""


class SubscriptionsChanged(Struct, frozen=True, tag=True):
    """Notice: a member joined or left a channel."""

    name: MemberName


class MessageRedacted(Struct, frozen=True, tag=True):
    """Notice: the content of a message was erased. Every copy of the content must go.

    The notice may come again for the same message, because a crash may have interrupted the deletion of copies.
    """

    message: Message
    """The message as it is now, with a note in the place of its content."""
    attachments: tuple[str, ...] = ()
    """Paths of the files that were attached to the message."""
    repeats_ms: int | None = None
    """Time of the redaction, if this notice repeats an earlier one. A file that was written later is no copy."""


Change = MemberAppeared | MemberVanished | ChannelAppeared | ChannelVanished | SubscriptionsChanged | MessageRedacted


class Posted(Struct, frozen=True, tag=True):
    """Notice: the hub accepted this message; `origin` is the session that sent it."""

    message: Message
    origin: SessionId


class Said(Struct, frozen=True, tag=True):
    """Notice: the hub accepted one or more messages. The notice does not contain them."""


Notice = Change | Posted | Said


class Interest(Struct, frozen=True, kw_only=True):
    """Filter for notices: the kinds of notices that a caller of `Hub.watch` wants to get."""

    members: bool = False
    """True to get `MemberAppeared` and `MemberVanished`."""
    channels: bool = False
    """True to get `ChannelAppeared` and `ChannelVanished`."""
    subscriptions: bool = False
    """True to get `SubscriptionsChanged`."""
    targets: tuple[Target, ...] = ()
    """Get `Posted` for every message to one of these targets."""
    senders: tuple[MemberName, ...] = ()
    """Get `Posted` for every message from one of these senders. The name may be unproven; see `Message.verified`."""
    redactions: bool = False
    """True to get `MessageRedacted`."""
    said: bool = False
    """True to get `Said` after messages were accepted. One notice may stand for several messages."""


class Listener(Protocol):
    """Callbacks for one session. The hub calls them when there is news. They must return at once and never raise."""

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Receive a new delivery for the session's member.

        `key` is the key of the delivery, and `stream_seq` is its number in its stream (the messages of one sender on
        one topic). Keys ascend. If a key is skipped, the delivery with that key is held (not to be delivered yet).
        """

    def released(self, keys: Sequence[int]) -> None:
        """Receive the keys of deliveries that were held (not to be delivered yet) and are released now.

        `Fetch` returns these deliveries.
        """

    def progress(self, step: Progress) -> None:
        """Receive a change of a delivery. The session follows the message of this delivery (`Follow`)."""

    def end(self, why: Refusal) -> None:
        """Receive the reason why the hub ended the session."""


class Question(Struct, frozen=True):
    """Question to a member's external inbox: may the hub settle (acknowledge or end) these deliveries?

    A process outside the hub may already have taken some of these deliveries. The inbox reserves the other deliveries
    for the hub.
    """

    number: int
    member: MemberName
    deliveries: tuple[tuple[int, Message], ...]
    """The key and the message of each delivery that the hub asks about."""


class ExternalInbox(Protocol):
    """Interface of a place outside the hub that also has a member's deliveries, for example as files in a folder.

    Processes outside the hub can take deliveries from this place. A delivery belongs to the first process that takes
    it. The hub calls the methods in the order in which it handles commands. They must return at once and never raise.
    """

    def asked(self, question: Question) -> None:
        """Reserve for the hub each delivery of the question that no process outside has taken.

        Report the result by `Hub.resolve`.
        """

    def finish(self, keys: Sequence[int]) -> None:
        """Remove these deliveries from this inbox.

        They were reserved for the hub. The hub has settled them: acknowledged or ended.
        """

    def give_back(self, keys: Sequence[int]) -> None:
        """Let processes outside take these deliveries again.

        They were reserved for the hub, but the hub did not settle (acknowledge or end) them.
        """


class Hub(Protocol):
    """Interface of the hub: the operations that a protocol may use."""

    limits: Limits

    def submit(self, commands: Sequence[Command], done: Callable[[Sequence[Reply]], None] | None = None) -> None:
        """Pass commands to the hub. When their results are durable, the hub calls `done` with the replies, in order."""

    async def ask(self, command: AnsweredBy[_R]) -> _R | Refusal:
        """Pass one command to the hub, wait, and return its reply or a refusal."""

    def listen(self, session: SessionId, listener: Listener, member: MemberName | None = None) -> None:
        """Call this listener with news about the session, until `forget`.

        With `member`, the listener is also offered every new delivery of that member from now on. A second call for the
        same session may add `member`.
        """

    def forget(self, session: SessionId) -> None:
        """Remove the listener of this session. A second call does nothing."""

    def tail(
        self, session: SessionId, member: MemberName, receiver: Callable[[Sequence[ActivityRow]], None]
    ) -> Callable[[], None]:
        """Call `receiver` with every new activity of a member, when it is stored durably.

        The calls stop when the session ends, or when the returned function is called. Use this method only after the
        hub has replied `Done` to `FollowActivity`. The receiver must return at once and never raise.
        """

    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        """Call `receiver` with each notice of the kinds in `interest`, until the returned function is called.

        The receiver must return at once and never raise. A second call of the returned function does nothing.
        """

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        """Make `inbox` the external inbox of a member.

        From now on, before the hub settles (acknowledges or ends) a delivery of the member, it asks the inbox to
        reserve the delivery. `None` removes the external inbox. `session` is the inbox's own session. The hub does not
        ask about deliveries that this session itself settles.
        """

    def resolve(self, question: int, reserved: Sequence[int], taken: Sequence[int]) -> None:
        """Answer a question of the hub (`ExternalInbox.asked`). `question` is the number of the question.

        `reserved` are the keys of deliveries that the inbox keeps for the hub. Other processes have taken the
        deliveries with the keys `taken`. The inbox knows nothing about any other delivery. The hub now handles the
        commands that waited for this answer.
        """
