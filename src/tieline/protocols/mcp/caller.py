"""A caller: makes the tool calls of one token. It has an agent session, which it keeps while the token is in use.

Used by: the HTTP server. Uses: the agent session, over sessions in the hub's own process. The agent session receives no
deliveries. A call that waits for messages (`drain`) opens a second session while it waits. The second session receives
deliveries only to notice that a message arrived, and acknowledges none.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from tieline.contract.hub import Hub
from tieline.protocols.mcp.agent_session import AgentSession
from tieline.protocols.mcp.codec import PROTOCOL
from tieline.protocols.mcp.forwarder import WINDOW
from tieline.wire.native.client import Client
from tieline.wire.native.errors import HubError
from tieline.wire.native.in_process import open_session


class Caller:
    """Calls tools for the member of one token. Not thread-safe: use it only in one event loop.

    `over` is called when the hub refuses the token for good, for example because the token was revoked.
    """

    def __init__(
        self, hub: Hub, token: str, digest: bytes, over: Callable[["Caller"], None], now_ms: Callable[[], int]
    ) -> None:
        self._hub = hub
        self._over = over
        self._keeping: asyncio.Task[None] | None = None
        self.token = token
        # Hash of the token: the name of this caller in tables.
        self.digest = digest
        self.member = ""
        # Time of the last request, by the event loop's clock.
        self.used_at = asyncio.get_running_loop().time()
        # Number of requests that are being answered.
        self.running = 0
        self.agent_session = AgentSession(
            self._open, _notify_nobody, push=False, arrivals=self._arrivals, now_ms=now_ms
        )

    async def open(self) -> None:
        """Open the first session with the hub, and keep a session open from now on.

        Raises `HubRefused` if the token is invalid.
        """
        client = await self._open()
        assert client.welcome is not None, "an open session was welcomed"
        self.member = client.welcome.speaker
        self.used_at = asyncio.get_running_loop().time()
        self._keeping = asyncio.create_task(self.agent_session.keep(client))
        self._keeping.add_done_callback(self._ended)

    def close(self) -> None:
        """End the caller's session with the hub."""
        if self._keeping is not None:
            self._keeping.cancel()

    @property
    def idle(self) -> bool:
        """True if no request is being answered, and all messages that were taken from the inbox were shown.

        Then the caller's session with the hub can be closed.
        """
        return not self.running and not self.agent_session.has_unshown

    @property
    def is_over(self) -> bool:
        """True if the hub refuses the token for good, for example because it was revoked."""
        return self._keeping is not None and self._keeping.done() and not self._keeping.cancelled()

    async def refresh(self) -> None:
        """Fetch the open objectives again, because the descriptions of the tools list them."""
        await self.agent_session.wait_for_hub()
        with contextlib.suppress(HubError):
            await self.agent_session.open_objectives.refresh()

    async def _open(self) -> Client:
        return await open_session(self._hub, self.token, PROTOCOL)

    @contextlib.asynccontextmanager
    async def _arrivals(self) -> AsyncIterator[asyncio.Event]:
        arrived = asyncio.Event()
        session = await open_session(self._hub, self.token, PROTOCOL, receive=True, window=WINDOW)
        noting = asyncio.create_task(_note(session, arrived))
        try:
            yield arrived
        finally:
            noting.cancel()
            await session.close()

    def _ended(self, keeping: asyncio.Task[None]) -> None:
        if keeping.cancelled():
            return
        error = keeping.exception()
        if error is not None:
            text = "the tool calls of a member ended"
            keeping.get_loop().call_exception_handler({"message": text, "exception": error, "future": keeping})
        self._over(self)


async def _note(session: Client, arrived: asyncio.Event) -> None:
    """Set `arrived` at each delivery of the session.

    Set it also when the session ends, so that the tool call that waits for it notices the end.
    """
    try:
        with contextlib.suppress(HubError):
            async for _ in session.deliveries():
                arrived.set()
    finally:
        arrived.set()


async def _notify_nobody(_method: str, _params: object) -> None:
    """Do nothing: a caller cannot push to its client. The listeners (`Listener`) of the same token do that."""
