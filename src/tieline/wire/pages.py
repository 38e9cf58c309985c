"""Reads the deliveries of an inbox in pages, one page at a time, and retries while the hub's store fails.

Used by: the code that writes a session's deliveries to the client's connection. Uses: the interface `contract.hub`.
The caller decides which page is read next. After a failure, the caller makes a new request, because it may then need
another page.
"""

import asyncio
from collections.abc import Callable, Sequence

from tieline.contract.command import Fetch
from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Fetched, Reply

RETRY_SECONDS = 1.0
"""Seconds to wait before the next attempt, after the hub could not use its store."""

FAULTS_MAX = 60
"""Number of internal errors of the hub in a row after which the session ends. A new session may be able to read the
page. Failures of the store are retried without a limit."""


class Pages:
    """Reads pages of a member's inbox from the hub, for one session.

    The callback `again` is called when it is time to request a page again. The callback `give_up` is called after too
    many errors.
    """

    __slots__ = ("_again", "_closed", "_faults", "_give_up", "_got", "_hub", "_retry", "busy")

    def __init__(self, hub: Hub, again: Callable[[], None], give_up: Callable[[Refusal], None]) -> None:
        self._hub = hub
        # Callbacks: `_again` when it is time to retry, `_give_up` when the hub has failed too often.
        self._again = again
        self._give_up = give_up
        # Callback for the requested page.
        self._got: Callable[[Fetched], None] | None = None
        self._faults = 0
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        # True while a page is being read or waits for a retry.
        self.busy = False

    def ask(self, fetch: Fetch, got: Callable[[Fetched], None]) -> None:
        """Request a page of the inbox from the hub. The callback `got` receives the page.

        Only one request may be open at a time.
        """
        assert not self.busy, "one at a time"
        self.busy = True
        self._got = got
        self._hub.submit((fetch,), self._answered)

    def close(self) -> None:
        """Stop: cancel the planned retry. If a page is still being read, ignore the page."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()

    def _answered(self, replies: Sequence[Reply]) -> None:
        (reply,) = replies
        self.busy = False
        got, self._got = self._got, None
        if self._closed:
            return
        if isinstance(reply, Fetched):
            self._faults = 0
            assert got is not None, "asked for"
            got(reply)
            return
        assert isinstance(reply, Refusal), "a fetch is answered by these"
        if reply.code is Code.INTERNAL_ERROR:
            self._faults += 1
        if self._faults >= FAULTS_MAX:
            self._give_up(reply)
        elif reply.code in (Code.STORE_FAILED, Code.INTERNAL_ERROR):
            self.busy = True
            self._retry = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._ask_again)

    def _ask_again(self) -> None:
        self._retry = None
        self.busy = False
        self._again()
