"""Channels as the protocol's existing clients read them."""

from typing import Literal

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name, Slug


class Channel(Closed, frozen=True):
    """A channel."""

    id: str
    slug: Slug
    created_by: str
    created_at: Milliseconds
    archived_at: Milliseconds | None


class ChannelSummary(Channel, frozen=True):
    """A channel, with the caller's role in it."""

    joined: bool
    my_role: Literal["admin", "member"] | None
    member_count: Count


class ChannelList(Closed, frozen=True):
    """All channels."""

    channels: list[ChannelSummary]


class ChannelMember(Closed, frozen=True):
    """A member of a channel."""

    channel_id: str
    member_name: Name
    role: Literal["admin", "member"]
    joined_at: Milliseconds


class ChannelAnswer(Closed, frozen=True):
    """A channel with its members."""

    channel: ChannelSummary
    members: list[ChannelMember]
