"""Declaration of a protocol: everything that the rest of the project knows about the protocol.

Used by: the server, which runs the protocol; the command line, the agents' tools, the pipeline and the tests, which
find every declaration in `tieline.protocols`. Uses: nothing. Each protocol's folder declares itself. A declaration is
cheap to import, because its functions import the modules that they need only when they are called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

if TYPE_CHECKING:
    from ssl import SSLContext

    from tieline.contract.hub import Hub
    from tieline.contract.member import Credential
    from tieline.services.assembly import Services
    from tieline.wire.doors import Doors
    from tieline.wire.extractor import Extractor
    from tieline.wire.fidelity import Carriage
    from tieline.wire.http import HttpApp
    from tieline.wire.puppet import Puppet
    from tieline.wire.room import RoomMaker
    from tieline.wire.unfinished import Unfinished


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """A protocol's section of `tieline.toml`. Each protocol adds its own fields in a subclass."""

    enabled: bool = True

    def with_environment(self, environment: Mapping[str, str]) -> Self:
        """Return these settings, changed by the environment variables of the protocol.

        A value in an environment variable replaces the value of `tieline.toml`.
        """
        del environment
        return self

    def check(self) -> None:
        """Raise `ValueError` if a setting has a value that cannot be used."""

    @property
    def starts(self) -> bool:
        """True if the hub starts the protocol's server."""
        return self.enabled

    @property
    def signs(self) -> bool:
        """True if the hub has the secret to sign messages.

        The hub needs the secret if members of the protocol accept only signed messages.
        """
        return False

    @property
    def shared_tokens(self) -> tuple[str, ...]:
        """Return the tokens in these settings that several members may use together (credential `ByShared`)."""
        return ()

    @property
    def newcomer_token(self) -> str:
        """The token in these settings with which anybody can become a member; empty if there is no such token."""
        return ""


class Flag(Struct, frozen=True):
    """An option that a protocol adds to `tieline serve`. Its value replaces settings of `tieline.toml`."""

    names: tuple[str, ...]
    """Names of the option as a user types it. There are two names for a pair such as `--x/--no-x`."""
    help: str
    sets: Callable[[Any], Mapping[str, Any]]
    """Converts the option's value to the settings that it changes (field name → value). Raises `ValueError` for a value
    that is not valid."""
    metavar: str = ""
    """Name of the option's value in help texts. Empty for a switch."""
    is_path: bool = False
    excludes: str = ""
    """Name of an option that cannot be used together with this option."""


def on_off(name: str, help: str) -> Flag:
    """Return the pair of options `--name` and `--no-name`, which switches a protocol on or off."""
    return Flag((f"--{name}", f"--no-{name}"), help, lambda spoken: {"enabled": spoken})


class Host(Struct, frozen=True, kw_only=True):
    """Parts of a hub that a protocol's server may use. The hub passes this object to `Protocol.server`."""

    hub: "Hub"
    home: Path
    home_named: bool
    """True if the user chose the hub's folder (`home`); false if it is the platform's default folder."""
    operator: "Credential"
    """Credential for a session that may manage members."""
    unfinished: "Unfinished"
    """Limits the total size of the incomplete messages of all connections."""
    now_ms: Callable[[], int]
    services: "Services | None"
    """The hub's services for files, logins and devices. `None` in a worker."""
    names: Sequence[str] = ()
    """Host names that the hub's ports accept in addition to `localhost` and IP addresses."""
    is_loopback: bool = False
    """True if the HTTP port is on a loopback address: only programs on this machine reach it."""
    certificate: "Callable[[], SSLContext] | None" = None
    """Returns the TLS settings with the hub's current certificate. `None` if the hub's ports do not speak TLS."""
    is_insecure: bool = False
    """True if ports without TLS may listen where other machines can reach them."""
    doors: "Doors | None" = None
    """Opens the sockets and ports of a protocol that may run in workers. `None` if the server opens them itself."""
    rooms: "RoomMaker | None" = None
    """Makes new rooms (hubs behind the same HTTP port); `None` if this hub cannot make any."""
    room_token_digest: bytes | None = None
    """SHA-256 of the token that admits newcomers to this room. `None` in the common room, whose token is in the
    settings."""


class Server:
    """The running server of a protocol in one hub.

    The hub calls the methods in this order: `prepare`, `start`, `places`, `follow`, `welcome`, `stop`. A subclass may
    leave out any method.
    """

    http: "HttpApp | None" = None
    """The protocol's routes on the hub's HTTP port."""
    no_room: "HttpApp | None" = None
    """Answers requests of the protocol that name a room which does not exist."""

    async def prepare(self) -> None:
        """Prepare the server before any client can reach the hub."""

    async def start(self) -> None:
        """Open the protocol's listeners, so that clients can connect."""

    def places(self) -> Mapping[str, str]:
        """Return the protocol's sockets, folders and addresses by name. The hub writes them to its file `run.json`."""
        return {}

    def follow(self) -> None:
        """Start slow work that must not delay the start of the hub.

        The hub calls this when all its listeners are open.
        """

    def welcome(self, http: str, *, first: bool) -> Iterable[str]:
        """Return lines to print for the person who starts the hub.

        `http` is the URL of the hub for others, with the fingerprint of its certificate (see `split_pin`) if the hub
        made the certificate itself; `first` is true if the hub starts in this folder for the first time.
        """
        del http, first
        return ()

    async def stop(self) -> None:
        """Stop the server. The hub also calls this if an earlier step failed."""


class Signatures(Struct, frozen=True):
    """Part of a `Protocol` declaration: the check of the signatures of stored messages.

    Only a protocol whose members sign their messages has this part.
    """

    variable: str
    """Name of the environment variable that holds the secret."""
    check: Callable[[], Callable[[bytes, bytes], bool]]
    """Loads the function that checks a signature. This function gets the message as its sender signed it, and the
    secret. It returns true if the signature is valid."""


class Protocol(Struct, frozen=True, kw_only=True):
    """Declaration of one protocol that the hub speaks: its name, settings, server, test client and commands."""

    name: str
    """Name of the protocol in sessions, receipts and the log."""
    section: str
    """Name of the section in `tieline.toml`."""
    settings: type[Settings]
    template: Callable[[], str]
    """Makes the text of the section for a new `tieline.toml`, with new secrets."""
    server: Callable[[Host, Any], Server]
    """Makes the server of the protocol, from the parts of the hub (`Host`) and the protocol's settings."""
    carriage: "Callable[[], Carriage]"
    """Loads the table that names, for each message field, the place of the field in the protocol's format."""
    puppet: "Callable[[], type[Puppet]]"
    """Loads the test client of the protocol, for the demo, `tieline doctor` and the tests."""
    colour: str = "#5f6b7a"
    """Colour of the protocol on web pages."""
    terminal_colour: str = "default"
    """Colour of the protocol in a terminal."""
    other_names: tuple[str, ...] = ()
    """Names other than `name` under which some sessions of this protocol are stored."""
    flags: tuple[Flag, ...] = ()
    places: Mapping[str, str] = {}
    """The protocol's keys in `run.json` (the file with the addresses of a running hub), each with the label that
    `tieline serve` prints. A key with an empty label is not printed."""
    commands: Callable[[], Any] | None = None
    """Makes the protocol's part of the command line: an `Extension` of `tieline.cli.extension`, from its package
    `commands`."""
    reserved_names: tuple[str, ...] = ()
    """Names that no member may have, because the protocol itself uses them as senders."""
    tools: Callable[[], Sequence[Any]] | None = None
    """Loads the tools (`tieline.protocols.mcp.tools.Tool`) with the names that agents know from this protocol's own
    programs."""
    thread_of: Callable[[Mapping[str, Any]], str | None] | None = None
    """Reads the name of a thread from the data of a channel message. Returns `None` if the data names no thread."""
    is_framed: bool = False
    """True if this protocol's own clients show a message to an agent inside the same tag, with attributes, as the hub
    does. Then the hub leaves the name of the protocol out of the attributes."""
    extractor: "Callable[[], type[Extractor]] | None" = None
    """Loads the extractor: the grammar that finds messages to send in the output of a terminal program."""
    signatures: Signatures | None = None
    """Checks the signatures of messages. `None` for a protocol whose members do not sign their messages."""
    room_header: bytes = b""
    """Header, in lower case, in which the protocol's clients name the room of a request. If it is empty, only the token
    names the room."""
    runner_variable: str = ""
    """Name of an environment variable with the path of a socket. The runner (`tieline run`) that started `tieline mcp`
    listens at this path. `tieline mcp` reads this variable if the hub's own variable is not set."""
    login_cookie: str = ""
    """Name of the cookie that the protocol sets when a user logs in with a one-time code. Every route of the HTTP port
    accepts this cookie."""
    token_prefixes: tuple[str, ...] = ()
    """Texts with which tokens of the protocol begin. Such tokens are removed from stored activity."""
    openapi: str = ""
    """Path of the OpenAPI document of the protocol's routes on the HTTP port. Empty if there is none."""
    in_rooms: bool = False
    """True if this protocol also works in rooms other than the common room. (A room is a hub behind the same HTTP
    port.) Such a protocol uses only the HTTP port, and each request names its room. In these rooms, the server's
    `prepare`, `start` and `follow` are never called."""
    in_followers: bool = False
    """True if each hub of a team serves the clients of its own machine, also a hub that does not lead. The server of
    such a protocol needs only the Hub port. Its routes on the HTTP port are served by the leader."""
    in_workers: bool = False
    """True if any worker may serve any client of this protocol. The server of such a protocol needs only the Hub port,
    and shares nothing between clients. It opens its sockets and ports by the doors of the `Host`. In a worker, its
    `prepare` and `follow` are never called. All other protocols are served in the hub's process."""
