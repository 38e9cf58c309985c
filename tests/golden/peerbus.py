"""Golden tests of peerbus: one over each kind of connection, all refused registrations, and the log in its format."""

import asyncio
import contextlib
import hmac
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.cli.hub_process import run_cli
from tests.golden.native_client import EVERYTHING, FULL, Native, Sockets
from tests.golden.recorder import Recorder
from tests.golden.stage import Stage, stage
from tests.protocols.peerbus.peers import (
    CARRIERS,
    CONFIG,
    OTHER_TOKEN,
    SECRET,
    TOKEN,
    WEBSOCKETS,
    Bus,
    Closed,
    Frame,
    Peer,
    envelope,
    register,
)
from tests.server.hubs import ALONE
from tieline.protocols.peerbus import codec


class Client:
    """Test client: a peer whose frames are recorded in the transcript."""

    def __init__(self, there: Stage, name: str, peer: Peer) -> None:
        self._stage = there
        self._peer = peer
        self.name = name

    async def say(self, *frames: bytes) -> None:
        """Write frames, each after a step of the clock."""
        for frame in frames:
            await self._stage.turn()
            self._stage.recorder.said(self.name, frame)
            await self._peer.raw(frame)

    async def hear(self) -> Frame:
        """Wait for the next frame, and check its signature if the hub made it. Return the frame."""
        raw = await self._peer.receive_raw()
        found: Frame = json.loads(raw)
        if found.get("envelope", {}).get("source") == "tieline":
            self._check(raw, found["envelope"]["hmac"])
        self._stage.recorder.heard(self.name, raw)
        return found

    def _check(self, raw: bytes, signature: str) -> None:
        """Check the hub's signature: it covers all of the envelope but the signature, which is the last field."""
        signed = (raw.partition(b',"envelope":')[2].partition(b',"hmac":')[0] + b"}").decode()
        for character in "<>&\u2028\u2029":
            signed = signed.replace(character, f"\\u{ord(character):04x}")
        assert hmac.new(SECRET.encode(), signed.encode(), "sha256").hexdigest() == signature
        self._stage.recorder.know(signature, "signature of the hub")

    async def send(self, to: str, body: Any = None, **fields: str) -> None:
        """Write a signed envelope (message of peerbus) to a peer."""
        await self.say(envelope(self.name, to, body, **fields))

    async def peers(self) -> None:
        """Ask for the list of peers. The answer must be the next frame, so this also checks that nothing else came."""
        await self.say(codec.encode_peers())
        assert (await self.hear())["type"] == "peers"

    async def ack(self, delivery: Frame) -> None:
        """Acknowledge a delivery."""
        await self.say(codec.encode_ack(delivery["delivery_key"]))

    async def ended(self, *, reason: bool = False) -> None:
        """Wait until the hub closes the connection.

        Fail if a frame comes before. With `reason`, record code and reason.
        """
        try:
            frame = await self._peer.receive_raw()
        except Closed as end:
            said = f"closes: {end.code} {end.reason}" if reason else "hangs up"
            self._stage.recorder.heard(self.name, f"({said})")
            return
        raise AssertionError(frame)

    async def leave(self) -> None:
        """Close the connection, and wait until the hub has noticed it."""
        await self._stage.turn()
        self._stage.recorder.said(self.name, "(hangs up)")
        await self._peer.close()
        operator = await self._stage.there.operator()
        async with asyncio.timeout(10):
            while any(one.name == self.name and one.sessions for one in await operator.members()):
                pass


class Door:
    """Test helper: makes peers that connect over one carrier (kind of connection) of a hub."""

    def __init__(self, there: Stage, bus: Bus) -> None:
        self.stage = there
        self._bus = bus

    async def dial(self, name: str) -> Client:
        """Open a connection and send nothing."""
        peer = await self._bus.dial()
        self.stage.closing.push_async_callback(peer.close)
        return Client(self.stage, name, peer)

    async def join(self, name: str, token: str = TOKEN) -> Client:
        """Open a connection and register the peer."""
        client = await self.dial(name)
        await client.say(register(name, token))
        await client.hear()
        return client


@contextlib.asynccontextmanager
async def bus(folder: Path, recorder: Recorder, carrier: str) -> AsyncIterator[Door]:
    """Start a hub with all kinds of peerbus connections. Yield a maker of peers for one of them, `carrier`."""
    there_is = {"peerbus": True, "peerbus_listen": "127.0.0.1:0"}
    async with stage(folder, recorder, CONFIG, **ALONE | there_is) as there:
        made = Bus(there.there.home, there.there.hub, there.there.running)
        made.peers, made.door = [], carrier
        yield Door(there, made)


async def play(folder: Path, recorder: Recorder, carrier: str = CARRIERS[0]) -> None:
    """Play and record the conversation that is the same over every carrier (kind of connection)."""
    async with bus(folder, recorder, carrier) as door:
        await door.stage.there.add("ada", permissions=tuple(EVERYTHING))
        ada = await Sockets(door.stage).join("ada", door.stage.there.tokens["ada"], receive=True)
        recorder.section("registration")
        ann, ben = await door.join("ann"), await door.join("ben", OTHER_TOKEN)
        await ann.peers()
        recorder.section("direct messages")
        await _direct(ann, ben)
        recorder.section("broadcasts")
        await ann.send("*", "to all", id="all-1")
        await ben.ack(await ben.hear())
        await ada.hear()
        await ann.peers()
        recorder.section("what is dropped")
        await _dropped(ann, ben)
        recorder.section("other protocols")
        await _elsewhere(ann, ben, ada)
        recorder.section("a newer connection, and one that comes back")
        newer = await door.join("ben", OTHER_TOKEN)
        await ben.ended()
        await ann.send("ben", "not acknowledged", id="again-1")
        await newer.hear()
        await newer.leave()
        await ann.send("ben", "while away", id="again-2")
        await ann.peers()
        back = await door.join("ben", OTHER_TOKEN)
        for _ in range(2):
            await back.ack(await back.hear())
        await back.peers()
        recorder.section("the end of the hub")
        await door.stage.there.hub.stop()
        for client in (ann, back):
            await client.ended()


async def _direct(ann: Client, ben: Client) -> None:
    await ann.send("ben", "hello <ben> & all", id="one")
    delivery = await ben.hear()
    await ben.ack(delivery)
    await ben.ack(delivery)
    await ann.send("ben", "hello <ben> & all", id="one")
    body = '{"text":"own  spaces" , "n":1.0, "title":"T","priority":"urgent","own":{"k":null}}'
    await ann.send("ben", raw=body, id="two")
    await ben.ack(await ben.hear())
    more = envelope("ann", "ben", "more keys than any adapter writes", id="three")[:-1] + b', "unknown" : [1]}'
    await ann.say(more)
    await ben.ack(await ben.hear())
    await ann.send("ben", raw='"only a text"', id="four")
    await ben.ack(await ben.hear())
    await ben.peers()


async def _dropped(ann: Client, ben: Client) -> None:
    await ann.send("nobody", "x", id="lost-1")
    await ann.say(b'{"protocol_version":"v1","from":"ann","to":"ben","kind":"msg","body":"without an id"}')
    await ann.send("ben", "another text", id="one")
    await ann.send("*", "x", id="lost-2", kind="msg")
    await ann.say(b"no JSON", b"[]", b"{}", b'{"type":"ack"}', register("ann"), codec.encode_ack("unknown"))
    await ann.peers()
    await ben.peers()


async def _elsewhere(ann: Client, ben: Client, ada: Native) -> None:
    await ann.send("ada", raw='{"text":"to ada","level":"warning","thread":"t-1","refs":["r"],"k":1}', id="out-1")
    message = (await ada.hear())["message"]["id"]
    await ann.send("ada", "signed with another secret", id="out-2", secret="x" * 32)
    await ann.say(envelope("ben", "ada", "under another name", id="out-3"))
    await ann.send("ben", "signed with another secret", id="out-4", secret="x" * 32)
    await ben.ack(await ben.hear())
    await ann.peers()
    await ada.ask("read_history", everything=True, limit=3)
    await ada.send("@ben", "plain")
    await ben.ack(await ben.hear())
    await ada.send("@ann", "all of it", **FULL, reply_to=message)
    delivery = await ann.hear()
    await ann.ack(delivery)
    await ann.peers()
    await ada.ask("read_receipts", id=delivery["envelope"]["id"])
    await ada.send("#general", "to everybody's channel")
    await ann.ack(await ann.hear())
    await ben.ack(await ben.hear())
    await ada.send("*", "to everybody")
    await ann.ack(await ann.hear())
    await ben.ack(await ben.hear())


async def play_doors(folder: Path, recorder: Recorder) -> None:
    """Try each refused registration over each WebSocket.

    Also export the log in the format of the first peerbus broker.
    """
    for number, carrier in enumerate(WEBSOCKETS):
        async with bus(folder / str(number), recorder, carrier) as door:
            recorder.section(carrier)
            await door.join("ann")
            for frame in (
                b"no JSON",
                codec.encode_peers(),
                b'{"type":"register","protocol_version":"v2","name":"x","token":"x"}',
                register(""),
                register("x", "wrong"),
                register("not a name"),
                register("ann", OTHER_TOKEN),
                register("Ann"),
            ):
                stranger = await door.dial("stranger")
                await stranger.say(frame)
                await stranger.ended(reason=True)
    async with bus(folder / "export", recorder, CARRIERS[0]) as door:
        recorder.section("the log in the format of the first broker")
        ann, ben = await door.join("ann"), await door.join("ben")
        await ann.send("ben", "direct", id="one")
        await ben.ack(await ben.hear())
        await ann.send("*", "to all", id="all")
        await ben.hear()
        await door.stage.turn()
        await _export(door.stage, folder / "export.db")


async def _export(there: Stage, path: Path) -> None:
    done = await asyncio.to_thread(run_cli, there.there.home, "audit", "export", "--format", "peerbus", str(path))
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table in ("peers", "messages", "sender_seq", "audit"):
            found = database.execute(f"SELECT * FROM {table} ORDER BY rowid")
            columns = ", ".join(column[0] for column in found.description)
            there.recorder.heard(table, columns, *(_row(row) for row in found))


def _row(row: tuple[Any, ...]) -> str:
    return " | ".join(value.decode() if isinstance(value, bytes) else str(value) for value in row)
