"""A puppet: one end of a protocol's wire with the same few verbs for every protocol.

Above: the demo, the doctor's canary, the tests that try every protocol with every other. Below: the clients that the
protocols ship. The hub cannot tell a puppet from any other client: it uses no way into the hub that an agent does not
have.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct

from tieline.wire.protocol import Settings

if TYPE_CHECKING:
    from tieline.wire.home import Running

ANSWER_SECONDS = 10.0
"""A hub that does not answer for so long does not answer."""


class NotSpoken(Exception):
    """The hub does not speak this protocol."""


class Place(Struct, frozen=True):
    """A hub as one of its members reaches it."""

    name: str
    token: str
    """The member's own; it opens the name on every protocol."""
    http: str
    places: dict[str, str | None]
    """The protocols' entries of `run.json`."""
    settings: dict[str, Any]
    """The hub's settings of the protocol, by field."""

    @classmethod
    def at(cls, running: "Running", name: str, token: str, settings: Settings) -> "Place":
        """A running hub as a member reaches it."""
        return cls(name, token, running.http, running.places, msgspec.structs.asdict(settings))


class Heard(Struct, frozen=True):
    """One message as a wire gave it."""

    sender: str
    body: str
    urgent: bool
    delivery: Any
    """The wire's own value by which the message is acknowledged."""


class Puppet:
    """A member's end of one protocol."""

    protocol: ClassVar[str]
    acknowledges: ClassVar[bool] = True
    """Whether the protocol has a word for "I have it"."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def open(self) -> None:
        """Connect and listen. Raises `NotSpoken`."""
        raise NotImplementedError

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        """Say something to `@member`, `#channel` or `*`, in the protocol's own form."""
        raise NotImplementedError

    async def hear(self) -> Heard:
        """Wait for the next message."""
        raise NotImplementedError

    async def acknowledge(self, heard: Heard) -> None:
        """Be done with a message, where the protocol has a word for that."""

    async def close(self) -> None:
        """Hang up."""
        raise NotImplementedError


def says_urgent(data: Mapping[str, Any]) -> bool:
    """Whether data says so itself, or the hub does in the place that it alone writes."""
    beyond = data.get("tieline")
    return "urgent" in (data.get("priority"), beyond.get("priority") if isinstance(beyond, dict) else None)
