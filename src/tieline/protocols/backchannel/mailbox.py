"""A mailbox that a hub keeps in an adopted spool: the folder of one member.

    new/<id>.json             unread, for whoever is first
    hub/mailbox.json          whose mailbox it is: a local agent's, or a member's who is elsewhere
    hub/<id>.json             claimed by the hub, on its way into it
    refused/<id>.<code>.json  not accepted from it, and kept for a person to look at

Above: intake, inboxes. Below: the disk. `hub/` and `refused/` are known to no other program, so nothing is lost there
when others tidy up. Whose mailbox it is stands beside the messages and not in the agent's record, because records are
rewritten by other programs, and not in the hub's home, because it is a fact about this spool. Methods touch the disk:
they are for threads.
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
"""A file system's clock moves in steps of a few milliseconds: a folder that changed just now may change unnoticed."""


class MailboxInfo(Struct, frozen=True, omit_defaults=True):
    """The owner of a mailbox, as `mailbox.json` in it says."""

    local: bool = False
    """True if the owner reads the mailbox here; else the hub takes messages out of it."""
    member: int = 0
    """When the hub made the member, in milliseconds: a later one of the same name is another."""
    since: int = 1
    """Deliveries from this key on that came from the spool are files that their senders put here."""
    channels: tuple[str, ...] = ()
    """A local agent's channels as hub and record last agreed on them."""


class Mailbox:
    """One member's folder."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.folder = folder
        self.new = folder / "new"
        self.hub = folder / "hub"
        # Ids in `new/` that are left alone while they are there: unreadable, refused, or for later.
        self.passed: set[str] = set()
        # When the next look is worth its while, by the loop's clock.
        self.rests_until = 0.0
        # When `new/` had changed at the last look, if that look cannot have missed anything.
        self._changed_ns: int | None = None

    # The folder.

    def info(self) -> MailboxInfo | None:
        """Content of the mailbox's `mailbox.json`; `None` if no hub ever kept the mailbox."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(disk.read(self.hub / INFO_FILE, _INFO_BYTES_MAX) or b"", type=MailboxInfo)
        return None

    def is_there(self) -> bool:
        """Whether the folder is: a disk that was taken away must not look like messages that were."""
        return (self.hub / INFO_FILE).exists()

    def is_up_to_date(self, info: MailboxInfo) -> bool:
        """True if the folder is made and says this, so that nothing has to be done."""
        return self.info() == info and self.new.is_dir()

    def make(self, *, durably: bool) -> None:
        """Make the folder."""
        for path in (self.folder, *(self.folder / name for name in _FOLDERS)):
            if durably:
                disk.make_folder(path)
            else:
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=disk.FOLDER_MODE)

    def write_info(self, info: MailboxInfo, *, durably: bool) -> None:
        """Write `mailbox.json`, which says whose the mailbox is."""
        disk.replace(self.hub / INFO_FILE, msgspec.json.encode(info), durably=durably)

    def remove(self) -> None:
        """Remove the folder, but for messages that are in it."""
        with contextlib.suppress(OSError):
            for path in self.hub.iterdir():
                if path.suffix != SUFFIX or path.name == INFO_FILE:
                    path.unlink()
        for path in (*(self.folder / name for name in _FOLDERS), self.folder):
            with contextlib.suppress(OSError):
                path.rmdir()

    # What waits in it.

    def has_changed(self) -> bool:
        """Whether `new/` may hold something else than at the last look."""
        try:
            return self._changed_ns is None or self.new.stat().st_mtime_ns != self._changed_ns
        except OSError:
            return True

    def waiting(self) -> set[str]:
        """The ids in `new/`; those that are passed over are forgotten once they are gone."""
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
        """The ids that the hub had claimed and not finished with."""
        try:
            names = os.listdir(self.hub)  # noqa: PTH208 - names are all we want
        except FileNotFoundError:
            return []
        ids = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return [each for each in ids if is_id(each)]

    # One message.

    def read(self, message_id: str) -> SpoolMessage | str | None:
        """The message that waits or is claimed, `None` when it is gone, or why it is none."""
        claimed = read_message(self.hub / f"{message_id}{SUFFIX}", message_id)
        return read_message(self.new / f"{message_id}{SUFFIX}", message_id) if claimed is None else claimed

    def claim(self, message_id: str) -> bool:
        """Take a message out of `new/`; false when another was first."""
        claimed = self.hub / f"{message_id}{SUFFIX}"
        try:
            (self.new / f"{message_id}{SUFFIX}").rename(claimed)
        except FileNotFoundError:
            return claimed.exists()
        return True

    def give_back(self, message_id: str) -> None:
        """Let a claimed message be unread again."""
        with contextlib.suppress(FileNotFoundError):
            (self.hub / f"{message_id}{SUFFIX}").rename(self.new / f"{message_id}{SUFFIX}")

    def drop(self, message_id: str) -> None:
        """Be done with a claimed message."""
        (self.hub / f"{message_id}{SUFFIX}").unlink(missing_ok=True)

    def refuse(self, message_id: str, code: Code) -> None:
        """Keep a claimed message aside, under a name that says why."""
        refused = self.folder / "refused"
        disk.make_folder(refused)
        with contextlib.suppress(FileNotFoundError):
            (self.hub / f"{message_id}{SUFFIX}").rename(refused / f"{message_id}.{code.value}{SUFFIX}")
