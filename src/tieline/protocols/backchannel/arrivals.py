"""Arrivals: yields an agent's messages as they come. It uses notifications of the file system and regular checks.

Used by: `tieline watch`. Uses: a spool. Some notifications get lost, and some file systems send none (a network share,
or a machine with too many watches). So the folder `new/` is also checked every few seconds.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.codec import SpoolMessage
from tieline.protocols.backchannel.spool import Spool

RESCAN_SECONDS = 2.0
"""Seconds between two regular checks of the folder.

A message without a notification is found after at most this time.
"""
_STEP_MS = 20
"""Interval at which the watching thread polls for events. The interval is so long that polling costs almost nothing."""


class Arrivals:
    """Iterator over the unread messages of an agent, oldest first. When all are yielded, it waits for new messages.

    The iterator claims no message, and yields each message once. But if another reader claims a message and makes it
    unread again, the message is yielded again.
    """

    def __init__(self, spool: Spool, agent: str, *, rescan_seconds: float = RESCAN_SECONDS) -> None:
        self._spool = spool
        self._agent = agent
        self._rescan_seconds = rescan_seconds
        # Ids that were seen and are still there.
        self._seen: set[str] = set()
        # Time at which a message that was given back is shown again, by its id.
        self._again: dict[str, float] = {}
        self._changed = asyncio.Event()

    def again(self, message_id: str, after_seconds: float) -> None:
        """Yield this message once more after a delay, if it is still unread then."""
        self._again[message_id] = asyncio.get_running_loop().time() + after_seconds

    def __aiter__(self) -> AsyncIterator[SpoolMessage]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[SpoolMessage]:
        disk.make_folder(self._spool.folder(self._agent) / "new")
        notifying = asyncio.create_task(self._notify())
        try:
            while True:
                # The watch may be active by then. If not, the next look finds the messages that the watch missed.
                await asyncio.sleep(0)
                self._changed.clear()
                for message in self._look():
                    yield message
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._changed.wait()
        finally:
            notifying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await notifying

    def _look(self) -> list[SpoolMessage]:
        now = asyncio.get_running_loop().time()
        waiting = set(self._spool.waiting(self._agent))
        due = {message_id for message_id, at in self._again.items() if at <= now}
        for message_id in due:
            del self._again[message_id]
        fresh = (waiting - self._seen - self._again.keys()) | (due & waiting)
        # Messages to show again do not count as seen. Unreadable files count as seen, so they are read only once.
        self._seen = waiting - self._again.keys()
        found = (self._spool.peek(self._agent, message_id) for message_id in fresh)
        return sorted((message for message in found if message is not None), key=lambda each: (each.ts, each.id))

    def _pause(self) -> float:
        now = asyncio.get_running_loop().time()
        return max(0.0, min([self._rescan_seconds, *(at - now for at in self._again.values())]))

    async def _notify(self) -> None:
        from watchfiles import awatch  # noqa: PLC0415 - only those who watch need it

        folder = self._spool.folder(self._agent) / "new"
        # Without notifications, the regular rescan finds new messages.
        with contextlib.suppress(OSError, RuntimeError):
            async for _ in awatch(folder, watch_filter=None, step=_STEP_MS, debounce=2 * _STEP_MS, recursive=False):
                self._changed.set()
