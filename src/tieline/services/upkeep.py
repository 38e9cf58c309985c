"""Upkeep: deletes the files and logins of removed members and the files of redacted messages, and checks the logins.

Used by: the services' assembly. Uses: files and logins, and the interface `contract.hub`, which reports removed
members. At the start, upkeep also finds members that were removed while the hub was down: if files or logins are older
than the member with their name, they belonged to an earlier member. It also finds copies of files for an objective that
was never created because of a crash. Logins are checked at the start and then every ten minutes.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from tieline.contract.file import CatalogueError
from tieline.contract.hub import Hub, Interest, MemberVanished, MessageRedacted, Notice
from tieline.services.files.files import Files
from tieline.services.files.tree import FileCode, FileRefusal, Viewer
from tieline.services.login_sessions import LoginSessions
from tieline.services.operator import Operator

log = structlog.get_logger(__name__)

_KEEPER = Viewer("", manages=True)
_CHECK_SECONDS = 600.0
"""Seconds between two checks of the logins. This time is short compared with the seven days after which an unused
session ends."""


class Upkeep:
    """Watches for removed members, and deletes their files and logins."""

    def __init__(self, hub: Hub, operator: Operator, files: Files, logins: LoginSessions) -> None:
        self._hub = hub
        self._operator = operator
        self._files = files
        self._logins = logins
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Delete the files and logins of members removed earlier, and watch for removed members from now on."""
        self._unwatch = self._hub.watch(Interest(members=True, redactions=True), self._changed)
        await self._files.start()
        members = await self._operator.members()
        if members is not None:
            since_ms: dict[str, int] = {member.name: member.created_at_ms for member in members}
            await self._files.reconcile(since_ms)
            await self._logins.reconcile(since_ms)
        await self._logins.check()
        self._check_later()
        await self._finish_copies()

    async def stop(self) -> None:
        """Stop watching for removed members, finish the running deletions, and close the files."""
        if self._unwatch is not None:
            self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._files.close()

    async def _finish_copies(self) -> None:
        """Finish the work on copied files that a crash interrupted.

        Let the members of an objective read its copies. Remove copies whose objective was never created.
        """
        left = await self._files.unattached_copies()
        attached = await self._operator.attached() if left else None
        if attached is None:
            return
        for folder, paths in left:
            objective = next((attached[path] for path in paths if path in attached), None)
            if objective is None:
                await self._files.remove(folder, _KEEPER, recursive=True)
            else:
                await self._files.share(paths, [f"obj:{objective}"], secrets.token_hex(16))

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._begin(self._logins.check())
        self._check_later()

    # Callbacks for the hub.

    def _changed(self, change: Notice) -> None:
        """Handle a notice of the hub: delete files and logins of a removed member, or files of a redacted message."""
        if isinstance(change, MemberVanished):
            self._begin(self._files.forget(change.name))
            self._begin(self._logins.forget(change.name))
        elif isinstance(change, MessageRedacted):
            for path in change.attachments:
                self._begin(self._erase(path, change.repeats_ms))

    async def _erase(self, path: str, repeats_ms: int | None) -> None:
        """Remove the file at `path`, which was attached to a redacted message.

        If the notice of the redaction is a repetition, `repeats_ms` is the time of the redaction, and a file that was
        written later stays.
        """
        if repeats_ms is not None:
            found = await self._files.stat(path, _KEEPER)
            if isinstance(found, FileRefusal) or found.updated_at_ms > repeats_ms:
                return
        refusal = await self._files.remove(path, _KEEPER)
        if refusal is not None and refusal.code is not FileCode.NOT_FOUND:
            log.warning("a file of a redacted message was not removed", path=path, reason=refusal.message)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (OSError, CatalogueError) as error:
            # The next check or the next start finds the rest. To redact a message again deletes the rest of its files,
            # and `tieline redact` says what is still there.
            log.warning("files or logins could not be cleaned up", reason=str(error))
