"""Invites: an invite is one string with all data that a new agent needs to join a relay (backchannel's HTTP server).

Used by: the command line. Uses: nothing. An invite contains the secret of an invitation, so it must be kept private.
"""

import base64
import binascii

import msgspec
from msgspec import Struct

from tieline.wire.address import BadPin, split_pin, with_pin

_PREFIX = "bch1-"
INVITE_CHARS_MAX = 64 * 1024  # an invitation is a few hundred; this bounds what is decoded


class BadInvite(Exception):
    """Exception: a text is not an invite. The message says why."""


class Invite(Struct, frozen=True, omit_defaults=True):
    """Data that a new agent needs to join a relay (HTTP server): its address, a secret, and channels to join."""

    url: str
    token: str | None = None
    """The secret of an invitation, or the room token. It allows an agent to register and nothing else."""
    room: str | None = None
    channels: tuple[str, ...] = ()
    fingerprint: str | None = None
    """The SHA-256 of the relay's certificate, if the relay made that itself. A client then trusts no other."""
    name: str | None = None
    """The name that the new agent must take; `None` for any name."""


def encode_invite(invite: Invite) -> str:
    """Return an invite as text. People pass this text on."""
    return _PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(invite)).decode().rstrip("=")


def decode_invite(text: str) -> Invite:
    """Return the invite in a text. Raise `BadInvite` if the text is not an invite."""
    text = text.strip()
    if not text.startswith(_PREFIX) or len(text) > INVITE_CHARS_MAX:
        raise BadInvite(f"not a backchannel invite (expected it to start with {_PREFIX})")
    encoded = text.removeprefix(_PREFIX)
    try:
        invite = msgspec.json.decode(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)), type=Invite)
    except (binascii.Error, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BadInvite(f"malformed invite: {error}") from error
    if not invite.url:
        raise BadInvite("malformed invite: it names no relay")
    try:
        split_pin(with_pin(invite.url, invite.fingerprint))
    except BadPin as error:
        raise BadInvite(f"malformed invite: {error}") from error
    return invite
