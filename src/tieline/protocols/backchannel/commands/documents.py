"""The documents of `--json` for invitations, and for commands without a hub: on a spool, or through a relay.

Used by: the commands of this folder, and the JSON Schema of all commands. Uses: the documents of the same commands with
a hub. The documents of a spool lack only facts that a spool does not have.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from tieline.cli.documents import derive
from tieline.client import InvitationView, Item, Message
from tieline.protocols.backchannel.commands.importing import SpoolImportCounts

LocalMessage = derive(
    Message,
    "LocalMessage",
    "A message of a spool or a relay. It has no place in a log, and its sender is never verified.",
    without=("offset",),
)
LocalItem = derive(
    Item,
    "LocalItem",
    "A message of a spool or a relay, with its state.",
    without=("key", "seq", "message"),
    last=(("message", LocalMessage),),
)
LocalArrival = derive(
    LocalItem, "LocalArrival", "A message of a spool or a relay that `watch` shows.", without=("state",)
)


class LocalSent(Struct, frozen=True):
    """A message that is in the spool, or that the relay accepted. A relay does not tell the number of recipients."""

    id: str
    recipients: int | UnsetType = UNSET


class LocalMember(Struct, frozen=True):
    """An agent of a spool or a relay. A relay does not tell the number of messages that wait for it."""

    name: str
    kind: str
    subscriptions: tuple[str, ...]
    created_at_ms: int | None
    last_seen_ms: int | None
    backlog: int | UnsetType = UNSET


class LocalChannel(Struct, frozen=True):
    """A channel of a spool or a relay."""

    name: str
    subscribers: list[str]


class LocalSpeaker(Struct, frozen=True):
    """The agent of this command (`speaker` and `member` are the same name), and its spool or relay (`place`)."""

    speaker: str
    member: str
    place: str


class Invited(Struct, frozen=True):
    """An invite, the address in it, and the hub's invitation for it (`null` if the invite has a room token instead)."""

    invite: str
    url: str
    invitation: InvitationView | None


class RevokedInvitation(Struct, frozen=True):
    """An invitation that was revoked."""

    invitation: str
    revoked: bool = True


class NewRoomToken(Struct, frozen=True):
    """The new room token, which is shown only once, and its invitation."""

    room_token: str
    invitation: InvitationView


_LOCAL = "without a hub"
_ITEMS: Any = list[LocalItem]  # type: ignore[valid-type]  # it is a type, made by a function
DOCUMENTS: Mapping[str, Mapping[str, Any]] = {
    "send": {_LOCAL: LocalSent},
    "inbox": {_LOCAL: _ITEMS},
    "take": {_LOCAL: LocalItem},
    "drain": {_LOCAL: _ITEMS},
    "watch": {f"{_LOCAL}, each line": LocalArrival},
    "members": {_LOCAL: list[LocalMember]},
    "channels": {_LOCAL: list[LocalChannel]},
    "whoami": {_LOCAL: LocalSpeaker},
    "invite": {"": Invited},
    "invite list": {"": tuple[InvitationView, ...]},
    "invite revoke": {"": RevokedInvitation},
    "invite rotate": {"": NewRoomToken},
    "import backchannel": {"": SpoolImportCounts},
}
