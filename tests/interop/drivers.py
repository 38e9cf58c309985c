"""Drivers: one small test client for each protocol, so that a test can use any protocol for sender and recipient.

Each driver uses its protocol like a foreign client. `connect` opens a session of a member by its token. `send` sends a
message to `@member`, `#channel` or `*` in the form of the protocol. `hear` waits for the next message, and acknowledges
it if the protocol can. `leave` closes the connection, and waits until the hub has noticed it. A protocol without a
driver here is used through the puppet that its folder declares (`PuppetDriver`).
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from msgspec import Struct
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial

from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub, until
from tieline.client import Client
from tieline.contract.channel import Admit
from tieline.contract.text import neutral
from tieline.protocols import named
from tieline.protocols.agent_channels.codec import FrameDecoder, Message, encode
from tieline.protocols.mcp.client import McpClient, ToolFailed
from tieline.protocols.mcp.framing import shortened, unescape
from tieline.protocols.peerbus import codec as peerbus
from tieline.server.config import load_config
from tieline.wire.puppet import Place

SECRET = "k" * 32
CONFIG = f'[peerbus]\nhmac_secret = "{SECRET}"\n'
_STREAM_BYTES = 64 * 1024 * 1024
"""Buffer limit of a line reader, larger than any message of a test."""

_NOON = "2026-05-18T12:00:00Z"

Json = dict[str, Any]
_numbers = itertools.count(1)


class Heard(Struct, frozen=True):
    """Record: one message as its recipient got it."""

    sender: str
    body: str
    raw: Json
    """The whole message, decoded, with the fields of the protocol."""


class Refused(Exception):
    """Error: the hub refused a request, in the form of the protocol."""


class Driver:
    """Base class of the test clients: a member that uses one protocol."""

    protocol: str
    acknowledges: ClassVar[bool] = True

    def __init__(self, there: HubHarness, name: str) -> None:
        self.there = there
        self.name = name
        self.token = there.tokens[name]

    async def connect(self) -> None:
        """Open a session, which then gets the waiting messages."""
        raise NotImplementedError

    async def send(self, target: str, body: str, **fields: Any) -> None:
        """Send a message. `fields` are the other fields of the protocol, beside the body."""
        raise NotImplementedError

    async def hear(self) -> Heard:
        """Wait for the next message, and acknowledge it if the protocol can. Return the message."""
        raise NotImplementedError

    async def hang_up(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    async def join(self, channel: str) -> None:
        """Make this member enter a channel.

        An admin of the channel admits it, unless the protocol can join by itself.
        """
        host = await self.there.join("host")
        await host.change_channel(channel, Admit(self.name))

    def known_as(self, target: str) -> str:
        """Return the sender name that others see on messages of this member to a target. It may contain `*`."""
        del target
        return self.name

    def shown(self, body: str) -> str:
        """Return a body as this member gets it: unchanged, unless its protocol puts tags around messages for models."""
        return body

    async def leave(self) -> None:
        """Close the connection, and wait until the hub has noticed it. Sessions of single HTTP requests stay open."""
        operator = await self.there.operator()
        before = await self._sessions(operator)
        await self.hang_up()
        async with asyncio.timeout(WAIT_SECONDS):
            while await self._sessions(operator) >= before:
                pass

    async def _sessions(self, operator: Client) -> int:
        return sum(len(one.sessions) for one in await operator.members() if one.name == self.name)

    async def hear_several(self, count: int) -> list[Heard]:
        """Wait for `count` messages. Return them."""
        return [await self.hear() for _ in range(count)]


class ChannelsDriver(Driver):
    """Test client of agent-channels: it listens at its own inbox, and writes to the socket of the recipient."""

    protocol = "agent-channels"
    acknowledges = False
    place: str | None = None
    """Name of the socket that this client listens at, if that is not its inbox."""

    async def connect(self) -> None:
        reader, self._writer = await self._open(self.place or f"inbox-{self.name}")
        self._reader, self._decoder = reader, FrameDecoder()
        self._waiting: list[Message] = []

    async def _open(self, place: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder = self.there.running.places["channels_dir"]
        assert folder is not None
        path = Path(folder, f"{place}.sock")
        await until(path.exists)
        return await asyncio.open_unix_connection(path)

    async def send(self, target: str, body: str, **fields: Any) -> None:
        _, writer = await self._open(_place(target))
        writer.write(encode({"msg": body, **fields}))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def hear(self) -> Heard:
        async with asyncio.timeout(WAIT_SECONDS):
            while not self._waiting:
                chunk = await self._reader.read(1 << 20)
                assert chunk, "the hub hung up"
                self._waiting += self._decoder.push(chunk)
        raw = self._waiting.pop(0).to_dict()
        return Heard(raw.get("data", {}).get("from", ""), raw["msg"], raw)

    async def hang_up(self) -> None:
        self._writer.close()

    def known_as(self, target: str) -> str:
        # The wire has no names: the hub says which socket the words came through.
        return f"client-*@{_place(target)}"


def _place(target: str) -> str:
    return "general" if target == "*" else f"inbox-{target[1:]}" if target.startswith("@") else target[1:]


class RelayDriver(Driver):
    """Test client of Agent Relay: frames with a length before them, and an ACK for each DELIVER."""

    protocol = "agent-relay"

    async def connect(self) -> None:
        path = self.there.running.places["relay_socket"]
        assert path is not None
        self._reader, self._writer = await asyncio.open_unix_connection(path)
        capabilities = {"ack": True, "resume": True, "max_inflight": 256}
        await self._write("HELLO", {"agent": self.name, "token": self.token, "capabilities": capabilities})
        await self._read("WELCOME")

    async def send(self, target: str, body: str, **fields: Any) -> None:
        place: Json = {"to": "*", "topic": target[1:]} if target.startswith("#") else {"to": target.removeprefix("@")}
        # Fields beside the payload: a topic, `payload_meta`, or a false claim.
        place |= fields.pop("envelope", {})
        await self._write("SEND", {"kind": "message", "body": body, **fields}, **place)

    async def hear(self) -> Heard:
        raw = await self._read("DELIVER")
        await self._write("ACK", {"ack_id": raw["id"], "seq": raw["delivery"]["seq"]})
        return Heard(raw["from"], raw["payload"]["body"], raw)

    async def answer(self) -> Json:
        """Wait for the ACK of a synchronous SEND. Skip other frames before it. Return the ACK."""
        return await self._read("ACK")

    async def hang_up(self) -> None:
        self._writer.close()

    async def join(self, channel: str) -> None:
        await self._write("SUBSCRIBE", {}, topic=channel)
        # Frames of one connection are handled in order, so an answer says that the first was too.
        await self._write("STATUS", {})
        await self._read("STATUS_RESPONSE")

    async def _write(self, kind: str, payload: Json, **fields: Any) -> None:
        frame = {"v": 1, "type": kind, "id": f"i-{next(_numbers)}", "ts": 1, "payload": payload, **fields}
        data = json.dumps(frame).encode()
        self._writer.write(len(data).to_bytes(4, "big") + data)
        await self._writer.drain()

    async def _read(self, *kinds: str) -> Json:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                frame: Json = json.loads(await self._reader.readexactly(size))
                if frame["type"] in kinds:
                    return frame
                if frame["type"] == "PING":
                    await self._write("PONG", frame["payload"])
                elif frame["type"] in ("ERROR", "NACK"):
                    raise Refused(frame["payload"]["message"])


class _HttpDriver(Driver):
    """Base class of the test clients over HTTP: requests with the member's token, and streams of events."""

    async def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        """Make a request. Return the decoded answer. Raises `Refused`."""
        status, value = await asyncio.to_thread(self._ask, method, path, body)
        if status >= 400:
            raise Refused(value["error"])
        return value

    def _ask(self, method: str, path: str, body: Json | None) -> tuple[int, Any]:
        connection = HTTPConnection(urlsplit(self.there.running.http).netloc, timeout=WAIT_SECONDS)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()

    async def _subscribe(self, path: str) -> None:
        address = urlsplit(self.there.running.http)
        self._reader, self._writer = await asyncio.open_connection(address.hostname, address.port, limit=_STREAM_BYTES)
        head = f"GET {path} HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {self.token}\r\n\r\n"
        self._writer.write(head.encode())
        status = await self._reader.readline()
        assert b" 200 " in status, status

    async def _event(self) -> Json:
        """Wait for the next event of the stream. Return its data, decoded."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                line = await self._reader.readline()
                assert line, "the hub hung up"
                if line.startswith(b"data: "):
                    event: Json = json.loads(line.removeprefix(b"data: "))
                    return event

    async def hang_up(self) -> None:
        self._writer.close()


class BackchannelDriver(_HttpDriver):
    """Test client of backchannel: it sends by a request, gets messages on a stream of events, and claims them."""

    protocol = "backchannel"

    async def connect(self) -> None:
        await self._subscribe(f"/v1/events/{self.name}")

    async def send(self, target: str, body: str, **fields: Any) -> None:
        await self.ask("POST", "/v1/send", {"to": "#general" if target == "*" else target, "body": body, **fields})

    async def hear(self) -> Heard:
        raw = await self._event()
        taken = await self.ask("POST", "/v1/take", {"id": raw["id"]})
        assert taken["message"] == raw
        return Heard(raw["from"], raw["body"], raw)

    async def join(self, channel: str) -> None:
        await self.ask("POST", "/v1/subscribe", {"channel": f"#{channel}"})


class PeerbusDriver(Driver):
    """Test client of peerbus: signed envelopes over a WebSocket, and an ack for each delivery. It has no channels."""

    protocol = "peerbus"

    async def connect(self) -> None:
        url = self.there.running.http.replace("http", "ws", 1) + "/peerbus"
        self._socket: ClientConnection = await dial(url, compression=None, proxy=None, max_size=None)
        await self._socket.send(peerbus.encode_register(self.name, self.token), text=True)
        assert json.loads(await self._socket.recv())["type"] == "peers"

    async def send(self, target: str, body: str, **fields: Any) -> None:
        to = target.removeprefix("@")
        kind = "broadcast" if to == "*" else "msg"
        head = ("v1", f"{next(_numbers):032x}", fields.pop("claimed", self.name), to, _NOON, "peer-bus", kind)
        text = json.dumps({"text": body, **fields}, separators=(",", ":")).encode()
        await self._socket.send(peerbus.encode_envelope(head, text, SECRET.encode()), text=True)

    async def hear(self) -> Heard:
        async with asyncio.timeout(WAIT_SECONDS):
            raw: Json = json.loads(await self._socket.recv())
        assert raw["type"] == "deliver", raw
        push = peerbus.decode_push(json.dumps(raw).encode())
        assert isinstance(push, peerbus.Deliver)
        await self._socket.send(peerbus.encode_ack(push.key), text=True)
        envelope = raw["envelope"]
        return Heard(envelope["from"], envelope["body"]["text"], envelope)

    async def hang_up(self) -> None:
        await self._socket.close()


class Ac7Driver(_HttpDriver):
    """Test client of ac7: it sends by a request and receives by a stream. It reads missed messages in the history."""

    protocol = "ac7"
    acknowledges = False

    def __init__(self, there: HubHarness, name: str) -> None:
        super().__init__(there, name)
        self._seen: set[str] = set()
        self._missed: list[Json] = []

    async def connect(self) -> None:
        await self._subscribe(f"/subscribe?name={self.name}")
        past = (await self.ask("GET", "/history"))["messages"]
        self._missed = [one for one in past[::-1] if self._is_news(one)]

    async def send(self, target: str, body: str, **fields: Any) -> None:
        payload: Json = {"body": body, **fields}
        if target.startswith("@"):
            payload["to"] = target[1:]
        elif target.startswith("#"):
            channel = (await self.ask("GET", f"/channels/{target[1:]}"))["channel"]
            payload["data"] = {**payload.get("data", {}), "thread": f"chan:{channel['id']}"}
        await self.ask("POST", "/push", payload)

    async def hear(self) -> Heard:
        raw = self._missed.pop(0) if self._missed else await self._event()
        while not self._is_news(raw):
            raw = await self._event()
        self._seen.add(raw["id"])
        return Heard(raw["from"], raw["body"], raw)

    def _is_news(self, raw: Json) -> bool:
        return raw["from"] not in ("ac7", self.name) and raw["id"] not in self._seen

    async def join(self, channel: str) -> None:
        await self.ask("POST", f"/channels/{channel}/members")


class McpDriver(Driver):
    """Test client of MCP over HTTP: it sends by a tool, gets pushes on its stream, and claims messages by a tool."""

    protocol = "mcp"

    async def connect(self) -> None:
        self._client = McpClient(self.there.running.http, self.token)
        await self._client.open()
        await self._client.listen()
        self._pushed = self._client.messages()

    async def send(self, target: str, body: str, **fields: Any) -> None:
        try:
            await self._client.call("send", to=target, body=body, **fields)
        except ToolFailed as error:
            raise Refused(str(error)) from error

    async def hear(self) -> Heard:
        async with asyncio.timeout(WAIT_SECONDS):
            params = await anext(self._pushed)
        assert f'msg_id="{params["meta"]["msg_id"]}"' in await self._client.call("drain", limit=1)
        return Heard(params["meta"]["from"], unescape(params["content"]), params)

    async def hang_up(self) -> None:
        await self._client.close()

    def shown(self, body: str) -> str:
        return neutral(shortened(body))


class PuppetDriver(Driver):
    """Test client of any protocol: the puppet (scripted client) that the protocol declares. It sends only bodies."""

    def __init__(self, there: HubHarness, name: str, protocol: str) -> None:
        super().__init__(there, name)
        self.protocol = protocol

    async def connect(self) -> None:
        settings = load_config(self.there.home).protocols[self.protocol]
        place = Place.at(self.there.running, self.name, self.token, settings)
        self._puppet = named(self.protocol).puppet()(place)
        await self._puppet.open()

    async def send(self, target: str, body: str, **fields: Any) -> None:
        assert not fields, "a puppet has no form for the fields of its protocol"
        await self._puppet.say(target, body)

    async def hear(self, *, acknowledge: bool = True) -> Heard:
        async with asyncio.timeout(WAIT_SECONDS):
            heard = await self._puppet.hear()
        if acknowledge:
            await self._puppet.acknowledge(heard)
        return Heard(heard.sender, heard.body, {})

    async def hang_up(self) -> None:
        await self._puppet.close()


DRIVERS: tuple[type[Driver], ...] = (
    ChannelsDriver,
    RelayDriver,
    BackchannelDriver,
    PeerbusDriver,
    Ac7Driver,
    McpDriver,
)
BY_PROTOCOL: dict[str, type[Driver]] = {driver.protocol: driver for driver in DRIVERS}


class MixedHub:
    """Test helper: a hub, and members that use different protocols."""

    def __init__(self, there: HubHarness) -> None:
        self.there = there
        self._drivers: list[Driver] = []

    async def driver(self, protocol: str, name: str, *, connected: bool = True) -> Driver:
        """Make a member, if it does not exist, with a driver of this protocol.

        Connect it unless `connected` is false.
        """
        if protocol not in BY_PROTOCOL:
            return await self.puppet(protocol, name, connected=connected)
        await self._make(name)
        made = BY_PROTOCOL[protocol](self.there, name)
        if connected:
            await self.connect(made)
        return made

    async def puppet(self, protocol: str, name: str, *, connected: bool = True) -> PuppetDriver:
        """Make a member, if it does not exist, with the puppet of this protocol. Connect it unless told otherwise."""
        await self._make(name)
        made = PuppetDriver(self.there, name, protocol)
        if connected:
            await self.connect(made)
        return made

    async def _make(self, name: str) -> None:
        if name not in self.there.tokens:
            await self.there.add(name)

    async def connect(self, driver: Driver) -> None:
        """Connect a driver. The hub helper closes the connection at the end."""
        await driver.connect()
        self._drivers.append(driver)

    async def close(self) -> None:
        """Close all connections."""
        for driver in self._drivers:
            await driver.hang_up()


@contextlib.asynccontextmanager
async def mixed_hub(
    home: Path, *, store: str = "memory", tokens: dict[str, str] | None = None, config: str = CONFIG
) -> AsyncIterator[MixedHub]:
    """Start a hub with all protocols and yield it. Without other `config`, it signs messages for peerbus."""
    home.mkdir(mode=0o700, exist_ok=True)
    if not (home / "tieline.toml").exists():
        (home / "tieline.toml").write_text(config)
    async with running_hub(home, store=store) as there:
        there.tokens.update(tokens or {})
        built = MixedHub(there)
        try:
            yield built
        finally:
            await built.close()
