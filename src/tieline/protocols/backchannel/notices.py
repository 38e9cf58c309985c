"""Notices: what the file system tells of an adopted spool as it happens.

Above: the adoption, which looks again every few seconds in any case, because a notice can get lost, or there may be
none at all (a network share, too many watches on the machine). Below: watchfiles.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

_STEP_MS = 10
"""How often the watching thread wakes up to see whether anything came: half of how late a file is noticed."""

log = structlog.get_logger(__name__)


class Notices:
    """Watches a spool until it is stopped."""

    def __init__(self, root: Path, *, mailbox: Callable[[str], None], records: Callable[[], None]) -> None:
        self._agents = root.resolve() / "agents"
        self._spool = root.resolve() / "spool"
        # Told whose mailbox has changed, and that a record has.
        self._mailbox = mailbox
        self._records = records
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        from watchfiles import awatch  # noqa: PLC0415 - only those who watch need it

        agents = f"{self._agents}/"
        spool = f"{self._spool}/"
        try:
            # Both are there, because whoever adopts the spool makes them first.
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
    """Whose `new/` a path is in or is, if it is one."""
    name, _, rest = path.partition("/")
    return name if rest == "new" or rest.startswith("new/") else ""
