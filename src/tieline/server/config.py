"""Configuration: `tieline.toml` in the home, made by the first start, overridden by the environment and by flags."""

import getpass
import os
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.contract.identifiers import parse_member_name
from tieline.contract.limits import Limits
from tieline.contract.refusal import Refusal
from tieline.protocols.peerbus.canonical import SECRET_BYTES_MIN
from tieline.wire.home import CONFIG_FILE, write_private

DEFAULT_HTTP = "127.0.0.1:7117"

_ROOM_TOKEN = "<room token>"
"""Where the template has the token that each home gets for itself."""

_PEERBUS_TOKEN = "<peerbus token>"
_PEERBUS_SECRET = "<peerbus secret>"
_OWNER = "<owner>"

_TEMPLATE = f"""\
# The configuration of this hub. Flags of `tieline serve` and TIELINE_* variables override it.

[http]
# One port for the API, WebSockets and metrics; port 0 picks a free one.
listen = "{DEFAULT_HTTP}"
# Names of this hub beside localhost and IP addresses, for example ["hub.example.org"]. While it listens on a loopback
# address it answers to no other name, so that no web page reaches it through its visitor's browser by a name that
# resolves to this machine. On any other address all names are answered until some are listed here.
names = []

[console]
# The name kept for the person who runs this hub: the first start prints a link that makes it a member, and no token of
# a room or a peer can take it before. Empty keeps none.
owner = "{_OWNER}"

[store]
# "sqlite" keeps everything in this home; "memory" forgets everything at the end (for trying out and measuring).
url = "sqlite"

[agent_channels]
enabled = true
# A socket for every member, which reads and writes for it: for whoever can open files of this home.
inboxes = true

[agent_relay]
enabled = true
# Whether a RESUME must show the resume token, not only the session's id.
require_resume_token = false

[backchannel]
enabled = true
# Whoever shows this may register a name, and nothing else; empty lets everybody who reaches the HTTP port do so.
room_token = "{_ROOM_TOKEN}"
# Whether local agents of a spool are members too, and where it is; empty for BACKCHANNEL_HOME, else a folder of this
# home, or ~/.backchannel where no home was named.
adopt = true
spool = ""

[peerbus]
enabled = true
# A peer that shows one of these may register a name, which belongs to that token from then on: to share one is to share
# identity. A member's own token opens its name too.
tokens = ["{_PEERBUS_TOKEN}"]
# What peers sign with, at least {SECRET_BYTES_MIN} bytes, given to them on another way than this hub. It checks
# signatures with it, and signs what other protocols say to peers; without it the latter is refused.
hmac_secret = "{_PEERBUS_SECRET}"
# A port for peers alone, beside the HTTP port, for example "127.0.0.1:47821"; empty for none.
listen = ""

[ac7]
enabled = true
# Whether a member is told, in a message, that a session of it is online.
announce = true

[notify]
# The command that tells a human of a message that nothing shows to have been seen, for members that are to be reached
# by "notify": a list of words, for example ["ntfy", "publish", "agents"]. The message's body is on its stdin, who and
# what in TIELINE_TO, TIELINE_FROM and TIELINE_ID; empty for none.
command = []

# [limits]
# Any limit by its name, for example:
# hops_max = 200
"""


class ConfigError(Exception):
    """The configuration cannot be used; the text says where and why."""


def _user_name() -> str:
    """The name of whoever runs this process, as a member's."""
    try:
        name = parse_member_name(getpass.getuser())
    except (KeyError, OSError):
        return "owner"
    return "owner" if isinstance(name, Refusal) else name


class Http(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP port."""

    listen: str = DEFAULT_HTTP
    names: tuple[str, ...] = ()


class ConsoleSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Who gets into the console at a first start."""

    owner: str = msgspec.field(default_factory=_user_name)


class StoreSection(Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages are kept."""

    url: str = "sqlite"


class AgentChannels(Struct, frozen=True, forbid_unknown_fields=True):
    """The agent-channels protocol."""

    enabled: bool = True
    inboxes: bool = True


class AgentRelay(Struct, frozen=True, forbid_unknown_fields=True):
    """The Agent Relay Protocol."""

    enabled: bool = True
    require_resume_token: bool = False
    heartbeat_ms: int = 5000
    frame_bytes_max: int = 1024 * 1024


class Backchannel(Struct, frozen=True, forbid_unknown_fields=True):
    """backchannel's relay. The room token is kept as it is, because inviting somebody means showing it."""

    enabled: bool = True
    room_token: str = ""
    adopt: bool = True
    spool: str = ""

    @property
    def spool_path(self) -> Path | None:
        """The spool that is named."""
        return Path(self.spool).expanduser().absolute() if self.spool else None


class Peerbus(Struct, frozen=True, forbid_unknown_fields=True):
    """The peerbus protocol."""

    enabled: bool = True
    tokens: tuple[str, ...] = ()
    hmac_secret: str = ""
    listen: str = ""


class Ac7Section(Struct, frozen=True, forbid_unknown_fields=True):
    """The ac7 protocol."""

    enabled: bool = True
    announce: bool = True


class NotifySection(Struct, frozen=True, forbid_unknown_fields=True):
    """How a human is told of what was not seen."""

    command: tuple[str, ...] = ()


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    http: Http = Http()
    console: ConsoleSection = msgspec.field(default_factory=ConsoleSection)
    store: StoreSection = StoreSection()
    agent_channels: AgentChannels = AgentChannels()
    agent_relay: AgentRelay = AgentRelay()
    backchannel: Backchannel = Backchannel()
    peerbus: Peerbus = Peerbus()
    ac7: Ac7Section = Ac7Section()
    notify: NotifySection = NotifySection()
    limits: Limits = Limits()


def load_config(home: Path) -> Config:
    """The configuration of a home; a home without one gets the default, written down for its owner to change."""
    path = home / CONFIG_FILE
    if not path.exists():
        template = _TEMPLATE.replace(_OWNER, _user_name())
        for placeholder in (_ROOM_TOKEN, _PEERBUS_TOKEN):
            template = template.replace(placeholder, secrets.token_urlsafe(24))
        write_private(path, template.replace(_PEERBUS_SECRET, secrets.token_urlsafe(32)).encode())
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
        config = msgspec.convert(written, Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    # `Limits` belongs to the contract and passes over what it does not know; here that is a slip of the pen.
    unknown = sorted(written.get("limits", {}).keys() - set(Limits.__struct_fields__))
    if unknown:
        raise ConfigError(f"{path}: there is no limit {unknown[0]!r}")
    _check_order(path, config.limits, written.get("limits", {}))
    config = _with_environment(config)
    secret = config.peerbus.hmac_secret.encode()
    if secret and len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(f"the peerbus secret has {len(secret)} bytes, and needs at least {SECRET_BYTES_MIN}")
    return config


_ORDERED = (
    ("hops_soft", "hops_max"),
    ("objective_hops_soft", "objective_hops_max"),
    ("space_ms_min", "space_ms_max"),
    ("hop_ms_min", "reply_window_ms"),
)
"""Limits of the loop rule of which the first is at most the second."""


def _check_order(path: Path, limits: Limits, written: Mapping[str, object]) -> None:
    for low, high in _ORDERED:
        least, most = getattr(limits, low), getattr(limits, high)
        # Files from before the first of a pair was there set the other alone, and go on to work.
        if least > most and (low in written or high not in ("hops_max", "reply_window_ms")):
            raise ConfigError(f"{path}: {low} is {least} and {high} is {most}; {low} is at most {high}")


def _with_environment(config: Config) -> Config:
    listen = os.environ.get("TIELINE_HTTP")
    if listen:
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
    url = os.environ.get("TIELINE_STORE")
    if url:
        config = msgspec.structs.replace(config, store=StoreSection(url))
    room_token = os.environ.get("BACKCHANNEL_TOKEN")
    if room_token:
        backchannel = msgspec.structs.replace(config.backchannel, room_token=room_token)
        config = msgspec.structs.replace(config, backchannel=backchannel)
    return msgspec.structs.replace(config, peerbus=_peerbus_with_environment(config.peerbus))


def _peerbus_with_environment(peerbus: Peerbus) -> Peerbus:
    tokens = os.environ.get("PEERBUS_TOKENS")
    if tokens:
        listed = tuple(token.strip() for token in tokens.split(",") if token.strip())
        peerbus = msgspec.structs.replace(peerbus, tokens=listed)
    secret = os.environ.get("PEERBUS_HMAC_SECRET")
    if secret:
        peerbus = msgspec.structs.replace(peerbus, hmac_secret=secret)
    listen = os.environ.get("TIELINE_PEERBUS")
    return msgspec.structs.replace(peerbus, listen=listen) if listen else peerbus


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """`HOST:PORT`, with brackets around an IPv6 host; `HOST` alone where there is a port to go with it."""
    if default_port is not None and ":" not in text:
        return text or "127.0.0.1", default_port
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest port
        raise ConfigError(f"{text!r} is not an address: write HOST:PORT, for example {DEFAULT_HTTP}")
    return host.strip("[]") or "127.0.0.1", int(port)
