"""A local inbox: the unread files of one local agent. Each file is a delivery of the hub, and any program can take it.

Used by: the local agent, which puts deliveries here, and reserves them for the hub before the hub settles them. Uses:
the disk. Each inbox has one lock. It is held only for a rename or two, so that a rename and the note about it in memory
happen in one step. Three rules make sure that each delivery is handled exactly once, even if the hub crashes:

- A delivery is first *staged* (`hub/<id>.<key>.staged`, synced), then *marked* (the file `hub/placed` has its key,
  synced), and then *shown* (renamed into `new/`). After a crash, a delivery that is not marked is staged again. A
  delivery that is marked and still has its staged file is shown. A delivery that is marked and has no file was taken.
- If the hub wants to settle a delivery, it first *reserves* it: the file is renamed to `hub/<id>.<key>.won`, so that no
  reader can take it. After the commit, the file is removed. After a crash, the file is removed if the delivery was
  settled; if not, it is renamed back into `new/`.
- A file that another program put into `new/` is a delivery once the hub has recorded it. The file keeps its own id.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from tieline.contract.identifiers import SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.message import Message
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.claims import SUFFIX
from tieline.protocols.backchannel.copies import RedactedMessages
from tieline.protocols.backchannel.mailbox import Mailbox, MailboxInfo
from tieline.protocols.backchannel.message_ids import FILES, MessageIds, file_id
from tieline.protocols.backchannel.view import received
from tieline.wire.prefix_ids import is_hub_id
from tieline.wire.session_pump import Parcel

PROTOCOL = FILES

_PLACED = "placed"
_STAGED = ".staged"
_RESERVED = ".won"
_MARK = "{:020d}\n"
_SURELY_FITS = 1024 * 1024
"""A message body with fewer characters than this always fits into a file, even if JSON escapes every character."""

_encode = msgspec.json.Encoder().encode


class Copy(Struct, frozen=True):
    """Record of a staged delivery: its file is in `hub/`.

    Readers do not see the file, because it is not in `new/` yet.
    """

    key: int
    name: str
    path: Path


class Placement(Struct):
    """Result of writing deliveries to one local inbox: which deliveries are shown, taken or too large."""

    copies: list[Copy] = []
    open: list[int] = []
    """Descriptors of files that are written but not synced yet."""
    shown: list[int] = []
    """Keys of the deliveries whose files are in `new/`."""
    taken: list[int] = []
    too_large: list[int] = []


class Leftover(Struct, frozen=True):
    """Record of a file that an earlier hub left in the folder `hub/` of a mailbox.

    The file is a staged delivery (not shown to readers yet), or a reserved delivery (no reader can take it).
    """

    path: Path
    name: str
    key: int
    reserved: bool


class Fate(StrEnum):
    """Result of `LocalInbox.recall`: the file was moved out of the readers' reach, or a reader had already taken it."""

    RECALLED = "recalled"
    TAKEN = "taken"


class ReservedFile(Struct, frozen=True):
    """Record of a file that is reserved for the hub, so that no reader can take it. Its delivery is not settled yet."""

    path: Path
    name: str
    shown: bool
    """True if the file was in `new/`, where readers see files, before it was reserved."""


class LocalInbox:
    """The unread files of one local agent (an agent that reads its own mailbox).

    Adds deliveries, reserves deliveries for the hub, and finds deliveries that readers took.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        info: MailboxInfo,
        sweep: Callable[[], None],
        ids: MessageIds | None = None,
        redacted: RedactedMessages | None = None,
    ) -> None:
        self.mailbox = mailbox
        self._ids = ids or MessageIds()
        self._redacted = redacted or RedactedMessages()
        self.session = SessionId("")
        # Callback that asks for a call of `sweep`. It may be called on any thread.
        self._sweep = sweep
        self._lock = threading.Lock()
        self._since = info.since
        # The member whose deliveries these are (see `MailboxInfo.member`); 0 until it is known.
        self._member = info.member
        # Deliveries up to this key are or were in `new/`. This is also true of every delivery that came as a file.
        self._placed = self._marked = self._read_mark()
        # Ids of deliveries in `new/`.
        self._shown: set[str] = set()
        # Keys of deliveries that the hub settles before they are shown; true once the settlement is durable.
        self._withheld: dict[int, bool] = {}
        self._reserved: dict[int, ReservedFile] = {}
        # Keys of reserved deliveries that the hub did not settle. Their files are to be put back into the inbox.
        self._returned: set[int] = set()
        # Files of settled deliveries, which are to be removed.
        self._removable: list[Path] = []
        # Ids of deliveries that `recall` has removed, so that no other program can take them.
        self._recalled: set[str] = set()
        # Ids of files from an earlier version of the hub, which wrote ids in another form.
        self._old_names = self._read_old_names()

    def begin(self, info: MailboxInfo, *, anew: bool) -> None:
        """Prepare the inbox for a new session of its member.

        If `anew` is true, forget earlier deliveries, so that all are written again. Deliveries that the hub reserved in
        an earlier session and has not settled yet stay reserved. If the member in `info` is another member than before,
        forget these deliveries too.
        """
        with self._lock:
            another = self._member not in (0, info.member)
            self._since, self._member = info.since, info.member
            if another:
                self._withheld.clear()
                self._reserved.clear()
                self._returned.clear()
            if not anew:
                return
            self._withheld.update(dict.fromkeys(self._reserved.keys() - self._returned, False))
            self._reserved.clear()
            self._returned.clear()
            self._placed = self._marked = 0
            self._shown.clear()
            self.clear()
            disk.sync(disk.create(self.mailbox.hub / _PLACED, _MARK.format(0).encode()))
            disk.sync_folder(self.mailbox.hub)

    def _read_mark(self) -> int:
        try:
            data = disk.read(self.mailbox.hub / _PLACED, 64)
            return int(data or b"0")
        except (OSError, ValueError):
            return 0

    def _read_old_names(self) -> frozenset[str]:
        folders = [folder for folder in (self.mailbox.new, self.mailbox.hub) if folder.is_dir()]
        names = (path.name.partition(".")[0] for folder in folders for path in folder.iterdir())
        return frozenset(name for name in names if is_hub_id(name))

    def _name(self, message: Message, key: int) -> str:
        if self._is_file(message, key):
            return file_id(message)
        return message.id if message.id in self._old_names else self._ids.of(message)

    def _is_file(self, message: Message, key: int) -> bool:
        return message.protocol == PROTOCOL and key >= self._since

    def _waiting(self, name: str) -> Path:
        return self.mailbox.new / f"{name}{SUFFIX}"

    # Showing deliveries, in three steps. Each step is called on a thread.

    def stage(self, parcels: Sequence[Parcel], placement: Placement) -> None:
        """Write new deliveries to staged files: files in `hub/`, which readers do not see yet.

        For a delivery that was in `new/` before, only check if its file is still there or was taken. Add the results to
        `placement`.
        """
        if not self.mailbox.is_there():
            raise FileNotFoundError(f"the mailbox {self.mailbox.folder} is gone")
        disk.make_folder(self.mailbox.new)
        for queued, key, _ in parcels:
            message = self._redacted.current(queued)
            name = self._name(message, key)
            if self._is_file(message, key):
                self._find(placement, name, key)
            elif self._is_too_large(message):
                placement.too_large.append(key)
            elif key <= self._placed:
                self._find(placement, name, key)
            elif not self._withheld.get(key, False):
                path = self.mailbox.hub / f"{name}.{key}{_STAGED}"
                placement.copies.append(Copy(key, name, path))
                # A file that was marked before must not be written again, because a crash could leave it incomplete.
                # A delivery that the hub has reserved has a file already.
                if key not in self._reserved and (key > self._marked or not path.exists()):
                    placement.open.append(disk.create(path, _encode(received(message, self._ids) | {"id": name})))

    def _is_too_large(self, message: Message) -> bool:
        """True if the file of a message would be larger than readers of the spool accept."""
        if len(message.content.body) < _SURELY_FITS and message.content.data is None:
            return False
        return len(_encode(received(message, self._ids))) > DEFAULT_LIMITS.message_bytes_max

    def _find(self, placement: Placement, name: str, key: int) -> None:
        with self._lock:
            if self._waiting(name).exists():
                self._shown.add(name)
                placement.shown.append(key)
            elif key not in self._reserved:
                self._shown.discard(name)
                placement.taken.append(key)

    def mark(self, placement: Placement) -> None:
        """Sync the staged files (files in `hub/`) to disk. Then mark them on disk as ready for `show`.

        If a marked file is gone after a crash, a reader took it.
        """
        while placement.open:
            disk.sync(placement.open.pop())
        disk.sync_folder(self.mailbox.hub)
        # The mark is written in place, because its length never changes: one sync instead of three.
        descriptor = os.open(self.mailbox.hub / _PLACED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, disk.FILE_MODE)
        try:
            os.pwrite(descriptor, _MARK.format(placement.copies[-1].key).encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        disk.sync_data(descriptor)
        self._marked = placement.copies[-1].key

    def show(self, placement: Placement) -> None:
        """Move the staged files from `hub/` into `new/`, where every reader sees them.

        Add the results to `placement`.
        """
        for copy in placement.copies:
            with self._lock:
                self._show(copy, placement)
                self._placed = copy.key
        with self._lock:
            for key in [key for key in self._withheld if key <= self._placed]:
                del self._withheld[key]

    def _show(self, copy: Copy, placement: Placement) -> None:
        settled = self._withheld.pop(copy.key, None)
        if settled is None:
            try:
                copy.path.rename(self._waiting(copy.name))
            except FileNotFoundError:
                if copy.path.exists():
                    raise
                # The hub has reserved it.
                return
            self._shown.add(copy.name)
            placement.shown.append(copy.key)
        elif settled:
            copy.path.unlink(missing_ok=True)
        else:
            # The file stays until the commit: after a crash before the commit, the next hub must find the file.
            self._reserved[copy.key] = ReservedFile(copy.path, copy.name, shown=False)

    # The work of an external inbox, on a thread of its own.

    def reserve(self, message: Message, key: int) -> bool | None:
        """Reserve a delivery for the hub, so that no reader can take its file any more.

        Return true if the delivery is reserved, false if a reader took the file first, and `None` if the disk has an
        error or is missing.
        """
        name = self._name(message, key)
        reserved = self.mailbox.hub / f"{name}.{key}{_RESERVED}"
        with self._lock:
            file = ReservedFile(reserved, name, shown=key <= self._placed or self._is_file(message, key))
            for path in (self._waiting(name), self.mailbox.hub / f"{name}.{key}{_STAGED}"):
                try:
                    path.rename(reserved)
                except FileNotFoundError:
                    continue
                except OSError:
                    return None
                return self._keep(key, file)
            if reserved.exists():
                # The delivery was reserved before, for a commit that failed, and is not given back yet.
                return self._keep(key, file)
            if name in self._recalled:
                return True
            if key > self._placed and not self._is_file(message, key):
                self._withheld[key] = False
                return True
            if not self.mailbox.is_there():
                return None
            self._shown.discard(name)
            return False

    def _keep(self, key: int, file: ReservedFile) -> bool:
        self._shown.discard(file.name)
        self._reserved[key] = file
        self._returned.discard(key)
        return True

    def finish(self, keys: Sequence[int]) -> None:
        """Note that the hub has settled these reserved deliveries, so that `sweep` removes their files."""
        with self._lock:
            for key in keys:
                file = self._reserved.pop(key, None)
                self._returned.discard(key)
                if file is not None:
                    self._removable.append(file.path)
                elif key in self._withheld:
                    self._withheld[key] = True
        self._sweep()

    def give_back(self, keys: Sequence[int]) -> None:
        """Let readers take these deliveries again.

        The deliveries were reserved for the hub, but the hub did not settle them.

        A file that was in `new/` before goes back to `new/`. Any other file becomes a staged file (not visible to
        readers) again. If a file cannot be put back, this method raises the last error, and `sweep` retries later.
        """
        with self._lock:
            for key in keys:
                self._withheld.pop(key, None)
            self._returned.update(self._reserved.keys() & set(keys))
            error = self._put_back()
        if error is not None:
            raise error

    def _put_back(self) -> OSError | None:
        failed: OSError | None = None
        for key in sorted(self._returned):
            file = self._reserved[key]
            try:
                if file.shown or key <= self._placed:
                    if self.mailbox.is_there():
                        disk.make_folder(self.mailbox.new)
                    file.path.rename(self._waiting(file.name))
                    self._shown.add(file.name)
                else:
                    file.path.rename(file.path.with_suffix(_STAGED))
            except OSError as error:
                failed = error
            else:
                del self._reserved[key]
                self._returned.discard(key)
        return failed

    def sweep(self) -> None:
        """Remove the files of settled deliveries. Also try again to put back files that `give_back` could not put back.

        Call this on a thread, because it may wait for the disk.
        """
        with self._lock:
            self._put_back()
            removable, self._removable = self._removable, []
        for path in removable:
            path.unlink(missing_ok=True)

    # Looking.

    def look(self) -> tuple[set[str], list[str]]:
        """Return the ids of files in `new/` that are no deliveries yet, and the ids of deliveries that readers took."""
        with self._lock:
            before = set(self._shown)
        waiting = self.mailbox.waiting()
        if not self.mailbox.is_there():
            return set(), []
        with self._lock:
            gone = [name for name in before - waiting if name in self._shown and not self._waiting(name).exists()]
            self._shown.difference_update(gone)
            return waiting - self._shown - self.mailbox.passed, gone

    def accept(self, names: Iterable[str]) -> None:
        """Count the files with these message ids as deliveries from now on.

        Other programs had put the files into `new/`, and the hub has recorded them now.
        """
        with self._lock:
            self._shown.update(names)

    def withdraw(self, name: str) -> None:
        """Remove the file with this id from `new/`, because its delivery was settled through another protocol."""
        with self._lock:
            self._waiting(name).unlink(missing_ok=True)
            self._shown.discard(name)

    # Beginnings and ends.

    def leftovers(self) -> list[Leftover]:
        """Return the files of staged and reserved deliveries in `hub/`, which a hub left when it ended."""
        found = []
        for path in self.mailbox.hub.iterdir():
            name, _, key = path.stem.rpartition(".")
            if path.suffix in (_STAGED, _RESERVED) and key.isdecimal():
                found.append(Leftover(path, name, int(key), path.suffix == _RESERVED))
        return found

    def clear(self) -> None:
        """Remove the files of all staged and reserved deliveries from `hub/`."""
        for leftover in self.leftovers():
            leftover.path.unlink(missing_ok=True)

    def recover(self, leftover: Leftover, *, unsettled: bool) -> None:
        """Handle a file that an earlier hub left: move it to `new/`, where readers see it, or remove it.

        `unsettled` is true if the file's delivery is not settled. Only then the file is moved. A file that is neither
        reserved for the hub nor marked as shown is always removed, because its delivery will be written again.
        """
        with self._lock:
            if leftover.key in self._reserved:
                # The hub has reserved the delivery meanwhile.
                return
            if unsettled and (leftover.reserved or leftover.key <= self._placed):
                leftover.path.rename(self._waiting(leftover.name))
            else:
                leftover.path.unlink(missing_ok=True)

    def recall(self, message: Message, key: int) -> Fate:
        """Move the file of an unsettled delivery out of `new/`, so that no reader can take it.

        This is done if the agent no longer reads its mailbox itself. The result says if a reader took the file first.
        """
        name = self._name(message, key)
        with self._lock:
            recalled = name in self._recalled
            self._recalled.add(name)
            self._shown.discard(name)
            reserved = self.mailbox.hub / f"{name}.{key}{_RESERVED}"
            for path in (self._waiting(name), self.mailbox.hub / f"{name}.{key}{_STAGED}"):
                try:
                    # The file proves that nobody took the message. It is removed once the agent is no longer local.
                    path.rename(reserved)
                except FileNotFoundError:
                    continue
                return Fate.RECALLED
            if recalled or reserved.exists() or (key > self._placed and not self._is_file(message, key)):
                return Fate.RECALLED
            if not self.mailbox.is_there():
                raise FileNotFoundError(f"the mailbox {self.mailbox.folder} is gone")
            self._recalled.discard(name)
            return Fate.TAKEN
