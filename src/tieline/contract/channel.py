"""Channels: named sets of subscribers, with an identity that outlives their names, and roles.

The admins of a channel rename it, archive it and choose its members. Anybody may enter a channel. A command creates a
channel, and so does its first subscription; that subscriber becomes its admin.
"""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from tieline.contract.identifiers import MemberName

ChannelId = NewType("ChannelId", str)


class Role(StrEnum):
    """What a member is in a channel."""

    ADMIN = "admin"
    MEMBER = "member"


class ChannelMember(Struct, frozen=True):
    """A member in a channel."""

    name: MemberName
    role: Role
    joined_at_ms: int


# Changes to a channel.


class Change(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    """The root of all changes."""


class Rename(Change, frozen=True, omit_defaults=True, tag="rename"):
    """Give it another name; what was said in it stays its own."""

    name: str


class Archive(Change, frozen=True, omit_defaults=True, tag="archive"):
    """End it: its members may read it, and nobody may write to it."""


class Enter(Change, frozen=True, omit_defaults=True, tag="enter"):
    """Become a member of it oneself."""


class Admit(Change, frozen=True, omit_defaults=True, tag="admit"):
    """Make somebody a member of it, or give a member another role."""

    name: str
    role: Role = Role.MEMBER


class Dismiss(Change, frozen=True, omit_defaults=True, tag="dismiss"):
    """Take somebody, or oneself, out of it."""

    name: str


AnyChange = Rename | Archive | Enter | Admit | Dismiss
