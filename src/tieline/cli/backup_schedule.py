"""Regular backups of a running hub: runs `tieline backup` whenever a backup is due.

Used by: `tieline serve`. Each backup runs in a process of its own, because compressing and checking in the hub's
process would slow its threads. A backup is due when the last one is older than the configured time, even if the hub was
restarted since.
"""

import asyncio
import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from tieline.cli.failure import Exit, Failure
from tieline.server.config import BackupSection
from tieline.wire.folder import own_place

_PATIENCE_SECONDS = 60.0
"""Seconds between two looks at the clock. Backups are hours apart, and a clock that jumps must not stop them."""
_RETRY_SECONDS = 600.0  # after a failure: soon enough to lose little, and not a line in the log each minute
_NICENESS = 10

log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def scheduled_backups(home: Path, section: BackupSection) -> AsyncIterator[None]:
    """Make regular backups of the hub in `home`, as `section` configures them, until the end of the `with` block.

    Call `make_folder` before the hub starts.
    """
    seconds = section.every_seconds
    if not seconds:
        yield
        return
    task = asyncio.create_task(_repeat(home, _folder(section), section.keep, seconds))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def make_folder(section: BackupSection) -> None:
    """If regular backups are configured, make their folder if it is missing. Raise `Failure` if it cannot be used."""
    if not section.every_seconds:
        return
    folder = _folder(section)
    try:
        own_place(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "the hub cannot write to it", str(folder))
    except OSError as error:
        hint = f"make it as the user who runs the hub (mkdir -p {folder}), or name another: --backup-dir DIR"
        said = f"the folder for backups {folder} cannot be used: {error.strerror or error}"
        raise Failure(Exit.FAILED, said, hint) from error


def _folder(section: BackupSection) -> Path:
    return Path(section.folder).expanduser().absolute()


async def _repeat(home: Path, folder: Path, keep: int, seconds: int) -> None:
    while True:
        left = (_last_ms(home) / 1000) + seconds - time.time()
        if 0 < left <= seconds:
            await asyncio.sleep(min(left, _PATIENCE_SECONDS))
        elif not await _back_up(home, folder, keep):
            await asyncio.sleep(min(_RETRY_SECONDS, seconds))


def _last_ms(home: Path) -> int:
    from tieline.cli.last_backup import last_backup

    last = last_backup(home)
    return last.at_ms if last is not None else 0


async def _back_up(home: Path, folder: Path, keep: int) -> bool:
    """Make one backup, and write its result to the hub's log. Return true if it was made.

    `keep` is the number of backups that stay in `folder`.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tieline.cli.main", "backup", str(folder), "--keep", str(keep), "--home", str(home)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    try:
        said, _ = await process.communicate()
    except asyncio.CancelledError:
        # The interrupt of a keyboard: the process removes what it has half written.
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.wait()
        raise
    told = " ".join(said.decode(errors="replace").split())
    if process.returncode:
        log.error("a backup failed", folder=str(folder), reason=told)
    else:
        log.info("a backup was made", folder=str(folder), result=told)
    return not process.returncode
