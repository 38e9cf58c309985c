"""Tests with kill -9 while four protocols exchange messages: no message is lost, and no settled message comes again.

A *door* is a sender and a recipient on one protocol. Senders number their messages for every recipient. If a protocol
can send a message again under the same id, the sender does so until it gets an answer. A request over HTTP has no id,
so an unanswered one may have been accepted or not, and is not sent again.
"""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_kill import audit
from tests.faults.test_peerbus import free_port
from tests.server.hubs import until
from tieline.client import Client, HubError, connect
from tieline.protocols.agent_relay.client import Backoff
from tieline.protocols.agent_relay.client import RelayClient as AgentRelay
from tieline.protocols.backchannel.client import RelayClient as Backchannel
from tieline.protocols.backchannel.client import RelayUnreachable
from tieline.protocols.peerbus.client import Adapter

ROUNDS = 100 if SOAK else 4
SECRET = "k" * 32
STUBBORN = Backoff(initial_ms=10, wait_ms_max=200, attempts_max=100_000)
PIPELINE = 16
BEHIND_MAX = 1000
"""Messages that a recipient may have before it. A fast sender would fill the inbox of a slow one for an hour."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if SOAK else 120)]


class Place:
    """Test helper: one hub, which restarts at the same addresses, and the tokens of its members."""

    def __init__(self, hub: HubProcess, peerbus: str) -> None:
        self.hub = hub
        self.peerbus = peerbus
        self.tokens: dict[str, str] = {}

    @property
    def url(self) -> str:
        """Return the hub's HTTP address."""
        return f"http://{self.hub.http}"


class Door:
    """Base class of the test clients (doors): the sender and the recipient of one protocol."""

    protocol: ClassVar[str]

    def __init__(self, place: Place, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.sender, self.recipient = f"s-{self.protocol}", f"r-{self.protocol}"
        self.doors: list[Door] = []
        self._next = 0
        # Accepted numbers, and those whose answer was lost, by recipient.
        self.accepted: dict[str, list[int]] = {}
        self.unknown: dict[str, set[int]] = {}
        # Numbers heard, by sender, in order.
        self.heard: dict[str, list[int]] = {}
        self.stopping = False

    async def talk(self) -> None:
        """Send numbered messages until told to stop. Note those that the hub has accepted."""
        raise NotImplementedError

    async def listen(self) -> None:
        """Receive messages and note them, without end."""
        raise NotImplementedError

    def words(self) -> Iterator[tuple[str, int]]:
        """Yield the next messages to send, each as (recipient, number). Leave out recipients that are far behind."""
        ready = [door.recipient for door in self.doors if door.behind() < BEHIND_MAX]
        for _ in range(self.chance.randint(1, PIPELINE) if ready else 0):
            yield self.chance.choice(ready), self._next
            self._next += 1

    def behind(self) -> int:
        """Return the number of messages that were accepted for the recipient, and that it has not heard."""
        accepted = sum(len(door.accepted.get(self.recipient, ())) for door in self.doors)
        return accepted - sum(map(len, self.heard.values()))

    def note_accepted(self, to: str, number: int) -> None:
        """Note that the hub has accepted message `number` for the recipient `to`."""
        self.accepted.setdefault(to, []).append(number)

    def note_heard(self, sender: str, body: str) -> None:
        """Note a message that came for the first time, and check its sender and its order."""
        said_by, _, number = body.partition(" ")
        assert said_by == sender, f"{sender} brought {body!r}"
        numbers = self.heard.setdefault(sender, [])
        assert not numbers or int(number) > numbers[-1], f"{self.recipient}: {body} after {numbers[-1]}"
        numbers.append(int(number))

    async def pause(self) -> None:
        """Sleep for a short random time, so that other tasks run."""
        await asyncio.sleep(self.chance.uniform(0, 0.01))


class NativeDoor(Door):
    """Test client of the hub's own protocol.

    An answered claim shows that the acknowledgements before it are durable.
    """

    protocol = "tieline"

    def __init__(self, place: Place, chance: random.Random) -> None:
        super().__init__(place, chance)
        self._keys: set[int] = set()
        self._durable: set[int] = set()

    async def _connected(self, name: str, *, receive: bool = False) -> AsyncIterator[Client]:
        while True:
            with contextlib.suppress(HubError, OSError):
                token = self.place.tokens[name]
                async with await connect(token=token, home=self.place.hub.home, receive=receive) as client:
                    yield client
            await asyncio.sleep(0.02)

    async def talk(self) -> None:
        waiting: list[tuple[str, int]] = []
        async for client in self._connected(self.sender):
            with contextlib.suppress(HubError, OSError):
                while not self.stopping or waiting:
                    waiting += () if self.stopping else self.words()
                    await self._say(client, waiting)
                    await self.pause()
                return

    async def _say(self, client: Client, waiting: list[tuple[str, int]]) -> None:
        sends = [client.send(f"@{to}", f"{self.sender} {n}", wire_id=f"{self.sender}-{n}") for to, n in waiting]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            self.note_accepted(*waiting.pop(0))

    async def listen(self) -> None:
        async for client in self._connected(self.recipient, receive=True):
            acked: set[int] = set()
            with contextlib.suppress(HubError, OSError):
                async for delivery in client:
                    assert delivery.key not in self._durable, f"{delivery.key} was settled for good"
                    if delivery.key not in self._keys:
                        self._keys.add(delivery.key)
                        self.note_heard(delivery.message.sender, delivery.message.body)
                    if self.chance.random() < 0.1:
                        assert await client.claim(delivery.message.id) is not None
                        self._durable |= {*acked, delivery.key}
                    else:
                        client.ack(delivery)
                        acked.add(delivery.key)


class RelayDoor(Door):
    """Test client of Agent Relay: it resumes its session, sends unanswered messages again, and hides duplicates."""

    protocol = "agent-relay"

    def _client(self, name: str) -> AgentRelay:
        path = self.place.hub.home / "agent-relay.sock"
        return AgentRelay(path, name, token=self.place.tokens[name], backoff=STUBBORN)

    async def talk(self) -> None:
        async with self._client(self.sender) as client:
            while not self.stopping:
                await asyncio.gather(*(self._say(client, to, number) for to, number in self.words()))
                await self.pause()

    async def _say(self, client: AgentRelay, to: str, number: int) -> None:
        await client.send(to, f"{self.sender} {number}")
        self.note_accepted(to, number)

    async def listen(self) -> None:
        async with self._client(self.recipient) as client:
            async for delivery in client:
                self.note_heard(delivery.sender, delivery.body)


class PeerbusDoor(Door):
    """Test client of peerbus: the adapter sends unconfirmed messages again, and shows each id once."""

    protocol = "peerbus"

    def _client(self, name: str) -> Adapter:
        return Adapter(self.place.peerbus, name=name, token=self.place.tokens[name], secret=SECRET)

    async def talk(self) -> None:
        async with self._client(self.sender) as peer:
            while not self.stopping:
                said = list(self.words())
                for to, number in said:
                    await peer.send(to, {"text": f"{self.sender} {number}"})
                await peer.confirm()
                for to, number in said:
                    self.note_accepted(to, number)
                await self.pause()

    async def listen(self) -> None:
        async with self._client(self.recipient) as peer:
            async for delivery in peer:
                self.note_heard(delivery.sender, delivery.json()["text"])
                await peer.ack(delivery)


class BackchannelDoor(Door):
    """Test client of backchannel over HTTP: one request for each message.

    After the hub has answered the request that takes a message, the message never comes again.
    """

    protocol = "backchannel"

    def __init__(self, place: Place, chance: random.Random) -> None:
        super().__init__(place, chance)
        self._ids: set[str] = set()
        self._taken: set[str] = set()

    def _client(self, name: str) -> Backchannel:
        return Backchannel(self.place.url, self.place.tokens[name])

    async def talk(self) -> None:
        client = self._client(self.sender)
        while not self.stopping:
            for to, number in self.words():
                form = {"to": f"@{to}", "body": f"{self.sender} {number}"}
                try:
                    await asyncio.to_thread(client.send, form)
                except RelayUnreachable:
                    self.unknown.setdefault(to, set()).add(number)
                    await asyncio.sleep(0.02)
                else:
                    self.note_accepted(to, number)
            await self.pause()

    async def listen(self) -> None:
        client = self._client(self.recipient)
        while True:
            try:
                for message in await asyncio.to_thread(client.inbox, self.recipient):
                    assert message.id not in self._taken, f"{message.id} was taken and is there again"
                    if message.id not in self._ids:
                        self._ids.add(message.id)
                        self.note_heard(message.sender, message.body)
                    if await asyncio.to_thread(client.take, self.recipient, message.id) is not None:
                        self._taken.add(message.id)
            except RelayUnreachable:
                pass
            await asyncio.sleep(0.02)


DOORS: tuple[type[Door], ...] = (NativeDoor, RelayDoor, PeerbusDoor, BackchannelDoor)


@pytest.fixture
def place(folder: Path) -> Iterator[Place]:
    home = folder / "home"
    home.mkdir(mode=0o700)
    listen = f"127.0.0.1:{free_port()}"
    (home / "tieline.toml").write_text(f'[peerbus]\nhmac_secret = "{SECRET}"\nlisten = "{listen}"\n')
    hub = HubProcess(home, http=f"127.0.0.1:{free_port()}")
    yield Place(hub, f"ws://{listen}")
    hub.kill()


async def open_doors(place: Place, chance: random.Random) -> list[Door]:
    """Start the hub, and make a sender and a recipient for each protocol. Return these pairs."""
    await place.hub.start()
    doors = [door(place, random.Random(chance.random())) for door in DOORS]
    async with await connect(home=place.hub.home) as operator:
        for door in doors:
            for name in (door.sender, door.recipient):
                place.tokens[name] = (await operator.add_member(name)).token
            door.doors = doors
    return doors


def counts(doors: list[Door]) -> dict[str, int]:
    """Return the number of messages that the hub accepted from each sender, by protocol."""
    return {door.protocol: sum(map(len, door.accepted.values())) for door in doors}


def accepted_since(doors: list[Door], before: dict[str, int]) -> bool:
    """Return true if the hub accepted at least two more messages from every sender than in `before`."""
    return all(count >= before[protocol] + 2 for protocol, count in counts(doors).items())


def missing(recipient: Door, doors: list[Door]) -> dict[str, list[int]]:
    """Return the accepted messages that a recipient did not get, by sender. Fail if it got one that was never sent."""
    found = {}
    for door in doors:
        accepted = set(door.accepted.get(recipient.recipient, ()))
        heard = set(recipient.heard.get(door.sender, ()))
        extra = heard - accepted - door.unknown.get(recipient.recipient, set())
        assert not extra, f"{recipient.recipient} heard {extra} of {door.sender}, which were never said"
        if accepted - heard:
            found[door.sender] = sorted(accepted - heard)
    return found


async def backlog(place: Place, door: Door) -> int:
    """Return the number of unsettled deliveries for the recipient of a protocol."""
    async with await connect(token=place.tokens[door.recipient], home=place.hub.home) as client:
        return len((await client.inbox(limit=1000)).items)


async def is_empty(place: Place, doors: list[Door]) -> bool:
    return not any([await backlog(place, door) for door in doors])


async def conclude(
    place: Place,
    doors: list[Door],
    listening: list[asyncio.Task[None]],
    talking: list[asyncio.Task[None]],
    kills: int,
) -> None:
    """Let all senders stop, and check that every recipient got each message once. Stop the hub, and check its log."""
    for door in doors:
        door.stopping = True
    async with asyncio.timeout(120):
        await asyncio.gather(*talking)
    for door in doors:
        try:
            await until(lambda: not missing(door, doors), seconds=120)  # noqa: B023
        except AssertionError as error:
            lines = [f"{await backlog(place, one)} wait for {one.recipient}; {missing(one, doors)}" for one in doors]
            raise AssertionError("not heard: " + "\n".join(lines)) from error
    async with asyncio.timeout(60):
        while not await is_empty(place, doors):
            pass
    for task in listening:
        assert not task.done(), task.exception()
        task.cancel()
    await asyncio.gather(*listening, return_exceptions=True)
    assert await place.hub.stop() == 0
    report = audit(place.hub.home)
    assert report.intact, report.findings
    heard = sum(len(numbers) for door in doors for numbers in door.heard.values())
    sys.stdout.write(f"{kills} kills; accepted by {counts(doors)}; {heard} heard, 0 lost, 0 settled ones again\n")
    assert report.messages == heard, "each message that was kept was heard once"


async def test_a_hub_killed_again_and_again_loses_and_repeats_nothing_at_four_doors(place: Place) -> None:
    chance = random.Random(seed_of_the_day())
    doors = await open_doors(place, chance)
    listening = [asyncio.create_task(door.listen()) for door in doors]
    talking = [asyncio.create_task(door.talk()) for door in doors]
    rows, before = 0, counts(doors)
    for number in range(ROUNDS):
        # A kill means something only if every door is busy, and a busy machine takes its time to get there.
        await until(partial(accepted_since, doors, before), seconds=60)
        await asyncio.sleep(chance.uniform(0.05, 0.5))
        place.hub.kill()
        before = counts(doors)
        report = audit(place.hub.home)
        assert report.intact, f"after kill {number}: {report.findings}"
        assert report.rows >= rows, "the log never gets shorter"
        rows = report.rows
        await place.hub.start()
        for task in (*listening, *talking):
            assert not task.done(), task.exception()
    await conclude(place, doors, listening, talking, ROUNDS)
