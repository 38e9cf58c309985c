"""Targets of messages: `@member`, `#channel`, `*` for everybody, `obj:<id>` for an objective's thread."""

import re
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from tieline.contract.identifiers import ChannelName, MemberName, parse_channel_name, parse_member_name
from tieline.contract.refusal import Code, Refusal

_OBJECTIVE = re.compile(r"obj:[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


class TargetKind(StrEnum):
    """Kind of target: a member, a channel, everybody, or an objective's thread."""

    MEMBER = "member"
    CHANNEL = "channel"
    EVERYBODY = "everybody"
    OBJECTIVE = "objective"


_PREFIXES = {
    TargetKind.MEMBER: "@",
    TargetKind.CHANNEL: "#",
    TargetKind.EVERYBODY: "*",
    TargetKind.OBJECTIVE: "obj:",
}


class Target(Struct, frozen=True, gc=False):
    """Target of a message, already checked. Build it with `to_member`, `to_channel` or `parse_target`."""

    kind: TargetKind
    name: str = ""

    def __str__(self) -> str:
        return _PREFIXES[self.kind] + self.name


EVERYBODY = Target(TargetKind.EVERYBODY)


def to_member(name: MemberName) -> Target:
    """Return the target for one member."""
    return Target(TargetKind.MEMBER, name)


def to_channel(name: ChannelName) -> Target:
    """Return the target for the subscribers of a channel."""
    return Target(TargetKind.CHANNEL, name)


_TEXT_MAX = 140
"""Longest text that is parsed as a target. A longer text is refused at once: it is not cached, and not quoted."""


def parse_target(text: str) -> Target | Refusal:
    """Return the target for a text such as `@bob`, `#dev`, `*` or `obj:<id>`, or a refusal if the text is no target."""
    if len(text) > _TEXT_MAX:
        return Refusal(Code.INVALID_TARGET, f"a target has at most {_TEXT_MAX} characters")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Target | Refusal:
    # Cached, because conversations go to the same few targets.
    if text == "*":
        return EVERYBODY
    if text.startswith("@"):
        member = parse_member_name(text[1:])
        return member if isinstance(member, Refusal) else to_member(member)
    if text.startswith("#"):
        channel = parse_channel_name(text[1:])
        return channel if isinstance(channel, Refusal) else to_channel(channel)
    if _OBJECTIVE.match(text):
        return Target(TargetKind.OBJECTIVE, text[4:])
    return Refusal(Code.INVALID_TARGET, f"{text!r} is not a target: write @member, #channel, * or obj:<id>")
