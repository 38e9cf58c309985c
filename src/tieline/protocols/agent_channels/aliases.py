"""Other names of inboxes: `dm-<member>.sock` is a link to `inbox-<member>.sock`.

Used by: `server`. Uses: the folder of the sockets. A newer version of the protocol's library writes to a member through
`dm-<member>.sock`. This file is a symbolic link, because a second socket would need one more open file. A channel whose
name begins with `dm-` gets no socket. Otherwise anybody could create such a channel and receive a member's messages.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from tieline.contract.identifiers import INBOX_PREFIX

DM_PREFIX = "dm-"


class InboxAliases:
    """The links `dm-<member>.sock` in one folder, each to the inbox socket of a member."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, inboxes: Iterable[str]) -> None:
        """Create the links to these inboxes. A file that already has the name of a link stays unchanged."""
        for inbox in inboxes:
            with contextlib.suppress(FileExistsError):
                (self._folder / f"{alias_of(inbox)}.sock").symlink_to(f"{inbox}.sock")

    def remove(self, inboxes: Iterable[str]) -> None:
        """Remove the links to these inboxes."""
        for inbox in inboxes:
            link = self._folder / f"{alias_of(inbox)}.sock"
            if link.is_symlink():
                link.unlink()

    def clear(self) -> None:
        """Remove all links, including links that a killed process left behind."""
        for link in self._folder.glob(f"{DM_PREFIX}*.sock"):
            if link.is_symlink():
                link.unlink()


def is_inbox(name: str) -> bool:
    """True if the socket with this name, without `.sock`, is a member's inbox."""
    return name.startswith(INBOX_PREFIX)


def alias_of(inbox: str) -> str:
    """Return the other name of an inbox: `dm-<member>` for `inbox-<member>`."""
    return DM_PREFIX + inbox.removeprefix(INBOX_PREFIX)


def inbox_of(name: str) -> str | None:
    """Return `inbox-<member>` for the other name `dm-<member>`, or None if `name` does not begin with `dm-`."""
    return INBOX_PREFIX + name.removeprefix(DM_PREFIX) if name.startswith(DM_PREFIX) else None
