"""A protocol as its folder declares it: all that the rest of the project knows of it.

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
        """These settings with those that variables of the protocol's own override."""
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
    """As a person types it; two for a pair such as `--x/--no-x`."""
    help: str
    sets: Callable[[Any], Mapping[str, Any]]
    """The settings, by field, that the option's value stands for. Raises `ValueError` for one that is none."""
    metavar: str = ""
    """The name of its value; an option without one is a switch."""
    is_path: bool = False
    excludes: str = ""
    """Another option that cannot be given with this one."""


def on_off(name: str, help: str) -> Flag:
    """The pair of options by which a protocol is spoken or not."""
    return Flag((f"--{name}", f"--no-{name}"), help, lambda spoken: {"enabled": spoken})


class Host(Struct, frozen=True, kw_only=True):
    """The hub that a protocol's server runs in."""

    hub: "Hub"
    home: Path
    home_named: bool
    """Whether somebody named the home; if not, it is the platform's own."""
    operator: "Credential"
    """Opens a session that may manage members."""
    unfinished: "Unfinished"
    """Bounds what all connections hold of messages that are not whole yet."""
    now_ms: Callable[[], int]
    services: "Services"
    """Files, logins and devices."""
    names: Sequence[str] = ()
    """Names that the hub's ports answer to beside `localhost` and IP addresses."""


class Server:
    """A protocol at work in one hub. The hub calls these methods in their order; any may be left as it is."""

    http: "HttpApp | None" = None
    """Its routes on the hub's HTTP port."""

    async def prepare(self) -> None:
        """Do what must be done before anybody can reach the hub."""

    async def start(self) -> None:
        """Open the listeners."""

    def places(self) -> Mapping[str, str]:
        """Its entries of `run.json`."""
        return {}

    def follow(self) -> None:
        """Every listener of the hub is open: begin what may take long."""

    def welcome(self, http: str, *, first: bool) -> Iterable[str]:
        """Lines for the person who starts the hub, above all at its first start."""
        del http, first
        return ()

    async def stop(self) -> None:
        """End everything. Also called if an earlier step failed."""


class Signatures(Struct, frozen=True):
    """The signatures of messages that the hub keeps as their senders signed them."""

    variable: str
    """The environment variable that has the secret."""
    check: Callable[[], Callable[[bytes, bytes], bool]]
    """Load the function that says whether a message's original is signed rightly with a secret."""


class Protocol(Struct, frozen=True, kw_only=True):
    """One protocol of the hub."""

    name: str
    """As sessions, receipts and the log say it."""
    section: str
    """As `tieline.toml` says it."""
    settings: type[Settings]
    template: Callable[[], str]
    """The text of its section in a new `tieline.toml`, with new secrets."""
    server: Callable[[Host, Any], Server]
    """Make its server with its settings."""
    carriage: "Callable[[], Carriage]"
    """Load what its wire can say of a message."""
    puppet: "Callable[[], type[Puppet]]"
    """Its end for whoever tries the protocol: the demo, the doctor, tests."""
    colour: str = "#5f6b7a"
    """Its colour on pages…"""
    terminal_colour: str = "default"
    """…and in a terminal."""
    other_names: tuple[str, ...] = ()
    """Names that some of its sessions have instead of its own."""
    flags: tuple[Flag, ...] = ()
    places: Mapping[str, str] = {}
    """Its keys in `run.json`, each with its label on the screen of `tieline serve`; empty to show none."""
    commands: Callable[[], Any] | None = None
    """Make its part of the command line, an `Extension` of `tieline.cli.extension`. It is in its package `commands`."""
    reserved_names: tuple[str, ...] = ()
    """Names that no member may have, because its wire speaks under them."""
    tools: Callable[[], Sequence[Any]] | None = None
    """Load the tools (`tieline.agents.tools.Tool`) under the names that agents were taught for it."""
    thread_of: Callable[[Mapping[str, Any]], str | None] | None = None
    """Find in the data of a message to a channel the thread that it was said in, if that is written there."""
    is_framed: bool = False
    """Set where its own clients frame a message as agents are shown it here: then the frame need not name it."""
    extractor: "Callable[[], type[Extractor]] | None" = None
    """Load its grammar of what a terminal program wants sent."""
    signatures: Signatures | None = None
    """The check of its signatures, for a protocol whose members sign what they say."""
