"""A client process: puts one load on one server and prints what it took. `python -m bench.load PLAN`."""

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
import uvloop

from bench.lean import LeanConnection, dial
from bench.machine import read_cpu
from bench.metrics import BATCHES, COMMITS, read_figures
from bench.plan import BODY, Plan, Result
from bench.redis_load import redis_traffic
from tieline.client import Client, connect
from tieline.wire.home import read_key

REST_SECONDS = 0.2
"""Wait after the last acknowledgement, which the hub still commits: four times the hub's limit for that."""


class Traffic(Protocol):
    """Senders and recipients that are connected and wait for work."""

    async def run(self, messages: int) -> None:
        """Send this many messages in all; returns when they are accepted, received and acknowledged."""

    async def check(self) -> None:
        """Raise unless the server knows that everything was acknowledged."""


class Meter:
    """Counts deliveries up to the expected number."""

    def __init__(self) -> None:
        self._left = 0
        self._done = asyncio.Event()

    def expect(self, deliveries: int) -> None:
        """Set the expected number, and start to count."""
        self._left = deliveries
        self._done.clear()

    def count(self, deliveries: int = 1) -> None:
        """Count received deliveries."""
        self._left -= deliveries
        if self._left <= 0:
            self._done.set()

    async def wait(self) -> None:
        """Wait for the last delivery."""
        await self._done.wait()
        assert self._left == 0, f"{-self._left} more deliveries than were sent"


def names(plan: Plan) -> tuple[list[str], list[str], list[str]]:
    """Senders, recipients, and the target of each sender."""
    senders = [f"{plan.name}-s{index}" for index in range(plan.senders)]
    recipients = [f"{plan.name}-r{index}" for index in range(plan.recipients)]
    if plan.fan_out:
        targets = [f"#{plan.name}"] * plan.senders
    else:
        assert plan.senders == plan.recipients, "sender i writes to recipient i"
        targets = [f"@{name}" for name in recipients]
    return senders, recipients, targets


async def prepare(plan: Plan) -> None:
    """Make the members, and join the recipients to the channel."""
    senders, recipients, _ = names(plan)
    async with await connect(home=Path(plan.home)) as operator:
        for name in (*senders, *recipients):
            await operator.add_member(name)
    if plan.fan_out:
        for name in recipients:
            async with await connect(home=Path(plan.home), member=name) as client:
                await client.subscribe(plan.name)


async def check_inboxes(plan: Plan) -> None:
    """Raise unless the hub has seen every acknowledgement."""
    for name in names(plan)[1]:
        async with await connect(home=Path(plan.home), member=name) as client:
            page = await client.inbox(limit=1)
            assert not page.items, f"{name} still has unacknowledged deliveries from key {page.items[0].key} on"


class SdkTraffic:
    """The shipped client, used as its documentation says: a send awaits its answer, deliveries are iterated over."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._meter = Meter()
        self._senders: list[tuple[Client, str]] = []
        self._readers: list[asyncio.Task[None]] = []

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect all senders and recipients."""
        plan = self._plan
        senders, recipients, targets = names(plan)
        for name in recipients:
            client = await stack.enter_async_context(
                await connect(home=Path(plan.home), member=name, receive=True, window=plan.credit)
            )
            task = asyncio.create_task(self._read(client))
            stack.callback(task.cancel)
            self._readers.append(task)
        for name, target in zip(senders, targets, strict=True):
            client = await stack.enter_async_context(await connect(home=Path(plan.home), member=name))
            self._senders.append((client, target))

    async def _read(self, client: Client) -> None:
        count = self._meter.count
        async for delivery in client:
            client.ack(delivery)
            count()

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        plan = self._plan
        self._meter.expect(messages * plan.copies)
        each = messages // plan.senders
        async with asyncio.TaskGroup() as group:
            for client, target in self._senders:
                turns = iter(range(each))
                for _ in range(min(plan.window, each)):
                    group.create_task(self._send(client, target, turns))
        await self._meter.wait()

    async def _send(self, client: Client, target: str, turns: Iterator[int]) -> None:
        for _ in turns:
            await client.send(target, BODY)

    async def check(self) -> None:
        """See `Traffic`."""
        await check_inboxes(self._plan)


class LeanTraffic:
    """Connections of `bench.lean`: shows the server's speed with a client that costs nearly nothing."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._meter = Meter()
        self._senders: list[tuple[LeanConnection, str]] = []

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect all senders and recipients."""
        plan = self._plan
        key = read_key(Path(plan.home)) if plan.is_hub else "none"
        assert key is not None, "the hub of this home has made its key"
        path = Path(plan.home) / "hub.sock"
        senders, recipients, targets = names(plan)
        for name in recipients:
            connection = await dial(path, key, name, credit=plan.credit, delivered=self._meter.count)
            stack.callback(connection.close)
        for name, target in zip(senders, targets, strict=True):
            connection = await dial(path, key, name)
            stack.callback(connection.close)
            self._senders.append((connection, target))

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        plan = self._plan
        self._meter.expect(messages * plan.copies)
        each = messages // plan.senders
        sending = [connection.send(target, BODY, each, plan.window) for connection, target in self._senders]
        await asyncio.gather(*sending, self._meter.wait())

    async def check(self) -> None:
        """See `Traffic`."""
        if self._plan.is_hub:
            await check_inboxes(self._plan)


@asynccontextmanager
async def open_traffic(plan: Plan) -> AsyncIterator[Traffic]:
    """The traffic that a plan describes."""
    if plan.client == "redis":
        async with redis_traffic(plan) as redis:
            yield redis
        return
    if plan.is_hub:
        await prepare(plan)
    traffic = SdkTraffic(plan) if plan.client == "sdk" else LeanTraffic(plan)
    async with AsyncExitStack() as stack:
        await traffic.open(stack)
        yield traffic


async def run(plan: Plan) -> Result:
    """Put the load on the server and measure."""
    assert plan.messages % plan.senders == plan.warm_up % plan.senders == 0, "every sender sends as many"
    async with open_traffic(plan) as traffic:
        await traffic.run(plan.warm_up)
        await asyncio.sleep(REST_SECONDS)
        figures_before = read_figures(plan.http)
        server_before = read_cpu(plan.server_pid)
        client_before = _own_cpu()
        started = time.perf_counter()
        await traffic.run(plan.messages)
        seconds = time.perf_counter() - started
        client_cpu = _own_cpu() - client_before
        await asyncio.sleep(REST_SECONDS)
        server = read_cpu(plan.server_pid).since(server_before)
        figures = read_figures(plan.http)
        await traffic.check()
    batches, commits = (figures.get(name, 0.0) - figures_before.get(name, 0.0) for name in (BATCHES, COMMITS))
    return Result(seconds, plan.messages, plan.messages * plan.copies, server, client_cpu, batches, commits)


def _own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    result = uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.buffer.write(msgspec.json.encode(result))
