"""The home: the folder with all files of a hub, in which local clients find the hub's addresses.

Used by: the server, the SDK, the command line. Uses: the file system. Everything that a hub writes is under its home,
so that a user can back up, move or delete the hub as one folder.
"""

import os
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
from msgspec import Struct

from tieline.wire.address import with_pin

HOME_VARIABLE = "TIELINE_HOME"
RUN_FILE = "run.json"
SETTINGS_FILE = "run-settings.json"
"""File with the settings of the running hub, and the origin of each."""
KEY_FILE = "key"
LOCK_FILE = "lock"
CONFIG_FILE = "tieline.toml"
CERTIFICATE_FILE = "tls.crt"
"""File with the certificate that the hub makes itself."""
HUB_SOCKET = "hub.sock"
LINK_SOCKET = "link.sock"
"""Socket at which the workers of a hub reach its broker."""
REQUESTS_SOCKET = "http.sock"
"""Socket at which the workers of a hub pass HTTP requests on."""
RESTORE_FOLDER = ".restoring"
"""Folder in which `tieline restore` unpacks a backup. A home that has it is not whole."""


class Running(Struct, frozen=True):
    """Content of `run.json`, which describes a running hub to local clients: process id, version and addresses."""

    pid: int
    version: str
    http: str
    hub_socket: str
    store: str
    pipeline: str = ""
    """Interval at which the hub runs the pipeline, such as `5m`; empty if it does not."""
    places: dict[str, str | None] = {}
    """Sockets, folders and addresses of protocols, by name. In `run.json`, each name is a key at the top level."""
    url: str = ""
    """The address of the hub for other machines, if it is not `http`: for example the address of a proxy. It ends with
    the fingerprint of the hub's own certificate, unless a proxy shows another certificate."""
    fingerprint: str = ""
    """The SHA-256 of the certificate that the hub made itself; empty without TLS, or with the owner's certificate."""

    role: str = ""
    """`leader` or `follower`, if the team may have several hubs; else empty."""
    term: int = 0
    """The term of the leader that this hub knows; 0 without several hubs."""
    leader: str = ""
    """The leader that this hub knows, for people."""

    @property
    def public(self) -> str:
        """The address to tell to people and to other machines."""
        return self.url.partition("#")[0] or self.http

    @property
    def invited_to(self) -> str:
        """The address in invitations, with the fingerprint of the certificate that newcomers must find there."""
        return self.url or self.pinned

    @property
    def pinned(self) -> str:
        """The address of the HTTP port for programs on this machine, with the fingerprint that they must find there."""
        return with_pin(self.http, self.fingerprint)

    def encode(self) -> bytes:
        """Return this description as the JSON text of `run.json`."""
        own = msgspec.structs.asdict(self)
        places = own.pop("places")
        return msgspec.json.encode({**own, **places})

    @classmethod
    def decode(cls, document: bytes) -> "Running":
        """Return the description in `document`, the content of `run.json`.

        Raises `msgspec.MsgspecError` if it is not valid.
        """
        written = msgspec.json.decode(document, type=dict[str, Any])
        own = {name: written.pop(name) for name in cls.__struct_fields__ if name in written}
        return msgspec.convert({**own, "places": written}, cls)


def find_home(named: Path | str | None = None) -> Path:
    """Return the hub's folder: `named` if given, else the folder in `TIELINE_HOME`, else the platform's default."""
    if named is not None:
        return Path(named).expanduser().absolute()
    from_environment = os.environ.get(HOME_VARIABLE)
    if from_environment:
        return Path(from_environment).expanduser().absolute()
    return default_home()


def default_home() -> Path:
    """Return the platform's default folder for a hub, such as `~/.local/state/tieline`."""
    return platformdirs.user_state_path("tieline")


def read_running(home: Path) -> Running | None:
    """Return the description of the hub that runs in the folder `home`.

    Return `None` if there is no valid `run.json`, or if the hub's process has ended.
    """
    try:
        running = Running.decode((home / RUN_FILE).read_bytes())
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return running if _alive(running.pid) else None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # The process exists and belongs to another user.
        return True
    return True


def read_key(home: Path) -> str | None:
    """Return the secret key of the hub in the folder `home`, or `None`.

    A client with this key may act as any member.
    """
    try:
        return (home / KEY_FILE).read_text(encoding="ascii").strip()
    except (FileNotFoundError, PermissionError):
        return None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read.

    Other processes see the complete file or no file, never a part of the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # A file of this name is a leftover of a process that died. It may be a link, which must not be followed.
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
