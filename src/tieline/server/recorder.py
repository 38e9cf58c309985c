"""The recorder: runs the journal of activity on a thread of its own, so that large uploads never delay a message.

Used by: the local hub, on the event loop. Uses: the journal. Work passes through a queue with a limit on its number of
items and on their size. If the queue is full, new work is refused at once. The thread takes all work that came during
the last commit, does it and commits once. Replies and notices are sent only after the commit. If the store fails, the
waiting work is refused and the hub continues.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.command import Command, Tick
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Recorded, Reply
from tieline.core.clock_and_ids import ClockAndIds
from tieline.core.journal import PRUNE_MAX, FreeSpace, Journal, Prune, Record, Work
from tieline.core.outcome import Fault
from tieline.core.store import ActivityStore, DamagedError, DiskError
from tieline.server.health import Health

Answered = Callable[[Reply], None]
_Item = tuple[Work, Answered]

_PASS_SECONDS = 3600.0
_PAUSE_SECONDS = 0.05
"""`_PAUSE_SECONDS` is the pause between two small steps of deleting old rows. `_PASS_SECONDS` is the time between the
end of one deletion of all old rows and the start of the next."""
_IDLE_SECONDS = 0.5
"""Seconds between two steps that return free disk space to the operating system. The first step comes after this time
without uploads."""
_DOUBT_SECONDS = 60.0
"""Seconds between two checks if the hub trusts its clock. No old rows are deleted before the hub trusts its clock."""
_RETRY_SECONDS = 1.0
"""Seconds between two attempts to use a failing store, or to remove erased content from its files, while nobody uploads
activity."""
_BATCH_MAX = 64
"""Most uploads of activity in one commit, so that the first upload does not wait too long for the last one."""

_FULL = Refusal(Code.ACTIVITY_FULL, "too much activity waits to be written; upload it again later")
_STOPPED = Refusal(Code.SHUTTING_DOWN, "the hub is stopping; send again when it is back")


def _yield_thread() -> None:
    # Releases the interpreter lock. This thread could otherwise hold it for milliseconds while a message waits.
    time.sleep(0)


class RecorderCounters(Struct):
    """Numbers since the start of the hub: stored activity events, commits, and the seconds that the commits took."""

    events: int = 0
    commits: int = 0
    commit_seconds: float = 0.0


class Recorder:
    """Runs the journal, which stores and reads the activity of agents, on its own thread.

    Uploads and queries wait in a queue. `recorded` is called with the rows that were stored. `submit` gives commands to
    the hub.
    """

    def __init__(
        self,
        store: ActivityStore,
        limits: Limits,
        recorded: Callable[[Sequence[ActivityRow]], None],
        health: Health,
        clock_and_ids: ClockAndIds,
        submit: Callable[[Sequence[Command]], None],
    ) -> None:
        self._clock_and_ids = clock_and_ids
        self._health = health
        self._journal = Journal(store, limits, _yield_thread)
        self._limits = limits
        # Gives the hub commands.
        self._submit = submit
        # Called on the event loop with the stored rows.
        self._recorded = recorded
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        # Number and size of the waiting work; only the event loop counts.
        self.waiting = 0
        self._waiting_bytes = 0
        self._stopping = False
        self._pruner: asyncio.TimerHandle | None = None
        # The number of stored events at the last check for new uploads.
        self._idle_events = -1
        # Time of the loop at which old activity is deleted again.
        self._next_pass = 0.0
        # Counts since the start; only the recorder's thread writes them.
        self.counters = RecorderCounters()

    def start(self) -> None:
        """Start the journal's thread, and start to delete old activity once per hour."""
        self._thread.start()
        self._prune()

    async def stop(self) -> None:
        """Finish the submitted work, stop the thread and close the store."""
        self._stopping = True
        if self._pruner is not None:
            self._pruner.cancel()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        # The thread's last callbacks are in the queue of the loop; let them run.
        await asyncio.sleep(0)

    def submit(self, work: Work, answered: Answered) -> None:
        """Queue an upload or a query of activity. The callback `answered` gets the reply.

        An upload is answered when its events are on disk. If the queue is full, `answered` gets a refusal at once.
        """
        size = work.size if isinstance(work, Record) else 0
        limits = self._limits
        if self._stopping:
            answered(_STOPPED)
        elif self.waiting >= limits.activity_waiting_max or (
            self._waiting_bytes and self._waiting_bytes + size > limits.activity_waiting_bytes_max
        ):
            answered(_FULL)
        else:
            self.waiting += 1
            self._waiting_bytes += size
            self._queue.put((work, answered))

    def _prune(self) -> None:
        """Delete old activity in small steps, then pause for an hour.

        One pass per hour is enough, because activity is kept for days. During the pause, give free disk space back to
        the operating system while no uploads come.
        """

        def done(reply: Reply) -> None:
            if isinstance(reply, Recorded) and reply.count >= PRUNE_MAX:
                self._do_later(_PAUSE_SECONDS, self._prune)
            else:
                self._next_pass = self._loop.time() + _PASS_SECONDS
                self._do_later(_IDLE_SECONDS, self._free_space)

        if self._clock_and_ids.doubts_time():
            self._do_later(_DOUBT_SECONDS, self._prune)
        else:
            self.submit(Prune(self._clock_and_ids.now_ms()), done)

    def _free_space(self) -> None:
        """Give some free disk space back to the operating system, if no upload came since the last call.

        Schedule the next call, until little free space is left.
        """
        left = self._next_pass - self._loop.time()

        def done(reply: Reply) -> None:
            more = isinstance(reply, Recorded) and reply.count
            self._do_later(_IDLE_SECONDS if more else left, self._free_space if more else self._prune)

        if left <= 0:
            self._prune()
        elif self.counters.events == self._idle_events and not self.waiting:
            self.submit(FreeSpace(), done)
        else:
            self._idle_events = self.counters.events
            self._do_later(_IDLE_SECONDS, self._free_space)

    def _do_later(self, seconds: float, step: Callable[[], None]) -> None:
        if not self._stopping:
            self._pruner = self._loop.call_later(seconds, step)

    # On the recorder's thread.

    def _run(self) -> None:
        held: _Item | None = None
        while True:
            try:
                retries = self._health.activity.reason or self._journal.erasing
                item = held or self._queue.get(timeout=_RETRY_SECONDS if retries else None)
            except queue.Empty:
                self._retry()
                continue
            if item is None:
                break
            items, held = self._gather(item)
            self._work(items)
        self._journal.close()

    def _retry(self) -> None:
        try:
            self._journal.retry()
        except Exception as error:  # noqa: BLE001 - it is tried again
            self._note(error)
        else:
            self._health.activity.succeeded()

    def _gather(self, item: _Item) -> tuple[list[_Item], _Item | None]:
        """Return the items to execute together: `item` and, if it is an upload, the uploads that wait directly behind.

        The second value is the query that ended the uploads, or `None`. This query is executed alone, after the
        uploads. So its answer contains all earlier uploads.
        """
        items = [item]
        while isinstance(item[0], Record) and len(items) < _BATCH_MAX and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                # The recorder stops after these uploads.
                self._queue.put(None)
                break
            if not isinstance(following[0], Record):
                return items, following
            items.append(following)
        return items, None

    def _work(self, items: Sequence[_Item]) -> None:
        replies: list[Reply] = []
        rows: list[ActivityRow] = []
        try:
            for work, _ in items:
                reply, kept = self._journal.carry_out(work)
                replies.append(reply)
                rows.extend(kept)
            if any(isinstance(work, Record) for work, _ in items):
                self._commit(len(rows))
            elif self._journal.dirty:
                self._journal.commit()
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was kept
            self._note(error)
            self._restore()
            if len(items) > 1 and not isinstance(error, DiskError):
                # One of the items causes the error; running each alone shows which one.
                for item in items:
                    self._work((item,))
                return
            replies = [Refusal(Code.STORE_FAILED, f"the activity log failed, nothing was kept: {error}")] * len(items)
            rows = []
        late, self._journal.late = self._journal.late, ()
        self._loop.call_soon_threadsafe(self._publish, items, replies, rows, late)

    def _commit(self, events: int) -> None:
        started = time.perf_counter()
        self._journal.commit()
        self.counters.commits += 1
        self.counters.commit_seconds += time.perf_counter() - started
        self.counters.events += events
        self._health.activity.succeeded()

    def _note(self, error: Exception) -> None:
        if isinstance(error, DiskError):
            self._health.activity.failed(str(error), error.hint)
        elif isinstance(error, DamagedError):
            self._health.damaged(self._health.activity.what, error)
        else:
            refusal = Refusal(Code.STORE_FAILED, str(error))
            self._health.fault(Fault(0, "the activity log", error, refusal))

    def _restore(self) -> None:
        try:
            self._journal.restore()
        except Exception as error:  # noqa: BLE001 - the next work will fail too, unless the disk has come back
            self._note(error)

    # On the event loop.

    def _publish(
        self, items: Sequence[_Item], replies: Sequence[Reply], rows: Sequence[ActivityRow], late: tuple[str, ...]
    ) -> None:
        for (work, answered), reply in zip(items, replies, strict=True):
            self.waiting -= 1
            self._waiting_bytes -= work.size if isinstance(work, Record) else 0
            answered(reply)
        if rows:
            self._recorded(rows)
        if late:
            self._submit((Tick(late=late),))
