"""The hub's own protocol: by the shipped client (`sdk`), and by bytes written by hand (`lean`)."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from bench.lean import LeanConnection, dial
from bench.plan import BODY, Plan
from bench.traffic import Meter, Times, Traffic
from tieline.client import Client, HubRefused, connect
from tieline.contract.refusal import Code
from tieline.wire.home import read_key


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
    """Make the members that are not there yet, and join the recipients to the channel."""
    senders, recipients, _ = names(plan)
    async with await connect(home=Path(plan.home)) as operator:
        for name in (*senders, *recipients):
            try:
                await operator.add_member(name)
            except HubRefused as error:
                if error.code is not Code.NAME_TAKEN:
                    raise
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


class SdkTraffic(Traffic):
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

    async def one(self) -> Times:
        """See `Traffic`."""
        ((client, target),) = self._senders
        self._meter.expect(self._plan.copies)
        started = time.perf_counter()

        async def send() -> float:
            await client.send(target, BODY)
            return time.perf_counter() - started

        async def receive() -> float:
            await self._meter.wait()
            return time.perf_counter() - started

        return Times(*await asyncio.gather(send(), receive()))

    async def check(self) -> None:
        """See `Traffic`."""
        await check_inboxes(self._plan)


class LeanTraffic(Traffic):
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


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Make the members, and connect them."""
    if plan.is_hub:
        await prepare(plan)
    traffic = SdkTraffic(plan) if plan.client == "sdk" else LeanTraffic(plan)
    await traffic.open(stack)
    return traffic
