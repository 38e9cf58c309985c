"""Tests of peerbus with faults: hubs killed with kill -9 at any moment, and a thousand peers at once.

Senders send numbered messages through the adapter. The adapter sends unconfirmed messages again. Recipients acknowledge
the messages that the adapter gives them. Every confirmed message must reach its recipients, each once, in the order of
its sender.
"""

import asyncio
import base64
import contextlib
import json
import random
import resource
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_kill import audit
from tests.server.hubs import until
from tieline.client import connect as connect_native
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.client import Adapter
from tieline.stores.sqlite.inspection import open_inspection

ROUNDS = 50 if SOAK else 10
PEERS = 1000
IDLE_BYTES_MAX = 24 * 1024
TOKEN = "token-one-of-the-tests"
SECRET = "k" * 32

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 180)]


class Sender:
    """Test sender: sends numbered messages to two recipients in turn.

    One of the senders also sends some to everybody.
    """

    def __init__(self, peer: Adapter, chance: random.Random, *, broadcasts: bool) -> None:
        self.peer = peer
        self._chance = chance
        # Only one does: several who answer each other's broadcasts at once look like a storm.
        self._targets = ["r0", "r1", "*"] if broadcasts else ["r0", "r1"]
        self._next = 0
        # Targets by number, of what is said and of what is confirmed.
        self._said: dict[int, str] = {}
        self.confirmed: dict[int, str] = {}
        self.stopping = False

    async def talk(self) -> None:
        """Send messages until `stopping` is set. Then wait until the hub has confirmed all of them."""
        while not self.stopping:
            for _ in range(self._chance.randint(1, 30)):
                await self._say()
            said = dict(self._said)
            await self.peer.confirm()
            self.confirmed |= said
            await asyncio.sleep(self._chance.uniform(0, 0.01))
        await self.peer.confirm()
        self.confirmed |= self._said

    async def _say(self) -> None:
        number, target = self._next, self._chance.choice(self._targets)
        self._next += 1
        self._said[number] = target
        body = {"n": number}
        await (self.peer.broadcast(body) if target == "*" else self.peer.send(target, body))


class Recipient:
    """Test recipient: checks the order of its messages and acknowledges them, some of them only after a pause."""

    def __init__(self, peer: Adapter, chance: random.Random) -> None:
        self.peer = peer
        self._chance = chance
        # Numbers by sender, in the order in which the host heard them.
        self.heard: dict[str, list[int]] = {}
        self._ids: set[str] = set()

    def has_heard(self, expected: dict[str, list[int]]) -> bool:
        """Return true if the peer got exactly these numbers of each sender, in this order."""
        return self.heard == expected

    async def listen(self) -> None:
        """Receive and acknowledge messages until the adapter is closed."""
        async for delivery in self.peer:
            assert delivery.envelope.id not in self._ids, "the host sees each id once"
            self._ids.add(delivery.envelope.id)
            numbers = self.heard.setdefault(delivery.sender, [])
            number = delivery.json()["n"]
            assert not numbers or number > numbers[-1], f"{number} after {numbers[-1]} of {delivery.sender}"
            numbers.append(number)
            if self._chance.random() < 0.02:
                await asyncio.sleep(self._chance.uniform(0, 0.05))
            await self.peer.ack(delivery)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    home = folder / "home"
    home.mkdir(mode=0o700)
    listen = f"127.0.0.1:{free_port()}"
    config = f'[peerbus]\ntokens = ["{TOKEN}"]\nhmac_secret = "{SECRET}"\nlisten = "{listen}"\n'
    (home / "tieline.toml").write_text(config)
    process = HubProcess(home)
    yield process
    process.kill()


async def test_a_hub_that_is_killed_again_and_again_under_load_keeps_every_promise_to_peers(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    running = await hub.start()
    assert running.places["peerbus"] is not None
    url = running.places["peerbus"]
    tokens: dict[str, str] = {}
    async with await connect_native(home=hub.home) as operator:
        for name in ("r0", "r1"):
            tokens[name] = (await operator.add_member(name)).token
    async with contextlib.AsyncExitStack() as stack:

        async def peer(name: str, token: str) -> Adapter:
            return await stack.enter_async_context(Adapter(url, name=name, token=token, secret=SECRET))

        recipients = [Recipient(await peer(name, tokens[name]), random.Random(chance.random())) for name in tokens]
        senders = [
            Sender(await peer(f"s{n}", TOKEN), random.Random(chance.random()), broadcasts=n == 0) for n in range(3)
        ]
        listening = [asyncio.create_task(one.listen()) for one in recipients]
        talking = [asyncio.create_task(one.talk()) for one in senders]
        rows = 0
        for number in range(ROUNDS):
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            hub.kill()
            report = audit(hub.home)
            assert report.intact, f"after kill {number}: {report.findings}"
            assert report.rows >= rows, "the log never gets shorter"
            rows = report.rows
            await hub.start()
            for task in (*listening, *talking):
                assert not task.done(), task.exception()
        for sender in senders:
            sender.stopping = True
        await asyncio.gather(*talking)
        for recipient in recipients:
            expected = {
                sender.peer.name: [n for n, target in sender.confirmed.items() if target in (recipient.peer.name, "*")]
                for sender in senders
            }
            await until(partial(recipient.has_heard, expected), seconds=60)
        for task in listening:
            assert not task.done(), task.exception()
    assert await hub.stop() == 0
    report = audit(hub.home)
    assert report.intact, report.findings
    total = sum(len(sender.confirmed) for sender in senders)
    assert report.messages == total, "each id is one message"
    assert total > 10 * ROUNDS, "there was no load to speak of"


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def register(url: str, name: str) -> ClientConnection:
    websocket = await connect(url, compression=None, proxy=None, ping_interval=None)
    await websocket.send(codec.encode_register(name, TOKEN), text=True)
    await websocket.recv()
    return websocket


async def several(url: str, name: str, count: int) -> list[ClientConnection]:
    """Register `count` peers named `name-0`, `name-1`, …, 50 at a time, so that the hub commits them together."""
    peers: list[ClientConnection] = []
    for first in range(0, count, 50):
        numbers = range(first, min(first + 50, count))
        peers += await asyncio.gather(*(register(url, f"{name}-{number}") for number in numbers))
    return peers


async def hang_up(peers: list[ClientConnection]) -> None:
    await asyncio.gather(*(websocket.close() for websocket in peers))


async def test_a_thousand_peers_each_get_and_acknowledge_their_own_copy(hub: HubProcess) -> None:
    running = await hub.start()
    assert running.places["peerbus"] is not None
    url = running.places["peerbus"]
    async with contextlib.AsyncExitStack() as stack:
        speaker = await stack.enter_async_context(Adapter(url, name="speaker", token=TOKEN, secret=SECRET))
        # The first few make room for what is there once for all.
        early = await several(url, "early", 50)
        await hang_up(early)
        before = resident_bytes(running.pid)
        peers = await several(url, "peer", PEERS)
        stack.push_async_callback(hang_up, peers)
        each = (resident_bytes(running.pid) - before) / PEERS
        sys.stdout.write(f"{each / 1024:.1f} KiB resident for each of {PEERS} idle peers\n")
        assert each <= IDLE_BYTES_MAX
        ident = await speaker.broadcast("to a thousand")
        await speaker.confirm()

        async def consume(number: int, websocket: ClientConnection) -> None:
            async with asyncio.timeout(60):
                frame = await websocket.recv(decode=False)
            push = codec.decode_push(frame)
            assert isinstance(push, codec.Deliver)
            assert push.key == f"{ident}|peer-{number}"
            assert push.envelope.verify(SECRET.encode())
            # Every other one keeps it for later.
            if number % 2:
                await websocket.send(codec.encode_ack(push.key), text=True)
                await websocket.send(codec.encode_peers(), text=True)
                while codec.decode_push(await websocket.recv(decode=False)) is None:
                    pass

        await asyncio.gather(*(consume(number, websocket) for number, websocket in enumerate(peers)))
        async with await connect_native(home=hub.home) as operator:
            (message,) = await operator.history()
            receipts = await operator.receipts(message.id)
        states = {receipt.member: receipt.state for receipt in receipts}
        assert states == {f"peer-{n}": "acked" if n % 2 else "offered" for n in range(PEERS)}
    assert await hub.stop() == 0
    assert audit(hub.home).intact


# Tampering


async def test_one_flipped_byte_of_a_stored_message_is_detected_by_its_recipient_and_by_the_audit(
    hub: HubProcess,
) -> None:
    running = await hub.start()
    assert running.places["peerbus"] is not None
    async with Adapter(running.places["peerbus"], name="bob", token=TOKEN, secret=SECRET):
        pass
    async with Adapter(running.places["peerbus"], name="alice", token=TOKEN, secret=SECRET) as alice:
        for number in range(20):
            await alice.send("bob", {"n": number})
        await alice.confirm()
    assert await hub.stop() == 0
    chance = random.Random(seed_of_the_day())
    offsets = spoil_originals(hub.home, chance)
    report = audit(hub.home)
    assert [finding.offset for finding in report.findings] == offsets, "the audit names each row"
    running = await hub.start()
    assert running.places["peerbus"] is not None
    async with Adapter(running.places["peerbus"], name="bob", token=TOKEN, secret=SECRET) as bob:
        await until(lambda: bob.tally.forged + bob.tally.malformed >= len(offsets))
        assert bob._inbound.empty(), "nothing that was tampered with is surfaced"


def spoil_originals(home: Path, chance: random.Random) -> list[int]:
    """Change a byte of a signed field in every stored message. Return the offsets of the messages in the log."""
    with apsw.Connection(str(home / "tieline.db")) as database:
        rows: list[tuple[int, bytes]] = list(database.execute("SELECT offset, content FROM message ORDER BY offset"))
        for offset, content in rows:
            said = json.loads(bytes(content))
            made = bytearray(base64.b64decode(said["original"]))
            place = chance.choice([index for index, byte in enumerate(made) if chr(byte).isalnum()])
            made[place] ^= 0x01
            said["original"] = base64.b64encode(made).decode()
            database.execute("UPDATE message SET content = ? WHERE offset = ?", (json.dumps(said).encode(), offset))
    return [offset for offset, _ in rows]


def write_event(home: Path, offset: int, event: bytes) -> None:
    with apsw.Connection(str(home / "tieline.db")) as database:
        database.execute("UPDATE log SET event = ? WHERE offset = ?", (event, offset))


async def test_one_flipped_byte_anywhere_in_the_chain_is_named_by_its_row(hub: HubProcess) -> None:
    running = await hub.start()
    assert running.places["peerbus"] is not None
    async with Adapter(running.places["peerbus"], name="alice", token=TOKEN, secret=SECRET) as alice:
        for number in range(5):
            await alice.send("alice", number)
        await alice.confirm()
    assert await hub.stop() == 0
    chance = random.Random(seed_of_the_day())
    inspection = open_inspection(hub.home)
    rows = list(inspection.rows())
    inspection.close()
    for row in rows:
        changed = bytearray(row.event)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(7)
        write_event(hub.home, row.offset, bytes(changed))
        assert audit(hub.home).findings[0].offset == row.offset
        write_event(hub.home, row.offset, row.event)
    assert audit(hub.home).intact
