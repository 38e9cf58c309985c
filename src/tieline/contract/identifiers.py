"""Identifiers are types, not strings, and are checked where they enter the hub."""

import re
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

RESERVED_NAMES = frozenset({"ac7", "all", "everybody", "hub", "operator", "system", "tieline", "users"})
"""Names that protocols use for groups or that the hub speaks under."""

INBOX_PREFIX = "inbox-"
"""A channel may not start with it: `inbox-<name>.sock` is a member's inbox."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def parse_member_name(text: str) -> MemberName | Refusal:
    """Check a member's name against the rule for names."""
    if not _NAME.match(text):
        return Refusal(
            Code.INVALID_NAME,
            f"invalid member name {text[:140]!r}: a letter or digit, then up to 127 letters, digits, '.', '_' or '-'",
        )
    if text.lower() in RESERVED_NAMES:
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
