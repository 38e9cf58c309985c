"""The searcher: runs the search index on a thread of its own, which indexes new messages while there are no queries.

Used by: the local hub, on the event loop. Uses: a `SearchIndex`. Queries pass through a queue of limited length. If the
queue is full, a query is refused at once. If the index fails, the query is refused and the hub continues.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import cast

from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import History, Reply
from tieline.core.outcome import Fault
from tieline.core.search_query import SearchIndex, SearchQuery
from tieline.core.store import StoreError
from tieline.server.health import Health

Answered = Callable[[Reply], None]
_Item = tuple[SearchQuery, Answered]
_START_OVER = object()

_WAITING_MAX = 256
"""Most search queries that wait in the queue. Each query may take a while, and clients should not wait too long."""
_IDLE_SECONDS = 2.0
"""Seconds between two checks of the log for new messages, while there are no search queries."""

_FULL = Refusal(Code.ACTIVITY_FULL, "too many searches wait; ask again later")
_STOPPED = Refusal(Code.SHUTTING_DOWN, "the hub is stopping; ask again when it is back")


class Searcher:
    """Runs the search index on its own thread.

    The thread answers queries from a queue, and indexes messages in between.
    """

    def __init__(self, index: SearchIndex, health: Health) -> None:
        self._index = index
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Item | object | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="searcher", daemon=True)
        # Number of waiting queries; only the event loop counts.
        self._waiting = 0
        self._stopping = False

    def start(self) -> None:
        """Start the thread that answers queries and indexes messages."""
        self._thread.start()

    async def stop(self) -> None:
        """Answer the waiting queries and close the index."""
        self._stopping = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        # The thread's last callbacks are in the queue of the loop; let them run.
        await asyncio.sleep(0)

    def submit(self, query: SearchQuery, answered: Answered) -> None:
        """Queue a search query.

        The callback `answered` gets the reply, or a refusal at once if too many queries wait.
        """
        if self._stopping:
            answered(_STOPPED)
        elif self._waiting >= _WAITING_MAX:
            answered(_FULL)
        else:
            self._waiting += 1
            self._queue.put((query, answered))

    def start_over(self) -> None:
        """Make the index anew, because the content of a message was erased."""
        self._queue.put(_START_OVER)

    # On the searcher's thread.

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._follow()
                continue
            if item is None:
                break
            if item is _START_OVER:
                self._start_over()
                continue
            query, answered = cast(_Item, item)
            self._loop.call_soon_threadsafe(self._publish, answered, self._find(query))
        self._index.close()

    def _find(self, query: SearchQuery) -> Reply:
        try:
            return History(tuple(self._index.find(query)))
        except StoreError as error:
            self._health.search.failed(str(error))
            return Refusal(Code.STORE_FAILED, f"the search index failed: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the next question is another
            refusal = Refusal(Code.INTERNAL_ERROR, "the hub failed at this search; its log says why")
            self._health.fault(Fault(0, "Search", error, refusal))
            return refusal

    def _start_over(self) -> None:
        try:
            self._index.start_over()
        except Exception as error:  # noqa: BLE001 - the index knows the last redaction, so it is tried again
            self._health.search.failed(str(error))

    def _follow(self) -> None:
        """Add new messages to the search index until all are added or a query comes."""
        try:
            while self._index.work() and self._queue.empty():
                pass
            self._health.search.succeeded()
        except Exception as error:  # noqa: BLE001 - it is tried again, and whoever asks is told
            self._health.search.failed(str(error))

    # On the event loop.

    def _publish(self, answered: Answered, reply: Reply) -> None:
        self._waiting -= 1
        answered(reply)
