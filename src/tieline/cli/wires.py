"""One end of each protocol's wire, all with the same four verbs: open, say, hear, close.

Above: the agents of `tieline demo` and the canary of `tieline doctor`. Below: the clients that the protocols ship. The
hub cannot tell these from any other client: they use no way into it that an agent does not have.
"""

import asyncio
import contextlib
import http.client
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from tieline.protocols.agent_channels.client import ChannelClient
    from tieline.protocols.agent_relay.client import Delivery as RelayDelivery
    from tieline.protocols.backchannel.client import RelayClient as BackchannelClient
    from tieline.protocols.backchannel.message import Message as BackchannelMessage
    from tieline.protocols.peerbus.adapter import Delivery as PeerbusDelivery
    from tieline.wire.home import Running

_ANSWER_SECONDS = 10.0
_POLL_SECONDS = 0.01
_LINE_BYTES_MAX = 1 << 20
_REFUSED = 400
_NO_ROUTE = 404

Json = dict[str, Any]


class NotSpoken(Exception):
    """The hub does not speak this protocol."""


class Place(Struct, frozen=True):
    """Where a hub is reached, and by whom."""

    name: str
    token: str
    """The member's own; it opens the name on every protocol."""
    http: str
    channels_dir: str | None
    relay_socket: str | None
    peerbus_secret: str | None
    """What peers sign with; empty if the hub has none, `None` if it speaks no peerbus."""

    @classmethod
    def at(cls, running: "Running", name: str, token: str, secret: str) -> "Place":
        """Where a running hub is reached by a member."""
        signs = None if running.peerbus_socket is None else secret
        return cls(name, token, running.http, running.channels_dir, running.relay_socket, signs)


class Heard(Struct, frozen=True):
    """One message as a wire gave it."""

    sender: str
    body: str
    urgent: bool
    delivery: Any
    """What the wire acknowledges it by."""


class Wire:
    """A member's end of one protocol."""

    protocol: ClassVar[str]
    acknowledges: ClassVar[bool] = True
    """Whether the protocol has a word for "I have it"."""

    def __init__(self, place: Place) -> None:
        self.place = place

    async def open(self) -> None:
        """Connect and listen. Raises `NotSpoken`."""
        raise NotImplementedError

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        """Say something to `@member`, `#channel` or `*`, in the protocol's own form."""
        raise NotImplementedError

    async def hear(self) -> Heard:
        """Wait for the next message."""
        raise NotImplementedError

    async def acknowledge(self, heard: Heard) -> None:
        """Be done with a message, where the protocol has a word for that."""

    async def close(self) -> None:
        """Hang up."""
        raise NotImplementedError


class ChannelsWire(Wire):
    """agent-channels: a socket for every place. It listens at its inbox and writes to the socket of whom it means."""

    protocol = "agent-channels"
    acknowledges = False

    async def open(self) -> None:
        self._inbox = await self._connect(f"inbox-{self.place.name}")
        self._messages = aiter(self._inbox)

    async def _connect(self, name: str) -> "ChannelClient":
        from tieline.protocols.agent_channels.client import ChannelClient

        if self.place.channels_dir is None:
            raise NotSpoken(self.protocol)
        client = ChannelClient(Path(self.place.channels_dir, f"{name}.sock"))
        async with asyncio.timeout(_ANSWER_SECONDS):
            while True:
                try:
                    await client.connect()
                except FileNotFoundError:
                    # The inbox of a new member, and the socket of a new channel, appear a moment after them.
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    return client

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        place = "general" if target == "*" else f"inbox-{target[1:]}" if target.startswith("@") else target[1:]
        client = await self._connect(place)
        client.send({"msg": body, **({"data": {"priority": "urgent"}} if urgent else {})})
        client.disconnect()

    async def hear(self) -> Heard:
        message = await anext(self._messages, None)
        if message is None:
            raise ConnectionError("the hub hung up")
        data = message.data or {}
        return Heard(str(data.get("from", "")), message.msg, _says_urgent(data), None)

    async def close(self) -> None:
        self._inbox.disconnect()


class RelayWire(Wire):
    """agent-relay: a session on the daemon's socket; every delivery is acknowledged."""

    protocol = "agent-relay"

    async def open(self) -> None:
        from tieline.protocols.agent_relay.client import RelayClient

        if self.place.relay_socket is None:
            raise NotSpoken(self.protocol)
        self._client = RelayClient(self.place.relay_socket, self.place.name, token=self.place.token)
        await self._client.open()

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        data = {"priority": "urgent"} if urgent else None
        await self._client.send(target.removeprefix("@"), body, data=data)

    async def hear(self) -> Heard:
        delivery: RelayDelivery = await self._client.receive()
        return Heard(delivery.sender, delivery.body, _says_urgent(delivery.data), delivery)

    async def acknowledge(self, heard: Heard) -> None:
        heard.delivery.ack()

    async def close(self) -> None:
        await self._client.close()


class BackchannelWire(Wire):
    """backchannel: it sends by a request, hears by a stream of events, and takes what it heard."""

    protocol = "backchannel"

    async def open(self) -> None:
        from tieline.protocols.backchannel.client import RelayArrivals, RelayClient, RelayRefused, RelayUnreachable

        self._client: BackchannelClient = RelayClient(self.place.http, self.place.token)
        try:
            await asyncio.to_thread(self._client.inbox, self.place.name)
        except (RelayRefused, RelayUnreachable) as error:
            if await asyncio.to_thread(_status, self.place.http, "/v1/agents") == _NO_ROUTE:
                raise NotSpoken(self.protocol) from error
            raise
        arrivals = aiter(RelayArrivals(self._client, self.place.name))
        self._messages = cast("AsyncGenerator[BackchannelMessage, None]", arrivals)

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        form = {"to": "#general" if target == "*" else target, "body": body, "priority": "urgent" if urgent else ""}
        await asyncio.to_thread(self._client.send, form)

    async def hear(self) -> Heard:
        message = await anext(self._messages)
        return Heard(message.sender, message.body, message.priority == "urgent", message.id)

    async def acknowledge(self, heard: Heard) -> None:
        await self.take(heard)

    async def take(self, heard: Heard) -> bool:
        """Take a message; false when somebody else was first."""
        return await asyncio.to_thread(self._client.take, self.place.name, heard.delivery) is not None

    async def close(self) -> None:
        await self._messages.aclose()


class PeerbusWire(Wire):
    """peerbus: signed envelopes over a WebSocket. It has no channels of its own."""

    protocol = "peerbus"

    async def open(self) -> None:
        from tieline.protocols.peerbus.adapter import Adapter

        url = self.place.http.replace("http", "ws", 1) + "/peerbus"
        secret = self.place.peerbus_secret
        if not secret:
            raise NotSpoken(self.protocol if secret is None else "peerbus to others, for it has no secret to sign with")
        self._adapter = Adapter(url, name=self.place.name, token=self.place.token, secret=secret)
        async with asyncio.timeout(_ANSWER_SECONDS):
            await self._adapter.__aenter__()
        self._deliveries: AsyncIterator[PeerbusDelivery] = aiter(self._adapter)

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        said: Json = {"text": body, **({"priority": "urgent"} if urgent else {})}
        if target == "*":
            await self._adapter.broadcast(said)
        else:
            await self._adapter.send(target.removeprefix("@"), said)
        await self._adapter.confirm()

    async def hear(self) -> Heard:
        delivery = await anext(self._deliveries)
        body = delivery.json()
        said = body if isinstance(body, dict) else {"text": str(body)}
        return Heard(delivery.sender, str(said.get("text", "")), _says_urgent(said), delivery)

    async def acknowledge(self, heard: Heard) -> None:
        await self._adapter.ack(heard.delivery)

    async def close(self) -> None:
        await self._adapter.close()


class Ac7Wire(Wire):
    """ac7: it pushes by a request and hears by a stream of events, which has no acknowledgement."""

    protocol = "ac7"
    acknowledges = False

    async def open(self) -> None:
        address = urlsplit(self.place.http)
        self._reader, self._writer = await asyncio.open_connection(
            address.hostname, address.port, limit=_LINE_BYTES_MAX
        )
        request = (
            f"GET /subscribe?name={self.place.name} HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"authorization: Bearer {self.place.token}\r\n\r\n"
        )
        self._writer.write(request.encode())
        async with asyncio.timeout(_ANSWER_SECONDS):
            status = await self._reader.readline()
        if b" 200 " not in status:
            await self.close()
            if b" 404 " in status:
                raise NotSpoken(self.protocol)
            raise ConnectionError(f"the hub answered {status.decode(errors='replace').strip()!r}")

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        form: Json = {"body": body, "data": {"priority": "urgent"} if urgent else {}}
        if target.startswith("@"):
            form["to"] = target[1:]
        elif target.startswith("#"):
            channel = (await self.ask("GET", f"/channels/{target[1:]}"))["channel"]
            form["data"]["thread"] = f"chan:{channel['id']}"
        await self.ask("POST", "/push", form)

    async def ask(self, method: str, path: str, form: Json | None = None) -> Json:
        """Make any request of the protocol."""
        return await asyncio.to_thread(self._ask, method, path, form)

    def _ask(self, method: str, path: str, form: Json | None) -> Json:
        connection = http.client.HTTPConnection(urlsplit(self.place.http).netloc, timeout=_ANSWER_SECONDS)
        with contextlib.closing(connection):
            headers = {"authorization": f"Bearer {self.place.token}", "content-type": "application/json"}
            connection.request(method, path, None if form is None else msgspec.json.encode(form), headers)
            response = connection.getresponse()
            answer: Json = msgspec.json.decode(response.read(_LINE_BYTES_MAX) or b"{}")
        if response.status >= _REFUSED:
            raise ConnectionError(f"{method} {path}: {answer.get('error')}")
        return answer

    async def hear(self) -> Heard:
        while True:
            line = await self._reader.readline()
            if not line:
                raise ConnectionError("the hub hung up")
            if not line.startswith(b"data: "):
                continue
            message: Json = msgspec.json.decode(line.removeprefix(b"data: "))
            # The protocol tells everybody who comes and goes, and shows a member its own words.
            if message["from"] not in ("ac7", self.place.name):
                return Heard(message["from"], message["body"], _says_urgent(message["data"]), message["id"])

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _says_urgent(data: Json) -> bool:
    """Whether data says so itself, or the hub does in the place that it alone writes."""
    beyond = data.get("tieline")
    return "urgent" in (data.get("priority"), beyond.get("priority") if isinstance(beyond, dict) else None)


def _status(url: str, path: str) -> int:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=_ANSWER_SECONDS)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


WIRES: dict[str, type[Wire]] = {
    wire.protocol: wire for wire in (ChannelsWire, RelayWire, BackchannelWire, PeerbusWire, Ac7Wire)
}
