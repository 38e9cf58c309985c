"""Answer shapes of ac7's channels, as the protocol's existing clients read them."""

from typing import Literal

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name, Slug


class Channel(Closed, frozen=True):
    """Part of an answer: a channel."""

    id: str
    slug: Slug
    created_by: str
    created_at: Milliseconds
    archived_at: Milliseconds | None


class ChannelSummary(Channel, frozen=True):
    """Part of an answer: a channel, with the caller's role in it."""

    joined: bool
    my_role: Literal["admin", "member"] | None
    member_count: Count


class ChannelList(Closed, frozen=True):
    """Answer with all channels."""

    channels: list[ChannelSummary]


class ChannelMember(Closed, frozen=True):
    """Part of an answer: a member of a channel."""

    channel_id: str
    member_name: Name
    role: Literal["admin", "member"]
    joined_at: Milliseconds


class ChannelAnswer(Closed, frozen=True):
    """Answer with a channel and its members."""

    channel: ChannelSummary
    members: list[ChannelMember]
