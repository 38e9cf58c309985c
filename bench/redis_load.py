"""Redis through redis-py: streams for pairs (XADD in pipelines, XREADGROUP, XACK), and pub/sub for a fan-out."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from redis.asyncio import Redis

from bench.plan import BODY, Plan
from bench.traffic import Meter, Times, Traffic

_GROUP = "readers"


class StreamTraffic(Traffic):
    """One stream per pair of sender and recipient, and one connection for each of the two."""

    def __init__(self, plan: Plan, connections: Sequence[Redis]) -> None:
        self._plan = plan
        self._senders = connections[: plan.senders]
        self._recipients = connections[plan.senders :]
        self._streams = [f"{plan.name}-{index}" for index in range(plan.senders)]

    async def open(self) -> None:
        """Make the streams and their consumer groups."""
        for stream in self._streams:
            await self._senders[0].xgroup_create(stream, _GROUP, id="0", mkstream=True)

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        each = messages // self._plan.senders
        async with asyncio.TaskGroup() as group:
            for sender, recipient, stream in zip(self._senders, self._recipients, self._streams, strict=True):
                group.create_task(self._send(sender, stream, each))
                group.create_task(self._receive(recipient, stream, each))

    async def _send(self, sender: Redis, stream: str, count: int) -> None:
        """Send one window as a pipeline, wait for its answers, then send the next."""
        for start in range(0, count, self._plan.window):
            pipeline = sender.pipeline(transaction=False)
            for _ in range(min(self._plan.window, count - start)):
                # On a pipeline this queues the command; the answers come from `execute`.
                _ = pipeline.xadd(stream, {"body": BODY})
            await pipeline.execute()

    async def _receive(self, recipient: Redis, stream: str, count: int) -> None:
        while count > 0:
            ids = await self._read(recipient, stream)
            await recipient.xack(stream, _GROUP, *ids)
            count -= len(ids)

    async def _read(self, recipient: Redis, stream: str) -> list[Any]:
        """Ids of the new entries; waits for some."""
        answer: Any = await recipient.xreadgroup(_GROUP, "reader", {stream: ">"}, count=256, block=5000)
        pages = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
        # The newer of Redis's two answer forms wraps the entries once more.
        return [entry[0] for page in pages for entry in (page[0] if isinstance(page[0], list) else page)]

    async def one(self) -> Times:
        """See `Traffic`."""
        started = time.perf_counter()

        async def receive() -> float:
            ids = await self._read(self._recipients[0], self._streams[0])
            taken = time.perf_counter() - started
            await self._recipients[0].xack(self._streams[0], _GROUP, *ids)
            return taken

        async def send() -> float:
            await self._senders[0].xadd(self._streams[0], {"body": BODY})
            return time.perf_counter() - started

        delivered, answered = await asyncio.gather(receive(), send())
        return Times(answered, delivered)

    async def check(self) -> None:
        """See `Traffic`."""
        for stream in self._streams:
            pending: Any = await self._senders[0].xpending(stream, _GROUP)
            assert pending["pending"] == 0, f"{pending['pending']} entries of {stream} are not acknowledged"


class FanOutTraffic(Traffic):
    """A channel with one connection for each subscriber, published to in pipelines of a window."""

    def __init__(self, plan: Plan, connections: Sequence[Redis]) -> None:
        self._plan = plan
        self._publisher, *self._subscribers = connections
        self._meter = Meter()

    async def open(self, stack: AsyncExitStack) -> None:
        """Subscribe, and begin to read."""
        self._meter.expect(self._plan.recipients)
        for subscriber in self._subscribers:
            listening = subscriber.pubsub()
            await listening.subscribe(self._plan.name)
            task = asyncio.create_task(self._read(listening))
            stack.callback(task.cancel)
        # Each subscription is confirmed by a message of its own.
        await self._meter.wait()

    async def _read(self, listening: Any) -> None:
        async for _ in listening.listen():
            self._meter.count()

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        self._meter.expect(messages * self._plan.recipients)
        for start in range(0, messages, self._plan.window):
            pipeline = self._publisher.pipeline(transaction=False)
            for _ in range(min(self._plan.window, messages - start)):
                _ = pipeline.publish(self._plan.name, BODY)
            await pipeline.execute()
        await self._meter.wait()


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Connect all senders and recipients."""
    connections = [Redis(unix_socket_path=plan.address) for _ in range(plan.senders + plan.recipients)]
    for connection in connections:
        stack.push_async_callback(connection.aclose)
    if plan.fan_out:
        fan_out = FanOutTraffic(plan, connections)
        await fan_out.open(stack)
        return fan_out
    traffic = StreamTraffic(plan, connections)
    await traffic.open()
    return traffic
