"""The outcome of a batch of commands: replies, and news for other sessions after the commit."""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.hub import Change
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply
from tieline.core.inquiry import Inquiry
from tieline.core.journal import Work


class Post(Struct):
    """An accepted message with its deliveries, as parallel columns."""

    message: Message
    origin: SessionId
    recipients: list[MemberName]
    numbers: list[int]
    keys: list[int]
    stream_seqs: list[int]
    held: set[int] = field(default_factory=set)
    """Numbers of the recipients whose delivery is held."""


class Unseen(Struct, frozen=True):
    """A message to report to a human, because nothing proves that its recipient saw it."""

    member: MemberName
    message: Message


class Followed(Struct):
    """A message that sessions follow."""

    message_id: MessageId
    sessions: set[SessionId]
    unsettled: set[int]
    """Numbers of the recipients whose delivery is not settled."""


class Fault(Struct, frozen=True):
    """A command, or a chore of the hub, that raised."""

    place: int
    """Index of the command in its batch."""
    what: str
    error: Exception
    refusal: Refusal


class Deferred(Struct, frozen=True):
    """Placeholder for a reply that the journal or the search index gives later, after this work."""

    work: Work | Inquiry


class Outcome(Struct):
    """Publish after the commit, in this order: replies, changes, posts, released, progress, unseen, ended."""

    replies: list[Reply | Deferred] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    released: dict[MemberName, list[int]] = field(default_factory=dict)
    """Keys of released deliveries, by recipient. Every reply of the batch was decided before the release."""
    progress: list[tuple[SessionId, Progress]] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    ended: list[tuple[SessionId, Refusal]] = field(default_factory=list)
    unsettled: list[c.Settle] = field(default_factory=list)
    """Deliveries that the hub itself wants to settle, but must first win from an external inbox."""
    warnings: list[str] = field(default_factory=list)
    """Sentences for the log of the person who runs the hub."""
    faults: list[Fault] = field(default_factory=list)
    """Commands and chores that raised. The commands were refused."""
    awaited: list[int] = field(default_factory=list)
    """Indexes of the replies that must wait for the commit."""
    more: bool = False
    """True if due deliveries are left to expire or release. Then begin the next batch at once."""
    urgent: bool = False
    """True if a client waits for the commit. Otherwise the commit may wait briefly for more batches."""

    def spread(self, places: Sequence[int], count: int, refusal: Refusal) -> "Outcome":
        """Copy this outcome for `count` commands: its replies go to `places`, and `refusal` to all other indexes."""
        replies: list[Reply | Deferred] = [refusal] * count
        for place, reply in zip(places, self.replies, strict=True):
            replies[place] = reply
        return replace(self, replies=replies)
