"""Puppet: a test client of a protocol, with the same few methods for every protocol.

Used by: the demo, the doctor's canary, and the tests that connect every protocol with every other protocol. Uses: the
client in each protocol's folder. For the hub, a puppet is a client like any other: it uses only interfaces that agents
use, too.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from tieline.wire.protocol import Settings

if TYPE_CHECKING:
    from tieline.wire.home import Running

ANSWER_SECONDS = 10.0
"""Timeout for an answer of the hub."""


class NotSpoken(Exception):
    """The hub does not speak this protocol."""


class Place(Struct, frozen=True):
    """Everything that a test client needs to reach a hub as one member: name, token, addresses and settings."""

    name: str
    token: str
    """The member's token. It is valid on every protocol."""
    http: str
    places: dict[str, str | None]
    """The sockets, folders and addresses of protocols, as in `run.json`."""
    settings: dict[str, Any]
    """The hub's settings for the protocol, by field."""

    @classmethod
    def at(cls, running: "Running", name: str, token: str, settings: Settings) -> "Place":
        """Make the `Place` of the member `name` at a running hub.

        `settings` are the hub's settings for the protocol.
        """
        return cls(name, token, running.http, running.places, msgspec.structs.asdict(settings))


class Heard(Struct, frozen=True):
    """One message that a test client received: sender, body, urgency, and the value with which to acknowledge it."""

    sender: str
    body: str
    urgent: bool
    delivery: Any
    """The protocol's own value that acknowledges the message."""


class Puppet:
    """Test client of one member for one protocol."""

    protocol: ClassVar[str]
    acknowledges: ClassVar[bool] = True
    """True if the protocol has acknowledgements."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def open(self) -> None:
        """Connect and listen. Raises `NotSpoken`."""
        raise NotImplementedError

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        """Send a message to `@member`, `#channel` or `*`, in the protocol's own form."""
        raise NotImplementedError

    async def hear(self) -> Heard:
        """Wait for the next message."""
        raise NotImplementedError

    async def acknowledge(self, heard: Heard) -> None:
        """Acknowledge a message, if the protocol has acknowledgements."""

    async def close(self) -> None:
        """Disconnect."""
        raise NotImplementedError


def says_urgent(data: Mapping[str, Any]) -> bool:
    """True if the data marks the message as urgent, in the sender's own field or in the hub's field `tieline`."""
    beyond = data.get("tieline")
    return "urgent" in (data.get("priority"), beyond.get("priority") if isinstance(beyond, dict) else None)
