"""Configuration: `tieline.toml` in the home, made by the first start, overridden by the environment and by flags."""

import getpass
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tieline.contract.identifiers import parse_member_name
from tieline.contract.limits import Limits
from tieline.contract.refusal import Refusal
from tieline.protocols import protocols
from tieline.wire.home import CONFIG_FILE, write_private
from tieline.wire.protocol import Settings

_Settings = TypeVar("_Settings", bound=Settings)

DEFAULT_HTTP = "127.0.0.1:7117"

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
"""

_TEMPLATE_END = """\
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
    """The name of the user who runs this process, if it is a valid member name; else `owner`."""
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
    """The owner, who gets into the console at a first start."""

    owner: str = msgspec.field(default_factory=_user_name)


class StoreSection(Struct, frozen=True, forbid_unknown_fields=True):
    """The store of messages."""

    url: str = "sqlite"


class NotifySection(Struct, frozen=True, forbid_unknown_fields=True):
    """The command that notifies a human of unseen messages."""

    command: tuple[str, ...] = ()


class _OwnSections(Struct, frozen=True, forbid_unknown_fields=True):
    """The hub's own sections, without those of protocols."""

    http: Http = Http()
    console: ConsoleSection = msgspec.field(default_factory=ConsoleSection)
    store: StoreSection = StoreSection()
    notify: NotifySection = NotifySection()
    limits: Limits = Limits()


class Config(_OwnSections, frozen=True):
    """The whole configuration."""

    protocols: dict[str, Settings] = {}
    """The settings of every protocol, by its name."""

    def of(self, kind: type[_Settings]) -> _Settings:
        """The settings of the protocol whose settings are of this kind."""
        (found,) = (settings for settings in self.protocols.values() if isinstance(settings, kind))
        return found

    def overridden(self, flags: Mapping[str, Mapping[str, Any]]) -> "Config":
        """This configuration with settings that flags override, by protocol and field."""
        settings = {
            name: msgspec.structs.replace(settings, **flags.get(name, {})) for name, settings in self.protocols.items()
        }
        return msgspec.structs.replace(self, protocols=settings)


def load_config(home: Path) -> Config:
    """Read the configuration of a home. A home without one gets a default file, for its owner to change."""
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
        raise ConfigError(f"{path}: there is no limit {unknown[0]!r}")
    _check_order(path, own.limits, written.get("limits", {}))
    settings = {name: each.with_environment(os.environ) for name, each in settings.items()}
    for each in settings.values():
        try:
            each.check()
        except ValueError as error:
            raise ConfigError(str(error)) from error
    return _with_environment(Config(**msgspec.structs.asdict(own), protocols=settings))


_ORDERED = (
    ("hops_soft", "hops_max"),
    ("objective_hops_soft", "objective_hops_max"),
    ("space_ms_min", "space_ms_max"),
    ("hop_ms_min", "reply_window_ms"),
)
"""Pairs of limits of the loop rule. The first must be at most the second."""


def _check_order(path: Path, limits: Limits, written: Mapping[str, object]) -> None:
    for low, high in _ORDERED:
        least, most = getattr(limits, low), getattr(limits, high)
        # Older files set only the second of a pair, because the first did not exist. They must still work.
        if least > most and (low in written or high not in ("hops_max", "reply_window_ms")):
            raise ConfigError(f"{path}: {low} is {least} and {high} is {most}; {low} is at most {high}")


def _with_environment(config: Config) -> Config:
    listen = os.environ.get("TIELINE_HTTP")
    if listen:
        config = msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, listen=listen))
    url = os.environ.get("TIELINE_STORE")
    if url:
        config = msgspec.structs.replace(config, store=StoreSection(url))
    return config
