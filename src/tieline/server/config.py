"""Configuration: `tieline.toml` in the home, made by the first start, overridden by the environment and by flags."""

import os
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.contract.limits import Limits
from tieline.wire.home import CONFIG_FILE, write_private

DEFAULT_HTTP = "127.0.0.1:7117"

_TEMPLATE = f"""\
# The configuration of this hub. Flags of `tieline serve` and TIELINE_* variables override it.

[http]
# One port for the API, WebSockets and metrics; port 0 picks a free one.
listen = "{DEFAULT_HTTP}"

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

# [limits]
# Any limit by its name, for example:
# hops_max = 64
"""


class ConfigError(Exception):
    """The configuration cannot be used; the text says where and why."""


class Http(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP port."""

    listen: str = DEFAULT_HTTP


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


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    http: Http = Http()
    store: StoreSection = StoreSection()
    agent_channels: AgentChannels = AgentChannels()
    agent_relay: AgentRelay = AgentRelay()
    limits: Limits = Limits()


def load_config(home: Path) -> Config:
    """The configuration of a home; a home without one gets the default, written down for its owner to change."""
    path = home / CONFIG_FILE
    if not path.exists():
        write_private(path, _TEMPLATE.encode())
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
        config = msgspec.convert(written, Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    # `Limits` belongs to the contract and passes over what it does not know; here that is a slip of the pen.
    unknown = sorted(written.get("limits", {}).keys() - set(Limits.__struct_fields__))
    if unknown:
        raise ConfigError(f"{path}: there is no limit {unknown[0]!r}")
    return _with_environment(config)


def _with_environment(config: Config) -> Config:
    listen = os.environ.get("TIELINE_HTTP")
    if listen:
        config = msgspec.structs.replace(config, http=Http(listen))
    url = os.environ.get("TIELINE_STORE")
    if url:
        config = msgspec.structs.replace(config, store=StoreSection(url))
    return config


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, with brackets around an IPv6 host."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - the largest port
        raise ConfigError(f"{text!r} is not an address: write HOST:PORT, for example {DEFAULT_HTTP}")
    return host.strip("[]") or "127.0.0.1", int(port)
