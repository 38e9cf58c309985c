"""The open objectives of a member, fetched again whenever something happens to one.

Above: the MCP server and the runner, which show them in the descriptions of tools, because those outlive what a model
forgets. Below: the hub, through whatever asks it. Events come in bursts (work is given to many, or moved), so a first
one starts a short wait, and one question covers all that came meanwhile.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tieline.agents.framing import is_lifecycle
from tieline.client import Client, HubError, Message, ObjectiveView
from tieline.contract.objective import Status

DEBOUNCE_SECONDS = 0.15
"""From the first event of a burst to the question: shorter than anybody notices, longer than a burst."""

OPEN_MAX = 100
"""Open objectives that are asked for: more than any member works on, and than any model would read."""

Open = tuple[ObjectiveView, ...]
Fetch = Callable[[], Awaitable[Open]]
Changed = Callable[[Open, Open], None]
"""Is told the open objectives before and after."""


async def fetch_open(client: Client, member: str) -> Open:
    """The open objectives of a member, newest first."""
    statuses = (Status.ACTIVE, Status.BLOCKED)
    return (await client.objectives(statuses=statuses, assignee=member, limit=OPEN_MAX)).objectives


class OpenObjectives:
    """The open objectives of one member. Belongs to one event loop."""

    def __init__(self, fetch: Fetch, changed: Changed, *, debounce_seconds: float = DEBOUNCE_SECONDS) -> None:
        self._fetch = fetch
        self._changed = changed
        self._debounce_seconds = debounce_seconds
        self.current: Open = ()
        # The wait and the question behind it, and whether something happened since that question was asked.
        self._refreshing: asyncio.Task[None] | None = None
        self._stale = False

    def hear(self, message: Message) -> None:
        """A message came; if something happened to an objective, the hub is asked in a moment."""
        if not is_lifecycle(message):
            return
        self._stale = True
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh_soon())

    async def refresh(self) -> None:
        """Ask now. Raises `HubError`."""
        self._stale = False
        before, self.current = self.current, await self._fetch()
        if before != self.current:
            self._changed(before, self.current)

    async def close(self) -> None:
        """Ask no more."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh_soon(self) -> None:
        try:
            while self._stale:
                await asyncio.sleep(self._debounce_seconds)
                # A hub that went away is asked when it is back, by whoever opens the next session.
                with contextlib.suppress(HubError):
                    await self.refresh()
        finally:
            self._refreshing = None
