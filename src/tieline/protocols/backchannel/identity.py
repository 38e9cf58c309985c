"""The identity: the name under which the user's commands act, and the relay that they use instead of a spool, if any.

A relay is an HTTP server of backchannel. Used by: the command line. Uses: `config.json`. Other programs read and write
this file too, so unknown keys in it are kept. The file may contain a token, so only its owner can read it.
"""

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tieline.protocols.backchannel import disk
from tieline.wire.address import with_pin

HOME_VARIABLE = "BACKCHANNEL_HOME"
AGENT_VARIABLE = "BACKCHANNEL_AGENT"
URL_VARIABLE = "BACKCHANNEL_URL"
TOKEN_VARIABLE = "BACKCHANNEL_TOKEN"
ROOM_VARIABLE = "BACKCHANNEL_RELAY_ROOM"
ADMIN_TOKEN_VARIABLE = "BACKCHANNEL_ADMIN_TOKEN"

CONFIG_FILE = "config.json"
_CONFIG_BYTES_MAX = 1024 * 1024  # a few lines; whatever is larger is another file


class BadConfig(Exception):
    """Exception: `config.json` exists but cannot be used. The text has the path of the file and the reason."""


class Identity(Struct, frozen=True):
    """Content of `config.json`: the agent's name, and the relay (an HTTP server) that the agent uses, if any."""

    agent: str | None = None
    url: str | None = None
    token: str | None = None
    hub: str | None = None
    """The same address as `url` if the server there is a Tieline hub. A hub can do more than a relay."""
    room: str | None = None
    """Id of a room of the relay (HTTP server). `None` means the common room."""
    fingerprint: str | None = None
    """The SHA-256 of the relay's certificate, if the relay made that itself. Clients then trust no other."""

    @property
    def pinned_url(self) -> str | None:
        """The address `url`, with the fingerprint of the certificate that clients must find there."""
        return None if self.url is None else with_pin(self.url, self.fingerprint)

    @property
    def is_hub(self) -> bool:
        """True if the server at `url` is known to be a Tieline hub."""
        return self.url is not None and self.url == self.hub

    def with_environment(self) -> "Identity":
        """Return a copy in which backchannel's environment variables replace the stored values.

        If the address is replaced, the stored token and room are dropped, because they belong to the stored address.
        """
        url = os.environ.get(URL_VARIABLE) or self.url
        return msgspec.structs.replace(
            self,
            agent=os.environ.get(AGENT_VARIABLE) or self.agent,
            url=url,
            token=os.environ.get(TOKEN_VARIABLE) or (self.token if url == self.url else None),
            room=os.environ.get(ROOM_VARIABLE) or (self.room if url == self.url else None),
            fingerprint=self.fingerprint if url == self.url else None,
        )


def default_root() -> Path:
    """Return the default folder of the spool: `BACKCHANNEL_HOME`, else `~/.backchannel`."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).expanduser().absolute() if named else Path.home() / ".backchannel"


def read_identity(root: Path) -> Identity:
    """Return the identity in `config.json` of the folder `root`. If there is no file, return an empty identity."""
    try:
        return msgspec.convert(_document(root), Identity)
    except msgspec.ValidationError as error:
        raise BadConfig(f"{root / CONFIG_FILE}: {error}") from error


def save_identity(root: Path, identity: Identity) -> None:
    """Write the identity to `config.json`. Keys in the file that are not fields of `Identity` are kept."""
    said = {key: value for key, value in msgspec.structs.asdict(identity).items() if value is not None}
    kept = {key: value for key, value in _document(root).items() if key not in Identity.__struct_fields__}
    disk.make_folder(root)
    disk.replace(root / CONFIG_FILE, msgspec.json.format(msgspec.json.encode({**said, **kept}), indent=2))


def _document(root: Path) -> dict[str, Any]:
    path = root / CONFIG_FILE
    try:
        data = disk.read(path, _CONFIG_BYTES_MAX)
    except FileNotFoundError:
        return {}
    if data is None:
        raise BadConfig(f"{path}: it is no plain file, or too large")
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadConfig(f"{path}: {error}") from error
