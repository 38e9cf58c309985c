"""A mailbox: the folder of one member in a spool that a hub uses.

    new/<id>.json             unread, for the first reader
    hub/mailbox.json          owner of the mailbox: a local agent, or a remote member
    hub/<id>.json             claimed for the hub, and not yet accepted by it
    refused/<id>.<code>.json  refused by the hub, and kept for a person to look at

Used by: intake, inboxes. Uses: the disk. Other programs do not know `hub/` and `refused/`, so they delete nothing
there. The owner is stored in the mailbox. It is not in the agent's record, because other programs rewrite records. It
is not in the hub's data folder, because it is a fact about this spool. The methods use the disk, so call them on
threads.
"""

import contextlib
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.contract.refusal import Code
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.claims import SUFFIX, read_message
from tieline.protocols.backchannel.codec import SpoolMessage, is_id

INFO_FILE = "mailbox.json"
_INFO_BYTES_MAX = 1024 * 1024
_FOLDERS = ("tmp", "new", "cur", "hub")
_MOMENT_NS = 50_000_000
"""If a folder changed less than this time ago, a further change may not change its modification time.

The reason is that the clock of a file system moves in steps of a few milliseconds.
"""


class MailboxInfo(Struct, frozen=True, omit_defaults=True):
    """Content of `mailbox.json`: the member that owns the mailbox, its kind (local or remote), and its channels."""

    local: bool = False
    """True if the owner is a local agent, which reads this mailbox. False if the hub takes the messages out of it."""
    member: int = 0
    """Time at which the hub made the member, in milliseconds. A later member of the same name is another member."""
    since: int = 1
    """Key of the first delivery after the owner became a local agent (one that reads this mailbox itself).

    If a delivery with this key or a later key came from the spool, its sender put its file into this mailbox.
    """
    channels: tuple[str, ...] = ()
    """Channels that a local agent had both in the hub and in its record, when the two were last compared."""


class Mailbox:
    """The folder of one member in a spool, with unread, claimed and refused messages.

    The file `mailbox.json` in it describes the owner.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.folder = folder
        self.new = folder / "new"
        self.hub = folder / "hub"
        # Ids in `new/` that are skipped while they are there: unreadable, refused, or waiting for a retry.
        self.passed: set[str] = set()
        # Earliest time of the next look, by the loop's clock.
        self.rests_until = 0.0
        # Change time of `new/` at the last look; `None` if that look may have missed a change.
        self._changed_ns: int | None = None

    # The folder.

    def info(self) -> MailboxInfo | None:
        """Return the content of `mailbox.json`; `None` if no hub ever used this mailbox."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(disk.read(self.hub / INFO_FILE, _INFO_BYTES_MAX) or b"", type=MailboxInfo)
        return None

    def is_there(self) -> bool:
        """True if the mailbox's folder exists.

        Check this before you conclude that readers took messages: while the disk is missing, no message is found.
        """
        return (self.hub / INFO_FILE).exists()

    def is_up_to_date(self, info: MailboxInfo) -> bool:
        """True if the mailbox exists and the content of its `mailbox.json` equals `info`."""
        return self.info() == info and self.new.is_dir()

    def make(self, *, durably: bool) -> None:
        """Make the mailbox's folder and its subfolders. If `durably` is true, the folders survive a power failure."""
        for path in (self.folder, *(self.folder / name for name in _FOLDERS)):
            if durably:
                disk.make_folder(path)
            else:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=disk.FOLDER_MODE)

    def write_info(self, info: MailboxInfo, *, durably: bool) -> None:
        """Write `info` to `mailbox.json`. If `durably` is true, the change survives a power failure."""
        disk.replace(self.hub / INFO_FILE, msgspec.json.encode(info), durably=durably)

    def remove(self) -> None:
        """Remove the hub's own files from the mailbox, and then all folders that are empty. Messages stay."""
        with contextlib.suppress(OSError):
            for path in self.hub.iterdir():
                if path.suffix != SUFFIX or path.name == INFO_FILE:
                    path.unlink()
        for path in (*(self.folder / name for name in _FOLDERS), self.folder):
            with contextlib.suppress(OSError):
                path.rmdir()

    # Messages that wait in the mailbox.

    def has_changed(self) -> bool:
        """True if `new/` may have changed since the last call of `waiting`."""
        try:
            return self._changed_ns is None or self.new.stat().st_mtime_ns != self._changed_ns
        except OSError:
            return True

    def waiting(self) -> set[str]:
        """Return the message ids in `new/`.

        Also remove from `passed` (the ids of files to skip) those ids whose files are no longer in `new/`.
        """
        try:
            changed_ns = self.new.stat().st_mtime_ns
            self._changed_ns = changed_ns if changed_ns + _MOMENT_NS < time.time_ns() else None
            names = os.listdir(self.new)  # noqa: PTH208 - names are all we want
        except (FileNotFoundError, NotADirectoryError):
            names = []
        ids = {name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)}
        self.passed &= ids
        return {each for each in ids if is_id(each)}

    def claimed(self) -> list[str]:
        """Return the ids of messages that are claimed for the hub. The hub has not accepted or refused them yet."""
        try:
            names = os.listdir(self.hub)  # noqa: PTH208 - names are all we want
        except FileNotFoundError:
            return []
        ids = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return [each for each in ids if is_id(each)]

    # One message.

    def read(self, message_id: str) -> SpoolMessage | str | None:
        """Return a waiting or claimed message.

        Return `None` if the file is gone. Return a text with the reason if the file is invalid.
        """
        claimed = read_message(self.hub / f"{message_id}{SUFFIX}", message_id)
        return read_message(self.new / f"{message_id}{SUFFIX}", message_id) if claimed is None else claimed

    def claim(self, message_id: str) -> bool:
        """Claim a message for the hub: move its file from `new/` to `hub/`.

        Return false if another reader was first.
        """
        claimed = self.hub / f"{message_id}{SUFFIX}"
        try:
            (self.new / f"{message_id}{SUFFIX}").rename(claimed)
        except FileNotFoundError:
            return claimed.exists()
        return True

    def give_back(self, message_id: str) -> None:
        """Make a claimed message unread again: move its file back to `new/`."""
        with contextlib.suppress(FileNotFoundError):
            (self.hub / f"{message_id}{SUFFIX}").rename(self.new / f"{message_id}{SUFFIX}")

    def drop(self, message_id: str) -> None:
        """Delete the file of a claimed message."""
        (self.hub / f"{message_id}{SUFFIX}").unlink(missing_ok=True)

    def refuse(self, message_id: str, code: Code) -> None:
        """Move a claimed message to the folder `refused/`. The new file name contains the code of the refusal."""
        refused = self.folder / "refused"
        disk.make_folder(refused)
        with contextlib.suppress(FileNotFoundError):
            (self.hub / f"{message_id}{SUFFIX}").rename(refused / f"{message_id}.{code.value}{SUFFIX}")
