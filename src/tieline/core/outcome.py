"""What handling a batch of commands gave: replies, and what others must hear once it is durable."""

from msgspec import Struct, field

from tieline.contract.hub import Change
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply
from tieline.core.activity import Errand
from tieline.core.inquiry import Inquiry


class Post(Struct):
    """An accepted message with its deliveries, as parallel columns."""

    message: Message
    origin: SessionId
    recipients: list[MemberName]
    numbers: list[int]
    keys: list[int]
    stream_seqs: list[int]


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


class Outcome(Struct):
    """To be published after the commit, in this order: replies, changes, posts, progress, unseen, ended."""

    replies: list[Reply] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    progress: list[tuple[SessionId, Progress]] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    ended: list[tuple[SessionId, Refusal]] = field(default_factory=list)
    errands: dict[int, Errand | Inquiry] = field(default_factory=dict)
    """What the journal or the index has to do before the reply at this place can be given, which gives that reply."""
    urgent: bool = False
    """Whether somebody waits for the commit; if not, it may wait a little for more to ride along."""
