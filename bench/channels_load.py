"""agent-channels: one client of a channel's socket writes, the others listen. The wire has no acknowledgement."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import cast

from bench.plan import BODY, Plan
from bench.traffic import Meter, Times, Traffic
from tieline.protocols.agent_channels.codec import encode
from tieline.wire.frames import FrameBuffer
from tieline.wire.home import read_running

_FRAME_BYTES_MAX = 16 * 1024 * 1024


class Listener(asyncio.Protocol):
    """Counts the messages of a channel."""

    def __init__(self, received: Callable[[int], None]) -> None:
        self._received = received
        self._buffer = FrameBuffer(_FRAME_BYTES_MAX)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Count whole frames."""
        self._buffer.receive_data(data)
        count = sum(1 for _ in self._buffer.next_frames())
        if count:
            self._received(count)


class ChannelTraffic(Traffic):
    """A writer with a window: so many messages at most are on their way to the slowest listener."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._frame = encode({"msg": BODY})
        self._meter = Meter()
        self._writer: asyncio.Transport | None = None
        self._received: list[int] = [0] * plan.recipients
        self._sent = self._wanted = 0

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect the listeners, then the writer."""
        path = self._plan.address
        if self._plan.is_hub:
            running = read_running(Path(self._plan.home))
            assert running is not None, "the hub runs"
            path = f"{running.places['channels_dir']}/general.sock"
        loop = asyncio.get_running_loop()
        for index in range(self._plan.recipients):
            transport, _ = await loop.create_unix_connection(partial(Listener, self._arrived(index)), path)
            stack.callback(transport.close)
        self._writer, _ = await loop.create_unix_connection(lambda: Listener(lambda _: None), path)
        stack.callback(self._writer.close)

    def _arrived(self, index: int) -> Callable[[int], None]:
        def arrived(count: int) -> None:
            self._received[index] += count
            self._meter.count(count)
            if self._sent < self._wanted and self._sent - min(self._received) <= self._plan.window // 2:
                self._fill()

        return arrived

    def _fill(self) -> None:
        count = min(self._wanted, min(self._received) + self._plan.window) - self._sent
        if count > 0:
            assert self._writer is not None, "connected before"
            self._sent += count
            self._writer.write(self._frame * count)

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        self._meter.expect(messages * self._plan.recipients)
        self._wanted += messages
        self._fill()
        await self._meter.wait()

    async def one(self) -> Times:
        """See `Traffic`; nothing answers on this wire."""
        started = time.perf_counter()
        await self.run(1)
        return Times(0.0, time.perf_counter() - started)


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Connect the writer and all listeners."""
    traffic = ChannelTraffic(plan)
    await traffic.open(stack)
    return traffic
