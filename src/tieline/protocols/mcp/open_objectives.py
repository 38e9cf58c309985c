"""The open objectives of a member, fetched again after each event of an objective.

Used by: the agent session, which shows the open objectives in the descriptions of tools: a model reads descriptions
even after it has forgotten older messages. Uses: the hub, through a fetch callback. Events come in bursts (work is
given to many members, or moved). So the first event starts a short wait, and one request covers all events of the
burst.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tieline.contract.objective import Status
from tieline.protocols.mcp.framing import is_lifecycle
from tieline.wire.native.client import Client
from tieline.wire.native.errors import HubError
from tieline.wire.native.frames import Message, ObjectiveView

DEBOUNCE_SECONDS = 0.15
"""Time from the first event of a burst to the request that fetches the objectives. It is longer than a burst, and too
short to be noticed."""

OPEN_MAX = 100
"""Largest number of open objectives that are fetched. No member works on more, and no model would read more."""

Open = tuple[ObjectiveView, ...]
Fetch = Callable[[], Awaitable[Open]]
Changed = Callable[[Open, Open], None]
"""Callback that gets the open objectives before and after a change."""


async def fetch_open(client: Client, member: str) -> Open:
    """Return the open objectives that are assigned to a member, newest first, fetched from the hub."""
    statuses = (Status.ACTIVE, Status.BLOCKED)
    return (await client.objectives(statuses=statuses, assignee=member, limit=OPEN_MAX)).objectives


class OpenObjectives:
    """Keeps the list of one member's open objectives up to date. Not thread-safe: use it only in one event loop."""

    def __init__(self, fetch: Fetch, changed: Changed, *, debounce_seconds: float = DEBOUNCE_SECONDS) -> None:
        self._fetch = fetch
        self._changed = changed
        self._debounce_seconds = debounce_seconds
        self.current: Open = ()
        # The task that waits and then fetches; and true if an event came after the last fetch began.
        self._refreshing: asyncio.Task[None] | None = None
        self._stale = False

    def hear(self, message: Message) -> None:
        """Schedule a fetch of the open objectives if the message reports an event of an objective."""
        if not is_lifecycle(message):
            return
        self._stale = True
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh_soon())

    async def refresh(self) -> None:
        """Fetch the open objectives now. If they changed, call the callback `changed`.

        Raises `HubError` if the hub does not answer or refuses.
        """
        self._stale = False
        before, self.current = self.current, await self._fetch()
        if before != self.current:
            self._changed(before, self.current)

    async def close(self) -> None:
        """Cancel a scheduled fetch, if there is one."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh_soon(self) -> None:
        try:
            while self._stale:
                await asyncio.sleep(self._debounce_seconds)
                # If the hub went away, the agent session fetches again in the next session.
                with contextlib.suppress(HubError):
                    await self.refresh()
        finally:
            self._refreshing = None
