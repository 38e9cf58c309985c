"""The text of a systemd unit that runs a hub, for one user or for the system.

Used by: `service`. Uses: nothing; it does no I/O. The unit of the system is hardened: the hub can write only to its
home and to the folder of its backups. A unit of a user has fewer limits, because a user's systemd cannot set most of
them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

STATE_FOLDER = Path("/var/lib")
"""Folder in which systemd itself makes the home of a service, with the right owner."""

_PRIVATE_FOLDERS = (Path("/home"), Path("/root"), Path("/run/user"))
"""Folders of people, which `ProtectHome=yes` hides from a service."""

_HARDENED = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
{protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""

_LIMITED = """\
NoNewPrivileges=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
"""


class Unit(Struct, frozen=True, kw_only=True):
    """Parts of a unit: the command, the home of the hub, its folder for backups, and the system user that runs it."""

    command: tuple[str, ...]
    """The command with its arguments. Its first word is an absolute path."""
    home: Path
    backups: Path | None = None
    """Folder of regular backups, if it is outside of the home."""
    user: str = ""
    """Name of the system user of a system unit; empty for a user's own unit."""
    programs: tuple[Path, ...]
    """Folders of the installed program and of its Python, which the service must be able to read."""

    def text(self) -> str:
        """Return the content of the unit file."""
        network = "Wants=network-online.target\nAfter=network-online.target\n" if self.user else ""
        return f"""\
# Written by 'tieline service install', which replaces it; change it with 'systemctl edit'.
[Unit]
Description=Tieline, one hub for coding agents
{network}StartLimitIntervalSec=120
StartLimitBurst=5

[Service]
Type=notify
ExecStart={" ".join(map(_word, self.command))}
Restart=on-failure
RestartSec=2
# Before an upgrade the hub backs up its home. That may take longer than any limit, and must not end in a restart.
TimeoutStartSec=infinity
TimeoutStopSec=60
KillMode=mixed
UMask=0077
{self._limits()}
[Install]
WantedBy={"multi-user.target" if self.user else "default.target"}
"""

    def _limits(self) -> str:
        if not self.user:
            return _LIMITED
        backups = (self.backups,) if self.backups else ()
        in_private = any(_is_in(path, _PRIVATE_FOLDERS) for path in (self.home, *backups, *self.programs))
        # The hub may have to read its program, or write to its home or its backups, in a folder of a person.
        protect_home = "ProtectHome=read-only" if in_private else "ProtectHome=yes"
        lines = [f"WorkingDirectory={_path(self.home)}", f"ReadWritePaths={_quoted(str(self.home))}"]
        if self.home.parent == STATE_FOLDER:
            lines = [f"StateDirectory={_quoted(self.home.name)}", "StateDirectoryMode=0700"]
        # With the dash, the service also starts if the folder is missing. The hub itself then says so.
        lines = [f"User={self.user}", *lines, *(f"ReadWritePaths={_quoted(f'-{folder}')}" for folder in backups)]
        return "\n".join((*lines, _HARDENED.format(protect_home=protect_home)))


def _is_in(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _path(path: Path) -> str:
    return str(path).replace("%", "%%")


def _word(text: str) -> str:
    """Return a word of a command for a unit file. A `$` is doubled, because systemd replaces variables in commands."""
    return _quoted(text.replace("$", "$$"))


def _quoted(text: str) -> str:
    """Return a word for a unit file: with each `%` doubled, and in quotes if it has other special characters."""
    plain = text.replace("%", "%%")
    if re.fullmatch(r"[\w@%+=:,./$-]+", plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
