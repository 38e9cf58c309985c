"""Other names of inboxes: `dm-<member>.sock` leads to `inbox-<member>.sock`.

Above: `server`. Below: the folder of the sockets. A newer version of the protocol's library writes to a member through
`dm-<member>.sock`. Each such name is a symbolic link, because a link needs no open file. A channel whose name begins
with `dm-` has no socket: anybody could take the messages to a member by making such a channel.
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
        """Link to these inboxes, unless something else is at the place of a link."""
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
        """Remove all links, also those that a process left behind that was killed."""
        for link in self._folder.glob(f"{DM_PREFIX}*.sock"):
            if link.is_symlink():
                link.unlink()


def is_inbox(name: str) -> bool:
    """True if this is the name of an inbox's socket."""
    return name.startswith(INBOX_PREFIX)


def alias_of(inbox: str) -> str:
    """Return the other name of an inbox: `dm-<member>` for `inbox-<member>`."""
    return DM_PREFIX + inbox.removeprefix(INBOX_PREFIX)


def inbox_of(name: str) -> str | None:
    """Return the inbox for its other name: `inbox-<member>` for `dm-<member>`. None if the name is no such name."""
    return INBOX_PREFIX + name.removeprefix(DM_PREFIX) if name.startswith(DM_PREFIX) else None
