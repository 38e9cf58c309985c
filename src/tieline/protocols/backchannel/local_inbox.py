"""A local inbox: the unread files of one local agent. Each is a delivery of the hub, and any program can take it.

Above: the local agent, which puts deliveries here, and wins them here before the hub settles them. Below: the disk.
One lock per inbox makes each rename and the record of it one step; it is held for a rename or two. Three facts are
enough to do everything exactly once, however the hub ends:

- a delivery is first *staged* (`hub/<id>.<key>.staged`, synced), then *marked* (`hub/placed` holds its key, synced),
  and then *shown* (renamed into `new/`). After a crash, a delivery that is not marked is staged again. A delivery that
  is marked and still staged is shown. A delivery that is marked and has no file was taken;
- a delivery that the hub wins is renamed to `hub/<id>.<key>.won`, and the file is removed after the commit. After a
  crash the delivery is settled, or it is given back;
- a file that another program put into `new/` is a delivery once the hub has recorded it. The file keeps its own id.
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
from tieline.protocols.backchannel.mailbox import Mailbox, MailboxInfo
from tieline.protocols.backchannel.view import received
from tieline.wire.session_pump import Parcel

PROTOCOL = "spool"
"""Protocol name of the spool's sessions. A message with this protocol came as a file."""

_PLACED = "placed"
_STAGED = ".staged"
_WON = ".won"
_MARK = "{:020d}\n"
_SURELY_FITS = 1024 * 1024
"""A body of up to this many characters fits into a file, however much of the body JSON must escape."""

_encode = msgspec.json.Encoder().encode


def file_id(message: Message) -> str:
    """Return the id of the file in which a message came."""
    assert message.wire_id is not None, "what comes from the spool has the id of its file"
    return message.wire_id.partition("|")[0]


def _is_too_large(message: Message) -> bool:
    """True if the file would be too large for every reader of the spool."""
    if len(message.content.body) < _SURELY_FITS and message.content.data is None:
        return False
    return len(_encode(received(message))) > DEFAULT_LIMITS.message_bytes_max


class Copy(Struct, frozen=True):
    """A delivery that is staged."""

    key: int
    name: str
    path: Path


class Placement(Struct):
    """Deliveries on their way into one local inbox, and the outcome of each."""

    copies: list[Copy] = []
    open: list[int] = []
    """Descriptors of files that are written and not synced."""
    shown: list[int] = []
    """Keys of the deliveries that are in `new/`."""
    taken: list[int] = []
    too_large: list[int] = []


class Leftover(Struct, frozen=True):
    """A file that a hub left when it ended."""

    path: Path
    name: str
    key: int
    won: bool


class Fate(StrEnum):
    """Outcome of calling back a delivery."""

    RECALLED = "recalled"
    TAKEN = "taken"


class LocalInbox:
    """The unread files of one local agent."""

    def __init__(self, mailbox: Mailbox, info: MailboxInfo, sweep: Callable[[], None]) -> None:
        self.mailbox = mailbox
        self.session = SessionId("")
        # Callback, from any thread: there are files to sweep.
        self._sweep = sweep
        self._lock = threading.Lock()
        self._since = info.since
        # Deliveries up to this key are shown or were shown. A delivery that came as a file was shown, whatever its key.
        self._placed = self._marked = self._read_mark()
        # Ids of deliveries in `new/`.
        self._shown: set[str] = set()
        # Keys of deliveries that the hub settles before they are shown; true once the settlement is durable.
        self._withheld: dict[int, bool] = {}
        # Files that the hub has won and not yet settled durably, by key. Then settled files, which are to be removed.
        self._won: dict[int, Path] = {}
        self._removable: list[Path] = []
        # Ids that were called back: no other program can take them.
        self._recalled: set[str] = set()

    def begin(self, info: MailboxInfo, *, anew: bool) -> None:
        """Start a session: forget the unfinished work of an earlier one. With `anew` the member is a different one."""
        with self._lock:
            self._since = info.since
            self._withheld.clear()
            self._won.clear()
            if anew:
                self._placed = self._marked = 0
                self._shown.clear()
        if anew:
            self.clear()
            disk.sync(disk.create(self.mailbox.hub / _PLACED, _MARK.format(0).encode()))
            disk.sync_folder(self.mailbox.hub)

    def _read_mark(self) -> int:
        try:
            data = disk.read(self.mailbox.hub / _PLACED, 64)
            return int(data or b"0")
        except (OSError, ValueError):
            return 0

    def _name(self, message: Message, key: int) -> str:
        return file_id(message) if self._is_file(message, key) else message.id

    def _is_file(self, message: Message, key: int) -> bool:
        return message.protocol == PROTOCOL and key >= self._since

    def _waiting(self, name: str) -> Path:
        return self.mailbox.new / f"{name}{SUFFIX}"

    # Showing deliveries, in three steps: each is for a thread.

    def stage(self, parcels: Sequence[Parcel], placement: Placement) -> None:
        """Write new deliveries to staged files. For deliveries that were shown before, find out what became of them."""
        if not self.mailbox.is_there():
            raise FileNotFoundError(f"the mailbox {self.mailbox.folder} is gone")
        disk.make_folder(self.mailbox.new)
        for message, key, _ in parcels:
            name = self._name(message, key)
            if self._is_file(message, key):
                self._find(placement, name, key)
            elif _is_too_large(message):
                placement.too_large.append(key)
            elif key <= self._placed:
                self._find(placement, name, key)
            elif not self._withheld.get(key, False):
                path = self.mailbox.hub / f"{name}.{key}{_STAGED}"
                placement.copies.append(Copy(key, name, path))
                # A file that was marked before must stay whole: after a crash it would be shown as it is.
                if key > self._marked or not path.exists():
                    placement.open.append(disk.create(path, _encode(received(message))))

    def _find(self, placement: Placement, name: str, key: int) -> None:
        with self._lock:
            if self._waiting(name).exists():
                self._shown.add(name)
                placement.shown.append(key)
            elif key not in self._won:
                self._shown.discard(name)
                placement.taken.append(key)

    def mark(self, placement: Placement) -> None:
        """Make the copies durable, and then the mark that they are about to be shown."""
        while placement.open:
            disk.sync(placement.open.pop())
        disk.sync_folder(self.mailbox.hub)
        # The mark is written in place, because its length never changes: one sync instead of three.
        descriptor = os.open(self.mailbox.hub / _PLACED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, disk.FILE_MODE)
        try:
            os.pwrite(descriptor, _MARK.format(placement.copies[-1].key).encode(), 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self._marked = placement.copies[-1].key

    def show(self, placement: Placement) -> None:
        """Move the copies into `new/`, where every reader sees them."""
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
                # The hub has won it.
                return
            self._shown.add(copy.name)
            placement.shown.append(copy.key)
        elif settled:
            copy.path.unlink(missing_ok=True)
        else:
            # The file stays until the commit: after a crash before the commit, the next hub must find the file.
            self._won[copy.key] = copy.path

    # The work of an external inbox, on a thread of its own.

    def win(self, message: Message, key: int) -> bool | None:
        """Take a delivery before any reader does. True if won, false if a reader was first, `None` if unknown."""
        name = self._name(message, key)
        won = self.mailbox.hub / f"{name}.{key}{_WON}"
        with self._lock:
            for path in (self._waiting(name), self.mailbox.hub / f"{name}.{key}{_STAGED}"):
                try:
                    path.rename(won)
                except FileNotFoundError:
                    continue
                except OSError:
                    return None
                self._shown.discard(name)
                self._won[key] = won
                return True
            if won.exists():
                # The delivery was won before, for a commit that failed, and is not given back yet.
                self._won[key] = won
                return True
            if name in self._recalled:
                return True
            if key > self._placed and not self._is_file(message, key):
                self._withheld[key] = False
                return True
            if not self.mailbox.is_there():
                return None
            self._shown.discard(name)
            return False

    def finish(self, keys: Sequence[int]) -> None:
        """The hub settled these won deliveries: their files may be removed."""
        with self._lock:
            for key in keys:
                path = self._won.pop(key, None)
                if path is not None:
                    self._removable.append(path)
                elif key in self._withheld:
                    self._withheld[key] = True
        self._sweep()

    def give_back(self, keys: Sequence[int]) -> None:
        """The hub did not settle these won deliveries: put them back.

        A delivery that was shown before is shown again. A delivery that was never shown is staged and then shown.
        """
        with self._lock:
            for key in keys:
                self._withheld.pop(key, None)
                path = self._won.pop(key, None)
                if path is None:
                    continue
                name = path.stem.rpartition(".")[0]
                if key > self._placed:
                    path.rename(path.with_suffix(_STAGED))
                else:
                    path.rename(self._waiting(name))
                    self._shown.add(name)

    def sweep(self) -> None:
        """Remove the files of settled deliveries. Call it on a thread, because it may wait for the disk."""
        with self._lock:
            removable, self._removable = self._removable, []
        for path in removable:
            path.unlink(missing_ok=True)

    # Looking.

    def look(self) -> tuple[set[str], list[str]]:
        """Return the ids in `new/` that are no deliveries yet, and the ids of deliveries that readers have taken."""
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
        """Count these files, which other programs put here, as deliveries from now on."""
        with self._lock:
            self._shown.update(names)

    def withdraw(self, name: str) -> None:
        """Remove a file whose delivery was settled elsewhere."""
        with self._lock:
            self._waiting(name).unlink(missing_ok=True)
            self._shown.discard(name)

    # Beginnings and ends.

    def leftovers(self) -> list[Leftover]:
        """Return the staged and won files that a hub left when it ended."""
        found = []
        for path in self.mailbox.hub.iterdir():
            name, _, key = path.stem.rpartition(".")
            if path.suffix in (_STAGED, _WON) and key.isdecimal():
                found.append(Leftover(path, name, int(key), path.suffix == _WON))
        return found

    def clear(self) -> None:
        """Remove all leftovers: they belong to nobody here."""
        for leftover in self.leftovers():
            leftover.path.unlink(missing_ok=True)

    def recover(self, leftover: Leftover, *, unsettled: bool) -> None:
        """Show a leftover whose delivery waits. Remove any other leftover: it is settled or will be staged again."""
        with self._lock:
            if leftover.key in self._won:
                # The hub has won the delivery meanwhile.
                return
            if unsettled and (leftover.won or leftover.key <= self._placed):
                leftover.path.rename(self._waiting(leftover.name))
            else:
                leftover.path.unlink(missing_ok=True)

    def recall(self, message: Message, key: int) -> Fate:
        """Take an unsettled delivery out of the spool for good."""
        name = self._name(message, key)
        with self._lock:
            recalled = name in self._recalled
            self._recalled.add(name)
            self._shown.discard(name)
            won = self.mailbox.hub / f"{name}.{key}{_WON}"
            for path in (self._waiting(name), self.mailbox.hub / f"{name}.{key}{_STAGED}"):
                try:
                    # The file proves that nobody took the message. It is removed once the agent is no longer local.
                    path.rename(won)
                except FileNotFoundError:
                    continue
                return Fate.RECALLED
            if recalled or won.exists() or (key > self._placed and not self._is_file(message, key)):
                return Fate.RECALLED
            if not self.mailbox.is_there():
                raise FileNotFoundError(f"the mailbox {self.mailbox.folder} is gone")
            self._recalled.discard(name)
            return Fate.TAKEN
