"""The uploader: sends the activity of an agent (records of its actions) to the hub in batches.

Used by: the runner (the part of `tieline run` that starts an agent's program). The runner queues events: marks for
objectives that open or close, the program's telemetry, and model calls that passed the proxy. Uses: the current session
with the hub. The program never waits for the uploader. `put` returns at once. If the queue is full, the oldest events
are dropped and counted. A failed upload does not disturb the program. The uploader redacts secrets before the upload,
so that secrets never leave the process. The redaction runs on a thread, because long texts take time.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any

import msgspec

from tieline.client import Client, HubError, HubRefused
from tieline.contract.redaction import redact
from tieline.contract.refusal import Code
from tieline.protocols import protocols
from tieline.wire.json_text import VALUES_MAX, estimate_values

WAITING_MAX = 5_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Maximum number of bytes of events that wait for the upload. This is some hours of work. Above this limit the oldest
events are dropped."""

BATCH_MAX = 200
BATCH_BYTES_MAX = 4 * 1024 * 1024
BATCH_VALUES_MAX = VALUES_MAX // 2
"""Approximate number of JSON values in a batch. The hub accepts twice as many in one request."""
BATCH_SECONDS = 0.5
"""Seconds from the first event of a batch to the upload of the batch."""

FLUSH_SECONDS = 3.0
"""Seconds that the last upload may take, when the agent's program has ended. The time is short, because the user waits
for the shell."""

_PAUSE_SECONDS = 0.2
_PASSING = frozenset({Code.ACTIVITY_FULL, Code.SHUTTING_DOWN, Code.STORE_FAILED, Code.UNKNOWN_SESSION})
"""Codes of temporary refusals by the hub. After such a refusal the upload is tried again."""


class Uploader:
    """Queue of one member's activity events (records of an agent's actions), and the task that uploads them to the hub.

    Only one event loop may use it.
    """

    def __init__(self) -> None:
        # Loaded before the first redaction, because they declare the form of their tokens.
        protocols()
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._finishing = False
        # The current session, if there is one.
        self.client: Client | None = None
        self.uploaded = 0
        self.left_out = 0

    def put(self, event: dict[str, Any]) -> None:
        """Add an activity event to the queue.

        The event is encoded at once, because the caller may change its parts later.
        """
        try:
            encoded = msgspec.json.encode(event)
        except (TypeError, ValueError, UnicodeEncodeError, RecursionError):
            self.left_out += 1
            return
        self._waiting.append((encoded, len(encoded)))
        self._size += len(encoded)
        while len(self._waiting) > WAITING_MAX or self._size > WAITING_BYTES_MAX:
            self._drop()
            self.left_out += 1
        self._filled.set()
        self._emptied.clear()

    async def run(self) -> None:
        """Upload queued events in batches, until this task is cancelled."""
        while True:
            await self._filled.wait()
            if not self._finishing:
                await asyncio.sleep(BATCH_SECONDS)
            await self._upload()

    async def finish(self, running: "asyncio.Task[None]") -> None:
        """Wait at most `FLUSH_SECONDS` until the queue is uploaded. Then cancel `running`, the task that runs `run`."""
        self._finishing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._emptied.wait()
        self.left_out += len(self._waiting)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def _upload(self) -> None:
        batch: list[bytes] = []
        size = values = 0
        for encoded, length in self._waiting:
            size += length
            values += estimate_values(encoded)
            is_full = len(batch) == BATCH_MAX or size > BATCH_BYTES_MAX or values > BATCH_VALUES_MAX
            if batch and is_full:
                break
            batch.append(encoded)
        client = self.client
        if client is None:
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        events = await asyncio.to_thread(_without_secrets, batch)
        try:
            await client.record_activity(*events)
        except HubRefused as refused:
            if refused.code in _PASSING:
                await asyncio.sleep(_PAUSE_SECONDS)
                return
            # A retry would be refused too.
            self.left_out += len(batch)
        except HubError:
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        else:
            self.uploaded += len(batch)
        for encoded in batch:
            if self._waiting and self._waiting[0][0] is encoded:
                self._drop()

    def _drop(self) -> None:
        self._size -= self._waiting.popleft()[1]
        if not self._waiting:
            self._filled.clear()
            self._emptied.set()


def _without_secrets(batch: list[bytes]) -> list[dict[str, Any]]:
    return [redact(msgspec.json.decode(encoded)) for encoded in batch]
