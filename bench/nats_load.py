"""NATS through nats-py: JetStream for pairs (each publish awaited, each message acknowledged), core for a fan-out."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import nats

from bench.plan import BODY, Plan
from bench.traffic import Meter, Times, Traffic

_BODY = BODY.encode()
_PENDING_BYTES_MAX = 2**30  # a subscriber drops messages beyond this, and here it must get all of them


class JetStreamTraffic(Traffic):
    """One stream with a subject and a durable consumer, used as the client's documentation says."""

    def __init__(self, plan: Plan, name: str, sender: Any, recipient: Any) -> None:
        self._plan = plan
        self._subject = name
        self._sender = sender.jetstream()
        self._recipient = recipient.jetstream()
        self._recipient_connection = recipient
        self._meter = Meter()

    async def open(self) -> None:
        """Make the stream and its consumer."""
        await self._sender.add_stream(name=self._subject, subjects=[self._subject])

        async def received(message: Any) -> None:
            await message.ack()
            self._meter.count()

        await self._recipient.subscribe(
            self._subject, durable="reader", cb=received, manual_ack=True, pending_bytes_limit=_PENDING_BYTES_MAX
        )

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        self._meter.expect(messages)
        turns = iter(range(messages))
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._plan.window, messages)):
                group.create_task(self._send(turns))
        await self._meter.wait()
        await self._recipient_connection.flush()

    async def _send(self, turns: Iterator[int]) -> None:
        for _ in turns:
            await self._sender.publish(self._subject, _BODY)

    async def one(self) -> Times:
        """See `Traffic`."""
        self._meter.expect(1)
        started = time.perf_counter()

        async def send() -> float:
            await self._sender.publish(self._subject, _BODY)
            return time.perf_counter() - started

        async def receive() -> float:
            await self._meter.wait()
            return time.perf_counter() - started

        return Times(*await asyncio.gather(send(), receive()))

    async def check(self) -> None:
        """See `Traffic`."""
        info = await self._sender.consumer_info(self._subject, "reader")
        left = info.num_pending + info.num_ack_pending
        assert not left, f"{left} messages of {self._subject} are not acknowledged"


class PairsTraffic(Traffic):
    """Several pairs at once, each with a stream of its own."""

    def __init__(self, pairs: Sequence[JetStreamTraffic]) -> None:
        self._pairs = pairs

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        await asyncio.gather(*(pair.run(messages // len(self._pairs)) for pair in self._pairs))

    async def check(self) -> None:
        """See `Traffic`."""
        for pair in self._pairs:
            await pair.check()


class FanOutTraffic(Traffic):
    """A subject of core NATS, with one connection for each subscriber."""

    def __init__(self, plan: Plan, publisher: Any) -> None:
        self._plan = plan
        self._publisher = publisher
        self._meter = Meter()

    async def subscribe(self, connection: Any) -> None:
        """Subscribe, and begin to count."""

        async def received(_: Any) -> None:
            self._meter.count()

        await connection.subscribe(self._plan.name, cb=received, pending_bytes_limit=_PENDING_BYTES_MAX)
        await connection.flush()

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        self._meter.expect(messages * self._plan.recipients)
        for number in range(messages):
            await self._publisher.publish(self._plan.name, _BODY)
            if number % self._plan.window == 0:
                await self._publisher.flush()
        await self._meter.wait()


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Connect all senders and recipients."""
    assert plan.senders == (1 if plan.fan_out else plan.recipients), "pairs, or one sender for all"
    connections = []
    for _ in range(plan.senders + plan.recipients):
        connection = await nats.connect(plan.address)
        stack.push_async_callback(connection.close)
        connections.append(connection)
    if plan.fan_out:
        fan_out = FanOutTraffic(plan, connections[0])
        for connection in connections[1:]:
            await fan_out.subscribe(connection)
        return fan_out
    pairs = [
        JetStreamTraffic(plan, f"{plan.name}-{number}", sender, recipient)
        for number, (sender, recipient) in enumerate(zip(connections[::2], connections[1::2], strict=True))
    ]
    for pair in pairs:
        await pair.open()
    return pairs[0] if len(pairs) == 1 else PairsTraffic(pairs)
