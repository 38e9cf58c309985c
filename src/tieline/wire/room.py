"""Rooms: hubs behind the same HTTP port, each with its own members and messages.

Used by: the server, which keeps the rooms, and protocols that make rooms or serve clients in them. Uses: `http`. The
common room is the hub itself; it has no id. A request names another room in a header, or by a token that was made in
that room. Such a token begins with the room's id, so the hub finds the room without a table of all tokens.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct
from starlette.types import Scope

from tieline.wire.http import header, session_token

ROOMS_FOLDER = "rooms"
"""Folder of a hub's home that has one folder for each room."""
ROOM_FILE = "room.json"
"""Name of the file that describes a room. It is in the room's folder, beside the files that every hub's home has."""
ROOMS_MAX = 32
"""Most rooms of one hub. An open room costs threads, file handles and memory, so strangers must not open many rooms."""

_ID_BYTES = 16  # nobody guesses an id, because an unknown one is answered differently
_SECRET_BYTES = 24  # as the token of the common room
_MARK = b"tie_room_"
"""Beginning of each token of a room other than the common room. It is quick to find: every request is looked at."""
_TOKEN = re.compile(_MARK.decode() + r"([0-9a-f]{32})_")


class NewRoom(Struct, frozen=True):
    """Result of making a room: the room's id, and the token that admits newcomers.

    The hub shows this token only once.
    """

    id: str
    token: str


class RoomMaker(Protocol):
    """Interface by which a protocol makes rooms (hubs behind the same HTTP port). The server implements it."""

    async def create(self) -> NewRoom | None:
        """Make a room, and return its id and token. Return `None` if the hub already has the maximum number of rooms.

        Raises `OSError` if the disk fails.
        """


def new_room() -> NewRoom:
    """Return a new room id and the room's token, both made from random bytes. Nothing is written to disk."""
    room_id = secrets.token_hex(_ID_BYTES)
    return NewRoom(room_id, token_prefix(room_id) + secrets.token_urlsafe(_SECRET_BYTES))


def token_prefix(room_id: str) -> str:
    """Return the text with which every token of a room begins."""
    return f"{_MARK.decode()}{room_id}_"


def room_of_token(token: str) -> str | None:
    """Return the id of the room in which a token was made.

    Return `None` for a token of the common room (the hub itself).
    """
    found = _TOKEN.match(token)
    return found[1] if found is not None else None


def room_of(scope: Scope, headers: Iterable[bytes]) -> str | None:
    """Return the id of the room that a request names. Return `None` for the common room (the hub itself).

    A request names a room in one of `headers`, or by its token. The value of a header is not checked here: it comes
    from a stranger and may be any text.
    """
    for name in headers:
        named = (header(scope, name) or "").strip()
        if named:
            return named
    if not any(_MARK in value for _, value in scope["headers"]):
        return None
    token = session_token(scope)
    return None if token is None else room_of_token(token)
