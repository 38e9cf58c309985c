"""What handling a batch of commands gave: replies, and what others must hear once it is durable."""

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
    """Numbers of the recipients for whom it is held."""


class Unseen(Struct, frozen=True):
    """A message that a human is to be told of, because nothing shows that its recipient saw it."""

    member: MemberName
    message: Message


class Followed(Struct):
    """A message whose steps somebody wants to hear of."""

    message_id: MessageId
    sessions: set[SessionId]
    unsettled: set[int]
    """Numbers of the recipients that may still take a step."""


class Fault(Struct, frozen=True):
    """A command, or a chore of the hub, that raised."""

    place: int
    """Which command of its batch."""
    what: str
    error: Exception
    refusal: Refusal


class Deferred(Struct, frozen=True):
    """Stands in place of a reply that the journal or the search index makes when it has done this work."""

    work: Work | Inquiry


class Outcome(Struct):
    """To be published after the commit, in this order: replies, changes, posts, released, progress, unseen, ended."""

    replies: list[Reply | Deferred] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    released: dict[MemberName, list[int]] = field(default_factory=dict)
    """Keys of deliveries that are held no more, by recipient. Every reply of the batch was decided before that."""
    progress: list[tuple[SessionId, Progress]] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    ended: list[tuple[SessionId, Refusal]] = field(default_factory=list)
    unsettled: list[c.Settle] = field(default_factory=list)
    """What the hub itself would have settled, and has to be won from an external inbox first."""
    warnings: list[str] = field(default_factory=list)
    """Sentences for the log of who runs the hub."""
    faults: list[Fault] = field(default_factory=list)
    """Commands that raised, and were refused."""
    awaited: list[int] = field(default_factory=list)
    """Places of the replies that must not be given before the commit."""
    more: bool = False
    """Set if deliveries are left that are due to expire or to be released: begin the next batch at once."""
    urgent: bool = False
    """Whether somebody waits for the commit; if not, it may wait a little for more to ride along."""

    def spread(self, places: Sequence[int], count: int, refusal: Refusal) -> "Outcome":
        """The same for more commands: these replies stand at `places`, and all others are this refusal."""
        replies: list[Reply | Deferred] = [refusal] * count
        for place, reply in zip(places, self.replies, strict=True):
            replies[place] = reply
        return replace(self, replies=replies)
