"""The same traffic through Redis streams: XADD in pipelines of a whole window, XREADGROUP, XACK."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from bench.plan import BODY, Plan

_GROUP = "readers"


class RedisTraffic:
    """One stream per pair of sender and recipient, and one connection for each of the two."""

    def __init__(self, plan: Plan, connections: list[Redis]) -> None:
        self._plan = plan
        self._senders = connections[: plan.senders]
        self._recipients = connections[plan.senders :]
        self._streams = [f"{plan.name}-{index}" for index in range(plan.senders)]

    async def open(self) -> None:
        """Make the streams and their consumer groups."""
        for stream in self._streams:
            await self._senders[0].xgroup_create(stream, _GROUP, id="0", mkstream=True)

    async def run(self, messages: int) -> None:
        """See `bench.load.Traffic`."""
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
            answer: Any = await recipient.xreadgroup(_GROUP, "reader", {stream: ">"}, count=256, block=5000)
            pages = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer]
            for page in pages:
                # The newer of Redis's two answer forms wraps the entries once more.
                entries = page[0] if isinstance(page[0], list) else page
                await recipient.xack(stream, _GROUP, *(entry[0] for entry in entries))
                count -= len(entries)

    async def check(self) -> None:
        """See `bench.load.Traffic`."""
        for stream in self._streams:
            pending: Any = await self._senders[0].xpending(stream, _GROUP)
            assert pending["pending"] == 0, f"{pending['pending']} entries of {stream} are not acknowledged"


@asynccontextmanager
async def redis_traffic(plan: Plan) -> AsyncIterator[RedisTraffic]:
    """Connect all senders and recipients to a Redis."""
    assert not plan.fan_out, "Redis is a reference for pairs only"
    path = f"{plan.home}/hub.sock"
    connections = [Redis(unix_socket_path=path) for _ in range(plan.senders + plan.recipients)]
    try:
        traffic = RedisTraffic(plan, connections)
        await traffic.open()
        yield traffic
    finally:
        for connection in connections:
            await connection.aclose()
