"""The uploader: what an agent did, on its way to the hub in batches.

Above: the runner, which puts events in: markers of objectives, what the program reports, what passed the proxy.
Below: whatever session with the hub there is. The program never waits for it: putting is quick, what cannot be kept is
left out and counted, and an upload that fails hurts nobody. Secrets are taken out here already, so that they do not
even leave the process; on a thread, because long texts take their time.
"""

import asyncio
import contextlib
from collections import deque
from typing import Any

import msgspec

from tieline.client import Client, HubError, HubRefused
from tieline.contract.redaction import redact
from tieline.contract.refusal import Code

WAITING_MAX = 5_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Events that wait for the hub: those of some hours of work. Past that the oldest are left out."""

BATCH_MAX = 200
BATCH_BYTES_MAX = 4 * 1024 * 1024
BATCH_SECONDS = 0.5
"""From the first event of a batch to its upload."""

FLUSH_SECONDS = 3.0
"""At the end of a run: the person would rather have the shell back."""

_PAUSE_SECONDS = 0.2
_PASSING = frozenset({Code.ACTIVITY_FULL, Code.SHUTTING_DOWN, Code.STORE_FAILED, Code.UNKNOWN_SESSION})
"""Refusals that another time, or another session, does not get."""


class Uploader:
    """Events of one member that wait for the hub. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._finishing = False
        # The session now, if there is one.
        self.client: Client | None = None
        self.uploaded = 0
        self.left_out = 0

    def put(self, event: dict[str, Any]) -> None:
        """Take an event. It is written down now, because whoever made it may go on with its parts."""
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
        """Upload until cancelled."""
        while True:
            await self._filled.wait()
            if not self._finishing:
                await asyncio.sleep(BATCH_SECONDS)
            await self._upload()

    async def finish(self, running: "asyncio.Task[None]") -> None:
        """Upload what is left, for a while, and end the task that uploads."""
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
        size = 0
        for encoded, length in self._waiting:
            if batch and (len(batch) == BATCH_MAX or size + length > BATCH_BYTES_MAX):
                break
            batch.append(encoded)
            size += length
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
            # The hub will not take it another time either.
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
