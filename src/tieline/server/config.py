"""Configuration: reads `tieline.toml` in the hub's home folder. The first start of a hub makes this file.

Environment variables and command-line flags override values of the file.
"""

import getpass
import os
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from tieline.contract.identifiers import parse_member_name
from tieline.contract.limits import Limits
from tieline.contract.refusal import Refusal
from tieline.protocols import protocols
from tieline.wire.address import ascii_name, check_url, parse_address
from tieline.wire.duration import parse_duration
from tieline.wire.home import CONFIG_FILE, write_private
from tieline.wire.protocol import Settings

_Settings = TypeVar("_Settings", bound=Settings)

DEFAULT_HTTP = "127.0.0.1:7117"
DEFAULT_STORE = "sqlite"
STORE_VARIABLE = "TIELINE_STORE"
DATABASE_SCHEMES = ("postgresql://", "postgres://")
"""Beginnings of the URL of a store in a database."""

_OWNER = "<owner>"

_TEMPLATE = f"""\
# The configuration of this hub. Flags of `tieline serve` and TIELINE_* variables override it.

[http]
# One port for the API, the console, WebSockets and metrics. Port 0 picks a free port.
listen = "{DEFAULT_HTTP}"
# Host names of this hub in addition to localhost and IP addresses, for example ["hub.example.org"]. On a loopback
# address, requests for other names are refused: a web page could use such a name to reach the hub through a browser
# on this machine. On any other address, all names are accepted until some are listed here.
names = []
# Off a loopback address, the hub starts only with TLS, or with insecure = true. tls = true makes a certificate once, in
# this home; tls_cert and tls_key name your own certificate and its key.
tls = false
tls_cert = ""
tls_key = ""
insecure = false
# Behind a proxy: the address by which others reach this hub, and the proxies (IP addresses, or networks such as
# "10.0.0.0/8") whose X-Forwarded-For and X-Forwarded-Proto are believed.
base_url = ""
trusted_proxies = []

[console]
# Member name of the person who runs this hub. The first start prints a link that makes it a member. Until then, nobody
# else can register this name. Empty: no name is reserved.
owner = "{_OWNER}"

[store]
# "sqlite" keeps everything in this home, and "postgresql://…" in a database of PostgreSQL (see docs/postgres.md).
# "memory" deletes everything when the hub stops (for tests).
url = "{DEFAULT_STORE}"
"""

_TEMPLATE_END = """\
[notify]
# Command that notifies a human of an unseen message, for members that have the way "notify". A list of words, for
# example ["ntfy", "publish", "agents"]. It gets the body of the message on stdin, and TIELINE_TO, TIELINE_FROM and
# TIELINE_ID in its environment. Empty for none.
command = []

[backup]
# Regular backups while the hub runs, for example every = "6h" (or "30m", "1d") into folder = "/backups/tieline". The
# newest `keep` files stay there. Empty for none.
every = ""
folder = ""
keep = 7

[pipeline]
# Interval at which the hub runs the pipeline (the analysis of its logs) as a child process, for example "5m". Empty:
# it does not run the pipeline. It needs the packages of the extra "pipeline"; 'tieline doctor' says how to get them.
every = ""
# More options of `tieline pipeline run`, for example ["--alerts", "#ops", "--budget", "50"].
arguments = []

[workers]
# Number of processes that serve clients, beside the process that decides. Useful up to the number of processors less
# one. 0: one process does both.
count = 0

[cluster]
# Several hubs of one team share a database of PostgreSQL: one of them leads, and the others take over if it fails. The
# address, as HOST:PORT, at which the other hubs reach this one. Empty: one hub at a time uses its store.
address = ""
# Where to listen for them, as HOST:PORT, if this is not the address itself.
listen = ""

# [limits]
# Any limit by its name, for example:
# hops_max = 200
"""


class ConfigError(Exception):
    """Raised if the configuration cannot be used. The text names the file or the setting, and the reason."""


def _user_name() -> str:
    """Return the name of the user who runs this process. Return `owner` if that name is no valid member name."""
    try:
        name = parse_member_name(getpass.getuser())
    except (KeyError, OSError):
        return "owner"
    return "owner" if isinstance(name, Refusal) else name


class Http(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[http]` of `tieline.toml`: the address of the HTTP port, its host names, its TLS, and its proxies."""

    listen: str = DEFAULT_HTTP
    names: tuple[str, ...] = ()
    tls: bool = False
    """True to use a certificate that the hub makes itself."""
    tls_cert: str = ""
    tls_key: str = ""
    insecure: bool = False
    """True to listen without TLS where other machines can reach the port."""
    base_url: str = ""
    """The address by which others reach this hub, if a proxy is before it; empty for none."""
    trusted_proxies: tuple[str, ...] = ()

    @property
    def is_secure(self) -> bool:
        """True if the ports of the hub speak TLS."""
        return self.tls or bool(self.tls_cert)

    @property
    def is_proxied(self) -> bool:
        """True if clients come through a proxy. Then they may be anywhere, even if the hub listens on loopback."""
        return bool(self.base_url or self.trusted_proxies)

    @property
    def all_names(self) -> tuple[str, ...]:
        """The host names that the ports accept: the configured ones, and the one in the base URL."""
        host = urlsplit(self.base_url).hostname
        return (*self.names, host) if host else self.names

    def checked(self) -> "Http":
        """Return these settings in their usual form. Raise `ValueError` if they cannot be used."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("a certificate needs its key: give both tls_cert and tls_key")
        if self.tls and self.tls_cert:
            raise ValueError("tls = true makes a certificate, and tls_cert names one: give one of them")
        if self.tls and urlsplit(self.base_url).scheme == "http":
            raise ValueError(
                f"tls = true makes a certificate, and the base URL {self.base_url!r} has no TLS: write https:// there, "
                "or turn tls off"
            )
        for proxy in self.trusted_proxies:
            try:
                ip_network(proxy)
            except ValueError as error:
                raise ValueError(f"{proxy!r} is no trusted proxy: {error}") from error
        names = tuple(map(ascii_name, self.names))
        return msgspec.structs.replace(self, names=names, base_url=check_url(self.base_url) if self.base_url else "")


class ConsoleSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[console]` of `tieline.toml`: the member name of the owner.

    The owner may log in to the console at the first start.
    """

    owner: str = msgspec.field(default_factory=_user_name)


class StoreSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[store]` of `tieline.toml`: the kind of store for messages, such as `sqlite` or `memory`."""

    url: str = DEFAULT_STORE


class NotifySection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[notify]` of `tieline.toml`: the command that notifies a human of unseen messages."""

    command: tuple[str, ...] = ()


class BackupSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[backup]` of `tieline.toml`: the time between two backups, their folder, and the number to keep."""

    every: str = ""
    folder: str = ""
    keep: int = 7

    @property
    def every_seconds(self) -> int:
        """The seconds between two backups; 0 for no backups. Raises `ConfigError` if the setting is no duration."""
        try:
            return parse_duration(self.every, _BACKUP_DAYS_MAX) if self.every else 0
        except ValueError as error:
            raise ConfigError(f"the time between two backups {error}") from error

    def check(self) -> None:
        """Raise `ConfigError` if the settings cannot be used."""
        if self.every_seconds and not self.folder:
            raise ConfigError("regular backups need a folder: --backup-dir DIR, or folder in [backup]")
        if self.keep < 1:
            raise ConfigError("the number of backups to keep is at least 1")


_BACKUP_DAYS_MAX = 365  # a backup that is older than a year is none


class PipelineSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[pipeline]` of `tieline.toml`: how often the hub runs the pipeline, and with which options."""

    every: str = ""
    arguments: tuple[str, ...] = ()


class WorkersSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[workers]` of `tieline.toml`: the number of processes that serve clients."""

    count: int = 0

    def check(self) -> None:
        """Raise `ConfigError` if the number cannot be used."""
        if not 0 <= self.count <= WORKERS_MAX:
            raise ConfigError(f"the number of workers is {self.count}; it must be from 0 to {WORKERS_MAX}")


class ClusterSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[cluster]` of `tieline.toml`: the address at which other hubs of the team reach this hub.

    Without an address, the team has one hub at a time.
    """

    address: str = ""
    listen: str = ""
    """Address at which the hub listens for the others, if it is not `address`."""

    @property
    def is_on(self) -> bool:
        """True if the team may have several hubs."""
        return bool(self.address)

    @property
    def listens_at(self) -> tuple[str, int]:
        """The host and the port at which the hub listens for the others."""
        return parse_address(self.listen or self.address)

    def check(self, store_url: str) -> None:
        """Raise `ConfigError` if the settings cannot be used with the store `store_url`."""
        for text in filter(None, (self.address, self.listen)):
            try:
                _, port = parse_address(text)
            except ValueError as error:
                raise ConfigError(f"[cluster]: {error}") from error
            if not port:
                raise ConfigError(f"[cluster]: {text!r} has no port; other hubs need one that stays")
        if self.listen and not self.address:
            raise ConfigError("[cluster]: listen needs the address at which the other hubs reach this one")
        if self.is_on and not store_url.startswith(DATABASE_SCHEMES):
            raise ConfigError("several hubs of a team need a store that they share: --store postgresql://…")


WORKERS_MAX = 64
"""Most processes that serve clients. More would only wait for the one process that decides."""


class _OwnSections(Struct, frozen=True, forbid_unknown_fields=True):
    """The sections of `tieline.toml` that configure the hub itself (HTTP port, store, limits…).

    The protocols have sections of their own.
    """

    http: Http = Http()
    console: ConsoleSection = msgspec.field(default_factory=ConsoleSection)
    store: StoreSection = StoreSection()
    notify: NotifySection = NotifySection()
    backup: BackupSection = BackupSection()
    pipeline: PipelineSection = PipelineSection()
    workers: WorkersSection = WorkersSection()
    cluster: ClusterSection = ClusterSection()
    limits: Limits = Limits()


class Config(_OwnSections, frozen=True):
    """The whole configuration of a hub: the hub's own sections, and the settings of every protocol."""

    protocols: dict[str, Settings] = {}
    """The settings of every protocol, as protocol name → settings."""

    def of(self, kind: type[_Settings]) -> _Settings:
        """Return the settings of the protocol whose settings class is `kind`."""
        (found,) = (settings for settings in self.protocols.values() if isinstance(settings, kind))
        return found

    def encode(self) -> bytes:
        """Return this configuration as JSON, for another process of the hub. It has all secrets."""
        return msgspec.json.encode(self)

    def overridden(self, flags: Mapping[str, Mapping[str, Any]]) -> "Config":
        """Return a copy of this configuration with some settings replaced. Raise `ConfigError` if they cannot be used.

        `flags` has the new values, as protocol name → field name → value; under `http`, those of the HTTP port, and
        under `workers` and `cluster`, those of these sections.
        """
        try:
            port = msgspec.structs.replace(self.http, **flags.get("http", {})).checked()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        settings = {
            name: msgspec.structs.replace(settings, **flags.get(name, {})) for name, settings in self.protocols.items()
        }
        workers = msgspec.structs.replace(self.workers, **flags.get("workers", {}))
        workers.check()
        cluster = msgspec.structs.replace(self.cluster, **flags.get("cluster", {}))
        return msgspec.structs.replace(self, http=port, workers=workers, cluster=cluster, protocols=settings)

    def in_room(self) -> "Config":
        """Return this configuration without the parts that only the common room (the hub itself) has.

        These parts are the owner, the notification command, the pipeline, and the protocols that do not work in other
        rooms.
        """
        settings = {protocol.name: self.protocols[protocol.name] for protocol in protocols() if protocol.in_rooms}
        return msgspec.structs.replace(
            self,
            console=ConsoleSection(owner=""),
            notify=NotifySection(),
            pipeline=PipelineSection(),
            workers=WorkersSection(),
            cluster=ClusterSection(),
            protocols=settings,
        )


def decode_config(encoded: bytes) -> Config:
    """Return the configuration that `Config.encode` encoded."""
    sections = msgspec.json.decode(encoded, type=dict[str, Any])
    written = sections.pop("protocols")
    own = msgspec.convert(sections, _OwnSections)
    settings = {
        protocol.name: msgspec.convert(written[protocol.name], protocol.settings)
        for protocol in protocols()
        if protocol.name in written
    }
    return Config(**msgspec.structs.asdict(own), protocols=settings)


def load_config(home: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in a hub's home folder. Raises `ConfigError` if it is not valid.

    If there is no file, write a default file that the owner can change. Variables of `environment` override the file.
    """
    path = home / CONFIG_FILE
    if not path.exists():
        templates = [protocol.template() for protocol in protocols()]
        text = "\n".join((_TEMPLATE.replace(_OWNER, _user_name()), *templates, _TEMPLATE_END))
        write_private(path, text.encode())
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
        sections = {protocol.section: written.pop(protocol.section, {}) for protocol in protocols()}
        own = msgspec.convert(written, _OwnSections)
        settings = {
            protocol.name: msgspec.convert(sections[protocol.section], protocol.settings) for protocol in protocols()
        }
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    # `Limits` belongs to the contract and ignores unknown fields; in this file an unknown field is a typing error.
    unknown = sorted(written.get("limits", {}).keys() - set(Limits.__struct_fields__))
    if unknown:
        raise ConfigError(f"{path}: unknown limit {unknown[0]!r}")
    _check_order(path, own.limits, written.get("limits", {}))
    settings = {name: each.with_environment(environment) for name, each in settings.items()}
    for each in settings.values():
        try:
            each.check()
        except ValueError as error:
            raise ConfigError(str(error)) from error
    return _with_environment(Config(**msgspec.structs.asdict(own), protocols=settings), environment)


_ORDERED = (
    ("hops_soft", "hops_max"),
    ("objective_hops_soft", "objective_hops_max"),
    ("space_ms_min", "space_ms_max"),
    ("hop_ms_min", "reply_window_ms"),
)
"""Pairs of names of limits that stop agents from answering each other without end. The first limit of a pair must not
be larger than the second."""


def _check_order(path: Path, limits: Limits, written: Mapping[str, object]) -> None:
    for low, high in _ORDERED:
        least, most = getattr(limits, low), getattr(limits, high)
        # Older files set only the second of a pair, because the first did not exist. They must still work.
        if least > most and (low in written or high not in ("hops_max", "reply_window_ms")):
            raise ConfigError(f"{path}: {low} is {least} and {high} is {most}; {low} must be at most {high}")


def _with_environment(config: Config, environment: Mapping[str, str]) -> Config:
    listen = environment.get("TIELINE_HTTP")
    if listen:
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
    url = environment.get(STORE_VARIABLE)
    if url:
        config = msgspec.structs.replace(config, store=StoreSection(url))
    return config
