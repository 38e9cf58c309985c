"""Puppet: a test client of a protocol, with the same few methods for every protocol.

Used by: the demo, `tieline doctor --canary` (which sends test messages through every protocol), and the tests that
connect every protocol with every other protocol. Uses: the client in each protocol's folder. For the hub, a puppet is a
client like any other: it uses only interfaces that agents use, too.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from tieline.wire.protocol import Settings

if TYPE_CHECKING:
    from tieline.wire.home import Running

ANSWER_SECONDS = 10.0
"""Seconds for which a test client waits for an answer of the hub."""


class NotSpoken(Exception):
    """Raised if the hub does not offer this protocol."""


class Place(Struct, frozen=True):
    """Parameters of a test client: everything that it needs to reach a hub as one member."""

    name: str
    token: str
    """The member's token. It is valid for every protocol."""
    http: str
    """Address of the hub's HTTP port, with the fingerprint of its certificate if the hub made that itself."""
    places: dict[str, str | None]
    """The sockets, folders and addresses of protocols, as in `run.json`."""
    settings: dict[str, Any]
    """The hub's settings for the protocol, as field name → value."""

    @classmethod
    def at(cls, running: "Running", name: str, token: str, settings: Settings) -> "Place":
        """Return the parameters of a test client for the member `name` at a running hub.

        `settings` are the hub's settings for the protocol.
        """
        return cls(name, token, running.pinned, running.places, msgspec.structs.asdict(settings))


class Heard(Struct, frozen=True):
    """Message that a test client received: sender, body, urgency, and the value that acknowledges it."""

    sender: str
    body: str
    urgent: bool
    delivery: Any
    """Value in the protocol's own form, with which the test client acknowledges the message."""


class Puppet(ABC):
    """Base class of the test clients: each protocol has one subclass. A test client acts as one member."""

    protocol: ClassVar[str]
    acknowledges: ClassVar[bool] = True
    """True if clients of the protocol can acknowledge messages."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    async def open(self) -> None:
        """Connect to the hub and start to receive messages.

        Raises `NotSpoken` if the hub does not offer the protocol.
        """

    @abstractmethod
    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        """Send a message to `@member`, `#channel` or `*`, in the protocol's own form."""

    @abstractmethod
    async def hear(self) -> Heard:
        """Wait for the next message that the member receives, and return it."""

    async def acknowledge(self, heard: Heard) -> None:  # noqa: B027 - optional, unlike the others
        """Acknowledge a received message. Do nothing if the protocol has no acknowledgements."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect from the hub."""


def says_urgent(data: Mapping[str, Any]) -> bool:
    """Return true if a message's free-form data marks the message as urgent.

    The mark is in the field `priority`, which the sender wrote, or in the field `tieline`, which the hub wrote.
    """
    beyond = data.get("tieline")
    return "urgent" in (data.get("priority"), beyond.get("priority") if isinstance(beyond, dict) else None)
