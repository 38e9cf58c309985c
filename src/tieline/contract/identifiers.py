"""Types for names and ids, and the rules for names. Names are checked where they enter the hub."""

import re
from collections.abc import Iterable
from typing import NewType

from tieline.contract.refusal import Code, Refusal

MemberName = NewType("MemberName", str)
ChannelName = NewType("ChannelName", str)
MessageId = NewType("MessageId", str)
SessionId = NewType("SessionId", str)

GENERAL = ChannelName("general")
"""The channel of all members: every member is in it without joining."""

USERS = ChannelName("users")
"""The channel of all human members, who are in it without joining. It accepts messages, but no list contains it."""

RESERVED_NAMES = frozenset({"all", "everybody", "hub", "operator", "system", "tieline", "users"})
"""Names that no member may have: names of groups, and sender names of the hub itself. `reserve` adds more names."""

INBOX_PREFIX = "inbox-"
"""No channel name may begin with this, because the socket `inbox-<name>.sock` is a member's inbox."""

# Names under which protocols send, added by `reserve`.
_reserved_by_protocols: set[str] = set()

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def reserve(names: Iterable[str]) -> None:
    """Reserve names that a protocol uses as sender names. No member may have them while this process runs."""
    _reserved_by_protocols.update(name.lower() for name in names)


def is_reserved(name: str) -> bool:
    """True if no member may have this name; case is ignored."""
    return name.lower() in RESERVED_NAMES or name.lower() in _reserved_by_protocols


def parse_member_name(text: str) -> MemberName | Refusal:
    """Check a member's name: return it, or a refusal if it breaks the rule for names or is reserved."""
    if not _NAME.match(text):
        return Refusal(
            Code.INVALID_NAME,
            f"invalid member name {text[:140]!r}: a letter or digit, then up to 127 letters, digits, '.', '_' or '-'",
        )
    if is_reserved(text):
        return Refusal(Code.RESERVED_NAME, f"the name {text!r} is kept for the hub itself; choose another")
    return MemberName(text)


def parse_channel_name(text: str) -> ChannelName | Refusal:
    """Check a channel's name, without its leading `#`: return it, or a refusal if it breaks the rule for names."""
    if not _NAME.match(text) or text.startswith(INBOX_PREFIX):
        return Refusal(
            Code.INVALID_NAME,
            f"invalid channel name {text[:140]!r}: use a letter or digit, then up to 127 letters, digits, '.', '_' or "
            f"'-', and do not start with '{INBOX_PREFIX}'",
        )
    return ChannelName(text)
