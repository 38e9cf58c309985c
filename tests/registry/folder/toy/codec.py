"""The lines of the toy protocol. A client sends hello, messages and acknowledgements; the hub sends messages."""

from typing import Any

import msgspec
from msgspec import Struct

from tieline.wire.fidelity import Carriage

CARRIAGE = Carriage("toy", says={}, carries={}, rest="")
"""A body is all that a line says; a client is given nothing else."""


class Hello(Struct, frozen=True, tag="hello"):
    """The first line: a name and its token."""

    name: str
    token: str


class Say(Struct, frozen=True, tag="say"):
    """A message to a target."""

    target: str
    body: str


class Ack(Struct, frozen=True, tag="ack"):
    """Acknowledgement of a message."""

    key: int


class Welcome(Struct, frozen=True, tag="welcome"):
    """Answer to a hello that was accepted."""


class Given(Struct, frozen=True, tag="given"):
    """A message for the client."""

    key: int
    sender: str
    body: str


class No(Struct, frozen=True, tag="no"):
    """Answer to a refused request."""

    why: str


ClientLine = Hello | Say | Ack
HubLine = Welcome | Given | No

_client: msgspec.json.Decoder[ClientLine] = msgspec.json.Decoder(ClientLine)
_hub: msgspec.json.Decoder[HubLine] = msgspec.json.Decoder(HubLine)


def decode_client(line: bytes) -> ClientLine:
    """A line of a client. Raises `msgspec.MsgspecError`."""
    return _client.decode(line)


def decode_hub(line: bytes) -> HubLine:
    """A line of the hub."""
    return _hub.decode(line)


def encode(line: Any) -> bytes:
    """Encode a frame as a line."""
    return msgspec.json.encode(line) + b"\n"
