"""The outcome of a batch of commands: the replies, and the news for other sessions.

The caller of the broker publishes the outcome (tells it to clients) after the commit.
"""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.hub import Change
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.keys import join_keys
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply
from tieline.core.journal import Work
from tieline.core.search_query import SearchQuery


class Post(Struct):
    """Record of an accepted message with its deliveries. `origin` is the session that sent it.

    The four lists have one value for each recipient, in the same order: the name, the member number, the key of the
    delivery, and the number of the message in its stream.
    """

    message: Message
    origin: SessionId
    recipients: list[MemberName]
    numbers: list[int]
    keys: list[int]
    stream_seqs: list[int]
    held: set[int] = field(default_factory=set)
    """Numbers of the recipients whose delivery is held."""


class Unseen(Struct, frozen=True):
    """A message that a human must be notified about, because nothing proves that its recipient saw it."""

    member: MemberName
    message: Message


class Followed(Struct):
    """Record of a message, and of the sessions that are informed about each status change of its deliveries."""

    message_id: MessageId
    sessions: set[SessionId]
    unsettled: set[int]
    """Numbers of the recipients whose delivery is not settled: not acked, expired or dead."""


class Fault(Struct, frozen=True):
    """Record of an exception in a command or in a regular task of the hub. `refusal` is the reply to the command."""

    index: int
    """Index of the command in its batch. For a task that runs after all commands, it is the number of commands."""
    what: str
    error: Exception
    refusal: Refusal


class Deferred(Struct, frozen=True):
    """Placeholder for a reply that comes later, from the journal or the search index.

    `work` is the request that the journal or the search index carries out. If it succeeds and there is a command
    `then`, the reply is the reply to that command.
    """

    work: Work | SearchQuery
    then: c.Command | None = None


class Outcome(Struct):
    """Results of a batch of commands: replies, new messages, changes that others must know, faults.

    Publish them (tell clients) after the commit, in this order: replies, changes, posts, released, progress, unseen,
    ended.
    """

    replies: list[Reply | Deferred] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    released: dict[MemberName, list[int]] = field(default_factory=dict)
    """Keys of deliveries that were released, by recipient. They were released after all commands of the batch were
    decided."""
    progress: list[tuple[SessionId, Progress]] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    ended: list[tuple[SessionId, Refusal]] = field(default_factory=list)
    unsettled: dict[tuple[MemberName, State, str], list[int]] = field(default_factory=dict)
    """Keys of deliveries to settle, by member, state and evidence. The external inbox of the member must be asked
    first."""
    warnings: list[str] = field(default_factory=list)
    """Sentences for the person who runs the hub. The hub's process writes them to its diagnostic log."""
    faults: list[Fault] = field(default_factory=list)
    """Exceptions of commands and of regular tasks. The commands were refused."""
    awaited: list[int] = field(default_factory=list)
    """Indexes of the replies that must wait for the commit."""
    more: bool = False
    """True if due deliveries are left to expire or release. In this case, the next batch must begin at once."""
    urgent: bool = False
    """True if a client waits for the commit. Otherwise the commit may wait briefly for more batches."""

    @property
    def has_news(self) -> bool:
        """True if there is anything to publish beside replies: news for others, or work that is deferred."""
        news = self.posts or self.changes or self.released or self.progress or self.unseen or self.ended
        return bool(news or self.warnings) or Deferred in map(type, self.replies)

    def settle_commands(self) -> list[c.Settle]:
        """Return commands that acknowledge or end (settle) the deliveries in `unsettled`.

        Before you pass these commands to the broker, ask the external inboxes to reserve the deliveries for the hub.
        """
        return [
            c.Settle(member=member, ranges=join_keys(keys), state=state, evidence=evidence)
            for (member, state, evidence), keys in self.unsettled.items()
        ]

    def with_undecided(self, places: Sequence[int], count: int, refusal: Refusal) -> "Outcome":
        """Return a copy of this outcome with `count` replies.

        Use this if the broker handled only some of `count` commands: the commands at the indexes `places`. These
        commands get the replies of this outcome, in order. All other commands get `refusal`.
        """
        replies: list[Reply | Deferred] = [refusal] * count
        for place, reply in zip(places, self.replies, strict=True):
            replies[place] = reply
        return replace(self, replies=replies)
