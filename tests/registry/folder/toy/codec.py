"""Lines of the toy protocol: JSON objects.

A client sends hello, messages and acknowledgements. The hub sends messages and answers.
"""

from typing import Any

import msgspec
from msgspec import Struct

from tieline.wire.fidelity import Carriage

CARRIAGE = Carriage("toy", says={}, carries={}, rest="")
"""Fields that a message of this protocol can carry: only its body."""


class Hello(Struct, frozen=True, tag="hello"):
    """First line of a client: a name and its token."""

    name: str
    token: str


class Say(Struct, frozen=True, tag="say"):
    """Line of a client: a message to a target."""

    target: str
    body: str


class Ack(Struct, frozen=True, tag="ack"):
    """Line of a client: the acknowledgement of a message by its key."""

    key: int


class Welcome(Struct, frozen=True, tag="welcome"):
    """Line of the hub: answer to an accepted hello."""


class Given(Struct, frozen=True, tag="given"):
    """Line of the hub: a message for the client."""

    key: int
    sender: str
    body: str


class No(Struct, frozen=True, tag="no"):
    """Line of the hub: answer to a refused request."""

    why: str


ClientLine = Hello | Say | Ack
HubLine = Welcome | Given | No

_client: msgspec.json.Decoder[ClientLine] = msgspec.json.Decoder(ClientLine)
_hub: msgspec.json.Decoder[HubLine] = msgspec.json.Decoder(HubLine)


def decode_client(line: bytes) -> ClientLine:
    """Decode a line of a client. Raises `msgspec.MsgspecError`."""
    return _client.decode(line)


def decode_hub(line: bytes) -> HubLine:
    """Decode a line of the hub."""
    return _hub.decode(line)


def encode(line: Any) -> bytes:
    """Return an object as a line of JSON."""
    return msgspec.json.encode(line) + b"\n"
