"""The folder watch: reports changes in the files of a spool as they happen.

Used by: the adoption. The adoption also checks the files every few seconds, because some events get lost, and some file
systems send none (a network share, or a machine with too many watches). Uses: inotify, or watchfiles if there is no
inotify.
"""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import structlog

from tieline.protocols.backchannel.inotify import Inotify

_STEP_MS = 10
"""Changes within this time are reported together, so that many new files cause only one check of their folder."""

log = structlog.get_logger(__name__)


class FolderWatch:
    """Calls a callback whenever a mailbox or an agent record in a spool changes, from `start` to `stop`."""

    def __init__(self, root: Path, *, mailbox: Callable[[str], None], records: Callable[[], None]) -> None:
        self._agents = root.resolve() / "agents"
        self._spool = root.resolve() / "spool"
        # Callbacks: the mailbox of this owner has changed; a record has changed.
        self._mailbox = mailbox
        self._records = records
        self._loop = asyncio.get_running_loop()
        self._inotify: Inotify | None = None
        # Mailboxes by the number of their watch, and the other way round.
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._records_number = -1
        self._full = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to watch the agent records. Their folder must exist."""
        try:
            self._inotify = Inotify()
            self._records_number = self._inotify.add(str(self._agents))
        except OSError:
            self._close()
            self._task = asyncio.create_task(self._watch())
        else:
            self._loop.add_reader(self._inotify.file, self._read)

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close()

    def watch(self, name: str) -> None:
        """Watch the mailbox of this member too. Do nothing if the mailbox is already watched."""
        if self._inotify is None or name in self._numbers:
            return
        try:
            number = self._inotify.add(f"{self._spool}/{name}/new")
        except OSError as error:
            if error.errno == errno.ENOSPC and not self._full:
                self._full = True
                log.warning("too many folders are watched; other mailboxes are looked at instead", error=str(error))
            return
        self._names[number] = name
        self._numbers[name] = number

    def forget(self, name: str) -> None:
        """Stop watching the mailbox of this member, because the member is gone."""
        number = self._numbers.pop(name, None)
        if number is not None and self._inotify is not None:
            del self._names[number]
            self._inotify.remove(number)

    def _close(self) -> None:
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            self._loop.remove_reader(inotify.file)
            inotify.close()

    def _read(self) -> None:
        inotify = self._inotify
        if inotify is None:
            return
        told: set[str] = set()
        records = False
        for number, over in inotify.read():
            records = records or number == self._records_number
            name = self._names.get(number)
            if name is not None:
                told.add(name)
                if over:
                    del self._names[number], self._numbers[name]
        for name in told:
            self._mailbox(name)
        if records:
            self._records()
        self._loop.remove_reader(inotify.file)
        self._loop.call_later(_STEP_MS / 1000, self._read_on)

    def _read_on(self) -> None:
        if self._inotify is not None:
            self._loop.add_reader(self._inotify.file, self._read)

    async def _watch(self) -> None:
        from watchfiles import awatch  # noqa: PLC0415 - only those who watch need it

        agents = f"{self._agents}/"
        spool = f"{self._spool}/"
        try:
            changes = awatch(
                self._agents, self._spool, watch_filter=None, step=_STEP_MS, debounce=2 * _STEP_MS, recursive=True
            )
            async for some in changes:
                paths = [path for _, path in some]
                for name in {_owner(path.removeprefix(spool)) for path in paths if path.startswith(spool)}:
                    if name:
                        self._mailbox(name)
                if any(path.startswith(agents) for path in paths):
                    self._records()
        except (OSError, RuntimeError) as error:
            log.warning("the file system gives no notices of the spool; it is looked at instead", error=str(error))


def _owner(path: str) -> str:
    """Return the owner of the mailbox whose folder `new/` contains this path, or is this path; else an empty string."""
    name, _, rest = path.partition("/")
    return name if rest == "new" or rest.startswith("new/") else ""
