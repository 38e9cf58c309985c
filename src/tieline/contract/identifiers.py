"""Identifiers are types, not strings, and are checked where they enter the hub."""

import re
from collections.abc import Iterable
from typing import NewType

from tieline.contract.refusal import Code, Refusal

MemberName = NewType("MemberName", str)
ChannelName = NewType("ChannelName", str)
MessageId = NewType("MessageId", str)
SessionId = NewType("SessionId", str)

GENERAL = ChannelName("general")
"""The channel that holds every member implicitly."""

USERS = ChannelName("users")
"""The channel that holds every human member implicitly; it is written to, and not listed."""

RESERVED_NAMES = frozenset({"all", "everybody", "hub", "operator", "system", "tieline", "users"})
"""Names that stand for groups or that the hub speaks under; a protocol that is found reserves more (`reserve`)."""

INBOX_PREFIX = "inbox-"
"""A channel may not start with it: `inbox-<name>.sock` is a member's inbox."""

# Names that protocols speak under, as `reserve` was told.
_reserved_by_protocols: set[str] = set()

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def reserve(names: Iterable[str]) -> None:
    """Keep names from members for as long as this process runs: a protocol that is there speaks under them."""
    _reserved_by_protocols.update(name.lower() for name in names)


def is_reserved(name: str) -> bool:
    """Say if no member may have a name, in whatever case."""
    return name.lower() in RESERVED_NAMES or name.lower() in _reserved_by_protocols


def parse_member_name(text: str) -> MemberName | Refusal:
    """Check a member's name against the rule for names."""
    if not _NAME.match(text):
        return Refusal(
            Code.INVALID_NAME,
            f"invalid member name {text[:140]!r}: a letter or digit, then up to 127 letters, digits, '.', '_' or '-'",
        )
    if is_reserved(text):
        return Refusal(Code.RESERVED_NAME, f"the name {text!r} is kept for the hub itself; choose another")
    return MemberName(text)


def parse_channel_name(text: str) -> ChannelName | Refusal:
    """Check a channel's name (without its leading `#`) against the rule for names."""
    if not _NAME.match(text) or text.startswith(INBOX_PREFIX):
        return Refusal(
            Code.INVALID_NAME,
            f"invalid channel name {text[:140]!r}: use a letter or digit, then up to 127 letters, digits, '.', '_' or "
            f"'-', and do not start with '{INBOX_PREFIX}'",
        )
    return ChannelName(text)
