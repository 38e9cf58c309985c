"""Declaration of a protocol by its folder: all that the rest of the project knows about the protocol.

Above: the server, which runs it; the command line, the agents' tools, the pipeline and the tests, which find every
declaration in `tieline.protocols`. Below: nothing. A declaration is cheap to import: its functions import the modules
that they need when they are called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

if TYPE_CHECKING:
    from tieline.contract.hub import Hub
    from tieline.contract.member import Credential
    from tieline.services.assembly import Services
    from tieline.wire.extractor import Extractor
    from tieline.wire.fidelity import Carriage
    from tieline.wire.http import HttpApp
    from tieline.wire.puppet import Puppet
    from tieline.wire.unfinished import Unfinished


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """A protocol's section of `tieline.toml`."""

    enabled: bool = True

    def with_environment(self, environment: Mapping[str, str]) -> Self:
        """Return these settings, overridden by the protocol's own environment variables."""
        del environment
        return self

    def check(self) -> None:
        """Raise `ValueError` for values that cannot be used."""

    @property
    def starts(self) -> bool:
        """True if the hub starts the protocol's server."""
        return self.enabled

    @property
    def signs(self) -> bool:
        """True if the hub can write to members of a wire that takes signed messages only."""
        return False


class Flag(Struct, frozen=True):
    """An option of `tieline serve`. It overrides settings."""

    names: tuple[str, ...]
    """The option as typed; two names for a pair such as `--x/--no-x`."""
    help: str
    sets: Callable[[Any], Mapping[str, Any]]
    """Converts the option's value to settings, by field. Raises `ValueError` for a value that is not valid."""
    metavar: str = ""
    """Name of the option's value in help texts. Empty for a switch."""
    is_path: bool = False
    excludes: str = ""
    """Another option that cannot be used together with this one."""


def on_off(name: str, help: str) -> Flag:
    """Make the pair of options that switches a protocol on or off."""
    return Flag((f"--{name}", f"--no-{name}"), help, lambda spoken: {"enabled": spoken})


class Host(Struct, frozen=True, kw_only=True):
    """The hub that a protocol's server runs in."""

    hub: "Hub"
    home: Path
    home_named: bool
    """True if the user chose the home; false if it is the platform's default."""
    operator: "Credential"
    """Credential for a session that may manage members."""
    unfinished: "Unfinished"
    """Limits the bytes of incomplete messages over all connections."""
    now_ms: Callable[[], int]
    services: "Services"
    """Files, logins and devices."""
    names: Sequence[str] = ()
    """Host names that the hub's ports accept in addition to `localhost` and IP addresses."""


class Server:
    """The running server of a protocol in one hub. The hub calls the methods in the order below; all are optional."""

    http: "HttpApp | None" = None
    """The protocol's routes on the hub's HTTP port."""

    async def prepare(self) -> None:
        """Prepare the server before any client can reach the hub."""

    async def start(self) -> None:
        """Open the listeners."""

    def places(self) -> Mapping[str, str]:
        """Return the protocol's entries of `run.json`."""
        return {}

    def follow(self) -> None:
        """Start slow work. The hub calls this when all its listeners are open."""

    def welcome(self, http: str, *, first: bool) -> Iterable[str]:
        """Return lines for the person who starts the hub; most of them matter at the first start."""
        del http, first
        return ()

    async def stop(self) -> None:
        """Stop the server. The hub also calls this if an earlier step failed."""


class Signatures(Struct, frozen=True):
    """Check of signatures, for messages that the hub keeps as their senders signed them."""

    variable: str
    """Name of the environment variable that holds the secret."""
    check: Callable[[], Callable[[bytes, bytes], bool]]
    """Loads the function that returns true if a message's original has a valid signature for a secret."""


class Protocol(Struct, frozen=True, kw_only=True):
    """One protocol of the hub."""

    name: str
    """Name in sessions, receipts and the log."""
    section: str
    """Name of the section in `tieline.toml`."""
    settings: type[Settings]
    template: Callable[[], str]
    """Makes the text of the section for a new `tieline.toml`, with new secrets."""
    server: Callable[[Host, Any], Server]
    """Makes the server from the host and the settings."""
    carriage: "Callable[[], Carriage]"
    """Loads the table of message fields that the wire can carry."""
    puppet: "Callable[[], type[Puppet]]"
    """Loads the test client of the protocol, for the demo, the doctor and tests."""
    colour: str = "#5f6b7a"
    """Colour of the protocol on web pages."""
    terminal_colour: str = "default"
    """Colour of the protocol in a terminal."""
    other_names: tuple[str, ...] = ()
    """Other protocol names that some of its sessions use."""
    flags: tuple[Flag, ...] = ()
    places: Mapping[str, str] = {}
    """Keys in `run.json`, each with its label on the screen of `tieline serve`. An empty label shows nothing."""
    commands: Callable[[], Any] | None = None
    """Makes the protocol's part of the command line: an `Extension` of `tieline.cli.extension`, from its package
    `commands`."""
    reserved_names: tuple[str, ...] = ()
    """Names that no member may have, because the wire itself uses them as senders."""
    tools: Callable[[], Sequence[Any]] | None = None
    """Loads the tools (`tieline.agents.tools.Tool`) under the names that agents know from this protocol."""
    thread_of: Callable[[Mapping[str, Any]], str | None] | None = None
    """Finds the thread of a channel message in its data, if the data names one."""
    is_framed: bool = False
    """True if the protocol's own clients frame a message the way agents see it here. Then the frame does not name the
    protocol."""
    extractor: "Callable[[], type[Extractor]] | None" = None
    """Loads the extractor: the grammar that finds messages to send in the output of a terminal program."""
    signatures: Signatures | None = None
    """Check of signatures, for a protocol whose members sign their messages."""
