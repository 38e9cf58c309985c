"""Tests of Agent Relay with faults: a flood to a slow reader, cut connections, and a killed hub.

In each test the recipient must get 0, 1, 2, … with none missing, none twice and none out of order.
"""

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.protocols.agent_relay.cable import cable
from tests.protocols.agent_relay.wire import Wire, framed, greeting, said
from tests.server.hubs import until
from tieline.protocols.agent_relay.client import Backoff, RelayClient, State
from tieline.protocols.agent_relay.link import Link

FLOOD = 100_000 if SOAK else 20_000
BODY_CHARACTERS = 4096
GROWTH_BYTES_MAX = 64 * 2**20 + 640 * FLOOD
"""Limit of the growth of the hub's memory in a flood. It covers 4096 commands read ahead, the page cache, and the data
that the hub keeps for a recent message. It does not cover the bodies, which are several times as large."""

COUNT = 10_000
CUTS = 25 if SOAK else 5
KILLS = 10 if SOAK else 2
PIPELINE = 64
PATIENCE_SECONDS = 600 if SOAK else 120
STUBBORN = Backoff(initial_ms=10, wait_ms_max=500, attempts_max=1000)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if SOAK else 180)]


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def relay_socket(hub: HubProcess) -> str:
    """Start a hub. Return the path of its agent-relay socket."""
    running = await hub.start()
    assert running.places["relay_socket"] is not None
    return running.places["relay_socket"]


class ByToken(RelayClient):
    """Test client that resumes its session with a HELLO with the token, like other clients of the protocol."""

    def _greet(self, link: Link) -> None:
        self._hello(link)


WAYS = pytest.mark.parametrize("way", [RelayClient, ByToken], ids=["RESUME with positions", "HELLO with token"])


class Recipient:
    """Test recipient: receives numbered messages, and checks that each is the next one."""

    def __init__(self, client: RelayClient) -> None:
        self.client = client
        self.taken = 0
        # Limit of the messages taken by now; `None` for a recipient without a limit.
        self.allowed: Callable[[], int] | None = None

    async def take(self, count: int) -> None:
        """Receive and acknowledge messages until `count` messages have come in total."""
        async for delivery in self.client:
            number = int(delivery.body.partition(" ")[0])
            assert number == self.taken, f"{number} came where {self.taken} was expected"
            assert delivery.seq == number + 1
            self.taken += 1
            if self.taken == count:
                delivery.ack()
                return
            await until(lambda: self.allowed is None or self.taken < self.allowed(), seconds=60)

    async def reach(self, number: int) -> None:
        """Wait until this recipient has received `number` messages."""
        await until(lambda: self.taken >= number, seconds=60)

    async def stop_at(self, number: int) -> None:
        """Wait until message number `number` came. Leave it unacknowledged until `go_on`.

        Also wait until more messages are queued.
        """
        self.allowed = lambda: number
        await self.reach(number)
        await until(lambda: bool(self.client._deliveries) or self.taken >= COUNT - PIPELINE)

    async def go_on(self) -> None:
        """Wait until the client is connected again, then continue to receive without a limit."""
        await until(lambda: self.client.state is State.READY, seconds=60)
        # Repeated messages come before this answer.
        await self.client.ask("STATUS")
        self.allowed = None


async def send_numbers(client: RelayClient, count: int) -> None:
    """Send 0, 1, 2, … up to `count` - 1 to `recipient`, several at a time and in order."""
    numbers = iter(range(count))

    async def talk() -> None:
        for number in numbers:
            await client.send("recipient", str(number))

    await asyncio.gather(*(talk() for _ in range(PIPELINE)))


@contextlib.asynccontextmanager
async def watched(pid: int) -> AsyncIterator[list[int]]:
    """Yield a list to which the resident memory of a process, in bytes, is added every 50 ms."""
    samples: list[int] = []
    process = psutil.Process(pid)

    async def watch() -> None:
        while True:
            samples.append(process.memory_info().rss)
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        yield samples
    finally:
        watching.cancel()


class Flooder:
    """Test sender that ignores BUSY: it writes as fast as the hub reads."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.accepted = 0
        self.depths: list[int] = []

    async def flood(self, count: int) -> None:
        """Write `count` messages, and wait until all are accepted."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(count))
            padding = "x" * BODY_CHARACTERS
            for number in range(count):
                one = said(f"{number} {padding}", "recipient", id=f"f-{number}")
                await self._wire.raw(framed(json.dumps(one).encode()))

    async def _listen(self, count: int) -> None:
        while self.accepted < count:
            found = await self._wire.expect("ACK", "BUSY")
            if found["type"] == "BUSY":
                self.depths.append(found["payload"]["queue_depth"])
            else:
                assert found["payload"]["ack_id"] == f"f-{self.accepted}", "accepted in the order they were sent"
                self.accepted += 1


async def test_a_flood_to_a_slow_reader_stays_out_of_memory_and_arrives_whole(hub: HubProcess) -> None:
    path = await relay_socket(hub)
    pid = hub._process.pid if hub._process is not None else 0
    async with RelayClient(path, "recipient") as client, watched(pid) as samples:
        recipient = Recipient(client)
        sender = await Wire.dial(path)
        await sender.send(greeting("sender", capabilities={"ack": True, "accept": True}))
        await sender.expect("WELCOME")
        flooder = Flooder(sender)
        await until(lambda: len(samples) >= 10)
        before = max(samples)
        started = time.monotonic()
        # It takes one while ten are sent, however fast this machine is.
        recipient.allowed = lambda: flooder.accepted // 10 + 1
        async with asyncio.TaskGroup() as group:
            group.create_task(recipient.take(FLOOD))
            await flooder.flood(FLOOD)
            flooded = time.monotonic()
            at_end, behind = max(samples), FLOOD - recipient.taken
            recipient.allowed = None
        drained = time.monotonic()
        await sender.close()
    peak = max(samples)
    mib = 2**20
    sys.stdout.write(
        f"flood of {FLOOD} messages of {BODY_CHARACTERS} characters: accepted in {flooded - started:.1f} s while the "
        f"recipient was up to {behind} behind, drained in {drained - flooded:.1f} s more; {len(flooder.depths)} BUSY, "
        f"queue_depth up to {max(flooder.depths, default=0)}; resident MiB of the hub: {before / mib:.0f} before, "
        f"{at_end / mib:.0f} at the end of the flood, {peak / mib:.0f} at most, {samples[-1] / mib:.0f} after\n"
    )
    assert recipient.taken == FLOOD
    assert flooder.accepted == FLOOD
    assert flooder.depths, "the sender was told"
    assert behind > 0.8 * FLOOD, "there was no flood to speak of"
    assert peak - before < GROWTH_BYTES_MAX


@WAYS
async def test_connections_cut_in_the_middle_of_ten_thousand_deliveries_lose_and_repeat_nothing(
    hub: HubProcess, folder: Path, way: type[RelayClient]
) -> None:
    chance = random.Random(seed_of_the_day())
    path = await relay_socket(hub)
    async with (
        cable(folder / "c", path) as wire,
        RelayClient(path, "sender", backoff=STUBBORN) as sender,
        way(wire.path, "recipient", backoff=STUBBORN) as client,
    ):
        recipient = Recipient(client)
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(send_numbers(sender, COUNT))
            group.create_task(recipient.take(COUNT))
            for number in sorted(chance.sample(range(1, COUNT), CUTS)):
                # Half of the time it takes on while it is cut off, so that acknowledgements are lost.
                await (recipient.stop_at(number) if chance.random() < 0.5 else recipient.reach(number))
                wire.cut()
                await until(lambda: client.state is not State.READY)
                await recipient.go_on()
        assert recipient.taken == COUNT
        assert (await client.ask("INBOX", {"unreadOnly": True}))["messages"] == []
        delivered = [one["id"] for one in wire.heard if one["type"] == "DELIVER"]
        sys.stdout.write(
            f"{way.__name__}: {wire.connections} connections, {len(delivered)} DELIVERs of {len(set(delivered))} "
            f"deliveries, {len(delivered) - len(set(delivered))} of them again\n"
        )
        assert wire.connections == CUTS + 1


@WAYS
async def test_a_hub_killed_in_the_middle_of_ten_thousand_deliveries_loses_and_repeats_nothing(
    hub: HubProcess, way: type[RelayClient]
) -> None:
    chance = random.Random(seed_of_the_day())
    path = await relay_socket(hub)
    async with (
        RelayClient(path, "sender", backoff=STUBBORN) as sender,
        way(path, "recipient", backoff=STUBBORN) as client,
    ):
        recipient = Recipient(client)
        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(send_numbers(sender, COUNT))
            group.create_task(recipient.take(COUNT))
            for number in sorted(chance.sample(range(1, COUNT), KILLS)):
                await (recipient.stop_at(number) if chance.random() < 0.5 else recipient.reach(number))
                hub.kill()
                assert await relay_socket(hub) == path
                await recipient.go_on()
        assert recipient.taken == COUNT
        assert (await client.ask("INBOX", {"unreadOnly": True}))["messages"] == []
    assert await hub.stop() == 0
