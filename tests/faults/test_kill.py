"""Tests with kill -9 at any moment under load: no accepted message is lost, and the order stays.

No delivery comes again after a durable acknowledgement. Senders send numbered messages with their own wire ids. After
each kill, they send unanswered messages again. Recipients acknowledge or claim their messages. To learn that
acknowledgements are durable, a recipient then sends a message on the same connection: when this message is accepted,
the acknowledgements before it are durable.
"""

import asyncio
import contextlib
import random
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.server.hubs import until
from tieline.client import Client, Delivery, HubError, HubRefused, connect
from tieline.contract.message import Kind
from tieline.contract.refusal import Code
from tieline.core.audit import AuditReport, verify
from tieline.stores.sqlite.inspection import open_inspection
from tieline.wire.home import Running

ROUNDS = 50 if SOAK else 10
SENDERS = ("s0", "s1", "s2")
RECIPIENTS = ("r0", "r1")
SINK = "sink"
PIPELINE = 16

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 120)]


class Place:
    """Test helper: the hub's current address, and the tokens of its members."""

    def __init__(self, home: Path, tokens: dict[str, str]) -> None:
        self.home = home
        self.tokens = tokens
        self.running: Running | None = None

    async def join(self, name: str, *, receive: bool = False) -> Client:
        """Open a session of a member. Members whose name ends with 1 use a WebSocket, others the Unix socket."""
        token = self.tokens[name]
        if name[-1] == "1":
            assert self.running is not None
            return await connect(token=token, url=self.running.http, receive=receive, window=64)
        return await connect(token=token, home=self.home, receive=receive, window=64)


class Sender:
    """Test sender: sends numbered messages, and sends unanswered messages again."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        self._next = 0
        # Said and not answered, oldest first, as (number, target).
        self._open: deque[tuple[int, str]] = deque()
        # Message id by number, and targets.
        self.accepted: dict[int, str] = {}
        self.targets: dict[int, str] = {}
        self.duplicates = 0

    async def talk(self, place: Place) -> None:
        """Send messages until the hub is killed."""
        with contextlib.suppress(HubError, OSError):
            async with await place.join(self.name) as client:
                await self._say_again(client)
                while True:
                    for _ in range(PIPELINE):
                        self._open.append((self._next, self._chance.choice(["@r0", "@r1", "#all-of-us"])))
                        self._next += 1
                    await self._say_again(client)

    async def finish(self, place: Place) -> None:
        """Send all unanswered messages again, and wait until they are accepted."""
        async with await place.join(self.name) as client:
            await self._say_again(client)
        assert not self._open

    async def _say_again(self, client: Client) -> None:
        asked = list(self._open)
        answers = await asyncio.gather(*(self._say(client, *item) for item in asked), return_exceptions=True)
        for (number, target), answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                known = self.accepted.setdefault(number, answer)
                assert known == answer, f"{self.name} {number} was accepted as {known} and as {answer}"
                self.targets[number] = target
                self._settle(number, target)
            elif not isinstance(answer, HubError):
                raise answer
        for answer in answers:
            if isinstance(answer, HubError):
                raise answer

    def _settle(self, number: int, target: str) -> None:
        assert self._open.popleft() == (number, target), "answers come in order"

    async def _say(self, client: Client, number: int, target: str) -> str:
        # Events are exempt from the loop rule: several who talk in one channel without a pause look like a storm.
        body, wire_id = f"{self.name} {number}", f"{self.name}-{number}"
        accepted = await client.send(target, body, wire_id=wire_id, kind=Kind.EVENT)
        self.duplicates += accepted.duplicate
        return accepted.id


class Recipient:
    """Test recipient: acknowledges or claims messages, and knows which acknowledgements are durable."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self._chance = chance
        self._barriers = 0
        # Everything heard: message id by key, and body by id.
        self.heard: dict[int, str] = {}
        self.bodies: dict[str, str] = {}
        # Keys acknowledged on this connection, and those known to be settled for good.
        self._acked: set[int] = set()
        self.durable: set[int] = set()
        self._last: dict[str, int] = {}
        self.redelivered = 0

    async def listen(self, place: Place) -> None:
        """Receive and handle messages until the hub is killed."""
        self._acked.clear()
        with contextlib.suppress(HubError, OSError):
            async with await place.join(self.name, receive=True) as client:
                async for delivery in client:
                    await self._handle(client, delivery)

    async def drain(self, place: Place, expected: set[str], seconds: float = 60) -> None:
        """Receive until all expected messages came and the inbox is empty. `expected` contains message ids."""
        self._acked.clear()
        async with asyncio.timeout(seconds), await place.join(self.name, receive=True) as client:
            while (await client.inbox(limit=1)).items or not expected <= set(self.heard.values()):
                while not client._deliveries.empty():
                    await self._handle(client, await anext(client.deliveries()))

    async def _handle(self, client: Client, delivery: Delivery) -> None:
        self._check(delivery)
        if self._chance.random() < 0.1:
            item = await client.claim(delivery.message.id)
            assert item is not None, f"{self.name} was pushed {delivery.key}, which somebody else settled"
            assert item.key == delivery.key
            self.durable.add(delivery.key)
            return
        client.ack(delivery)
        self._acked.add(delivery.key)
        if self._chance.random() < 0.05:
            acked = set(self._acked)
            self._barriers += 1
            await client.send(f"@{SINK}", "the acknowledgements before this are durable")
            self.durable |= acked

    def _check(self, delivery: Delivery) -> None:
        key, message = delivery.key, delivery.message
        assert key not in self.durable, f"{self.name} hears {key} again, which was durably settled"
        if key in self.heard:
            self.redelivered += 1
            assert self.heard[key] == message.id, f"{key} is another message than before"
            return
        assert message.id not in self.bodies, f"{message.id} came under two keys"
        sender, number = message.sender, int(message.body.partition(" ")[2])
        assert message.body == f"{sender} {number}"
        self._check_order(sender, number)
        self.heard[key] = message.id
        self.bodies[message.id] = message.body

    def _check_order(self, sender: str, number: int) -> None:
        assert number > self._last.get(sender, -1), f"{self.name}: {sender} {number} after {self._last[sender]}"
        self._last[sender] = number


def audit(home: Path) -> AuditReport:
    """Verify the audit chain of a home from outside the hub. Return the report."""
    inspection = open_inspection(home)
    try:
        return verify(inspection)
    finally:
        inspection.close()


async def introduce(hub: HubProcess) -> Place:
    """Start the hub, make the members, and subscribe the recipients to the channel.

    Return the address and the tokens.
    """
    place = Place(hub.home, {})
    place.running = await hub.start()
    async with await connect(home=hub.home) as operator:
        for name in (*SENDERS, *RECIPIENTS, SINK):
            place.tokens[name] = (await operator.add_member(name)).token
    for name in RECIPIENTS:
        async with await place.join(name) as client:
            await client.subscribe("all-of-us")
    return place


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def test_a_hub_that_is_killed_again_and_again_under_load_keeps_every_promise(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    senders = [Sender(name, random.Random(chance.random())) for name in SENDERS]
    recipients = [Recipient(name, random.Random(chance.random())) for name in RECIPIENTS]
    place = await introduce(hub)
    rows = 0
    for number in range(ROUNDS):
        tasks = [asyncio.create_task(one.talk(place)) for one in senders]
        tasks += [asyncio.create_task(one.listen(place)) for one in recipients]
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        hub.kill()
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)
        report = audit(hub.home)
        assert report.intact, f"after kill {number}: {report.findings}"
        assert report.rows >= rows, "the log never gets shorter"
        rows = report.rows
        place.running = await hub.start()
    for sender in senders:
        await sender.finish(place)
    accepted = {
        name: {
            one.accepted[n]
            for one in senders
            for n, target in one.targets.items()
            if target in (f"@{name}", "#all-of-us")
        }
        for name in RECIPIENTS
    }
    for recipient in recipients:
        await recipient.drain(place, accepted[recipient.name])
        assert accepted[recipient.name] == set(recipient.heard.values()), "what was said and nothing else"
    assert await hub.stop() == 0
    report = audit(hub.home)
    assert report.intact, report.findings
    total = sum(len(sender.accepted) for sender in senders)
    barriers = sum(recipient._barriers for recipient in recipients)
    assert total <= report.messages <= total + barriers, "each wire id is one message"
    assert total > 10 * ROUNDS, "there was no load to speak of"
    assert sum(len(recipient.durable) for recipient in recipients) > 0


async def test_a_hub_killed_while_it_starts_starts_again(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    place = await introduce(hub)
    async with await place.join("s0") as client:
        for number in range(50):
            await client.send("@r0", f"s0 {number}")
    for _ in range(10 if SOAK else 3):
        hub.kill()
        starting = asyncio.create_task(hub.start())
        await asyncio.sleep(chance.uniform(0.1, 0.5))
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        hub.kill()
        place.running = await hub.start()
    async with await place.join("r0") as client:
        page = await client.inbox(limit=100)
        assert [item.message.body for item in page.items] == [f"s0 {number}" for number in range(50)]
    assert audit(hub.home).intact


async def test_a_hub_that_is_stopped_under_load_refuses_with_a_reason_and_keeps_what_it_accepted(
    hub: HubProcess,
) -> None:
    place = await introduce(hub)
    accepted: list[str] = []
    outcome: list[HubError] = []

    async def talk() -> None:
        try:
            async with await place.join("s0") as client:
                while True:
                    accepted.append((await client.send("@r0", f"s0 {len(accepted)}")).id)
        except HubError as error:
            outcome.append(error)

    talking = asyncio.create_task(talk())
    await until(lambda: len(accepted) >= 20)
    assert await hub.stop() == 0
    await talking
    assert isinstance(outcome[0], HubRefused)
    assert outcome[0].code is Code.SHUTTING_DOWN
    leftover = [path.name for path in hub.home.rglob("*") if path.is_socket() or re.match("run.json|.*-wal", path.name)]
    assert leftover == []
    place.running = await hub.start()
    async with await place.join("r0") as client:
        page = await client.inbox(limit=10_000)
        stored = [item.message.id for item in page.items]
        assert stored[: len(accepted)] == accepted
        assert len(stored) <= len(accepted) + 1, "one at most was taken whose answer was lost"
