"""Channels: named sets of subscribers with roles. A channel has an id, which stays the same when its name changes.

The admins of a channel rename it, archive it and choose its members. Anybody may enter a channel. A channel is created
by a command, or when a member subscribes to a name that no channel has. The member that creates it becomes its admin.
"""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from tieline.contract.identifiers import MemberName

ChannelId = NewType("ChannelId", str)


class Role(StrEnum):
    """Role of a member in a channel."""

    ADMIN = "admin"
    MEMBER = "member"


class ChannelMember(Struct, frozen=True):
    """One member of a channel, with its role."""

    name: MemberName
    role: Role
    joined_at_ms: int


# Changes to a channel.


class Change(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    """Base class of all changes of a channel. In JSON, `do` names the change."""


class Rename(Change, frozen=True, omit_defaults=True, tag="rename"):
    """Rename the channel. It keeps its messages."""

    name: str


class Archive(Change, frozen=True, omit_defaults=True, tag="archive"):
    """Archive the channel: members can still read it, and nobody can write to it."""


class Enter(Change, frozen=True, omit_defaults=True, tag="enter"):
    """Join the channel: the member that gives the command enters it."""


class Admit(Change, frozen=True, omit_defaults=True, tag="admit"):
    """Add a member to the channel, or change a member's role."""

    name: str
    role: Role = Role.MEMBER


class Dismiss(Change, frozen=True, omit_defaults=True, tag="dismiss"):
    """Remove a member from the channel. A member that names itself leaves it."""

    name: str


AnyChange = Rename | Archive | Enter | Admit | Dismiss
