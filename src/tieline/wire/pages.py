"""Pages of an inbox: one at a time, and again while the hub fails at one.

Above: whatever brings a session's deliveries to its wire. Below: the Hub port. It refuses to know which page comes
next: when a page failed, the source asks anew, because what it wants may have changed meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence

from tieline.contract.command import Fetch
from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Fetched, Reply

RETRY_SECONDS = 1.0
"""Time until the hub is asked again for what its store failed at."""

FAULTS_MAX = 60
"""Times in a row that the hub may fail at a page for no fault of its disk; then the session ends, and a new one may
read it."""


class Pages:
    """The pages of one session."""

    __slots__ = ("_again", "_closed", "_faults", "_give_up", "_got", "_hub", "_retry", "busy")

    def __init__(self, hub: Hub, again: Callable[[], None], give_up: Callable[[Refusal], None]) -> None:
        self._hub = hub
        # Called when the hub may be asked again, and when it has failed too often.
        self._again = again
        self._give_up = give_up
        # Takes the page that is asked for.
        self._got: Callable[[Fetched], None] | None = None
        self._faults = 0
        self._retry: asyncio.TimerHandle | None = None
        self._closed = False
        # Whether a page is being read, or will be read again because the hub failed at it.
        self.busy = False

    def ask(self, fetch: Fetch, got: Callable[[Fetched], None]) -> None:
        """Ask for a page; `got` takes it when the hub has read it."""
        assert not self.busy, "one at a time"
        self.busy = True
        self._got = got
        self._hub.submit((fetch,), self._answered)

    def close(self) -> None:
        """Nobody wants a page any more."""
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
