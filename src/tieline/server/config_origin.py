"""The origin of each setting: the default, `tieline.toml`, an environment variable, or a flag of `tieline serve`.

Used by: the hub, which writes down the settings it runs with, `tieline config show`, and commands that need a setting
of the running hub. Uses: `config`. The values of secrets are left out: only the fact that a secret is set is shown.
"""

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tieline.protocols import protocols
from tieline.server.config import Config, ConfigError, StoreSection, load_config
from tieline.server.storage import in_database, public_url
from tieline.wire.home import CONFIG_FILE, SETTINGS_FILE, read_running, write_private

_Section = TypeVar("_Section", bound=Struct)

_SECRET = re.compile(r"token|secret|password")


class Origin(StrEnum):
    """Origin of a setting's value: the default, the file, an environment variable, or a flag."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Setting(Struct, frozen=True):
    """One setting: its name, as section and field, its value, and the origin of the value."""

    name: str
    value: Any
    """The value as JSON has it; for a secret, a text that says only if there is one."""
    origin: Origin


class EffectiveSettings(Struct, frozen=True):
    """All settings of a hub with their origins.

    `file_changed_at_ns` is the time of the last change of `tieline.toml` before these settings were read.
    """

    settings: tuple[Setting, ...]
    file_changed_at_ns: int

    def section(self, name: str, kind: type[_Section]) -> _Section:
        """Return the section `name` of the settings, such as `http`, as a value of its type `kind`."""
        values = {one.name: one.value for one in self.settings}
        # The running hub may be of another version, which has other fields.
        fields = {field: values[f"{name}.{field}"] for field in kind.__struct_fields__ if f"{name}.{field}" in values}
        return msgspec.convert(fields, kind)


def settings_of(home: Path, config: Config | None = None) -> EffectiveSettings:
    """Return the settings of a home with a `tieline.toml`. Raises `ConfigError` if they are not valid.

    `config` is the configuration with all flags; without it, no flags are used.
    """
    path = home / CONFIG_FILE
    changed = path.stat().st_mtime_ns
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    from_file = dict(_values(_usual(load_config(home, {}))))
    with_environment = _usual(load_config(home))
    from_environment = dict(_values(with_environment))
    found = []
    for name, value in _values(config or with_environment):
        section, _, field = name.partition(".")
        if value != from_environment[name]:
            origin = Origin.FLAG
        elif value != from_file[name]:
            origin = Origin.ENVIRONMENT
        else:
            origin = Origin.FILE if field in written.get(section, {}) else Origin.DEFAULT
        found.append(Setting(name, _shown(name, value), origin))
    return EffectiveSettings(tuple(found), changed)


def record(home: Path, config: Config) -> None:
    """Write down the settings with which the hub of this home runs."""
    write_private(home / SETTINGS_FILE, msgspec.json.encode(settings_of(home, config)))


def recorded(home: Path) -> EffectiveSettings | None:
    """Return the settings that the running hub of this home wrote down; `None` if there are none."""
    try:
        return msgspec.json.decode((home / SETTINGS_FILE).read_bytes(), type=EffectiveSettings)
    except (OSError, msgspec.MsgspecError):
        return None


def in_use(home: Path) -> EffectiveSettings:
    """Return the settings of the running hub of this home, else those of the next start.

    Raises `ConfigError` if the settings of the next start are not valid.
    """
    found = recorded(home) if read_running(home) is not None else None
    return found or settings_of(home)


def database_of(home: Path) -> str:
    """Return the address of the PostgreSQL database of the hub of this home, without its password; empty for none."""
    with contextlib.suppress(ConfigError, OSError):
        url = in_use(home).section("store", StoreSection).url
        return url if in_database(url) else ""
    return ""


def _usual(config: Config) -> Config:
    """Return a configuration with every value in the form in which the hub uses it; unchanged if that is not possible.

    A configuration with flags has this form already. So a comparison of the two shows only the effect of the flags.
    """
    try:
        return config.overridden({})
    except ConfigError:
        # Only together with a flag it is one that can be used.
        return config


def _values(config: Config) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each setting, the hub's own sections first."""
    sections: dict[str, Any] = {
        name: section for name, section in msgspec.structs.asdict(config).items() if name != "protocols"
    }
    sections |= {protocol.section: config.protocols[protocol.name] for protocol in protocols()}
    for section, fields in sections.items():
        plain = msgspec.to_builtins(fields)
        values: Mapping[str, Any] = plain if isinstance(plain, dict) else {"": plain}
        for field, value in values.items():
            yield f"{section}.{field}".rstrip("."), value


def _shown(name: str, value: Any) -> Any:
    if name == "store.url":
        return public_url(value)
    if not _SECRET.search(name) or isinstance(value, bool | int | float):
        return value
    return "(set, not shown)" if value else "(not set)"
