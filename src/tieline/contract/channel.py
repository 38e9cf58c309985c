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
    """Base class of all changes of a channel. In JSON, the field `do` names the kind of change."""


class Rename(Change, frozen=True, omit_defaults=True, tag="rename"):
    """Change of a channel: give it a new name. The channel keeps its messages."""

    name: str


class Archive(Change, frozen=True, omit_defaults=True, tag="archive"):
    """Change of a channel: archive it. Members can still read the channel, but nobody can write to it."""


class Enter(Change, frozen=True, omit_defaults=True, tag="enter"):
    """Change of a channel: the member that gives the command joins the channel."""


class Admit(Change, frozen=True, omit_defaults=True, tag="admit"):
    """Change of a channel: add a member, or change the role of a member."""

    name: str
    role: Role = Role.MEMBER


class Dismiss(Change, frozen=True, omit_defaults=True, tag="dismiss"):
    """Change of a channel: remove a member. A member may name itself, to leave the channel."""

    name: str


AnyChange = Rename | Archive | Enter | Admit | Dismiss
