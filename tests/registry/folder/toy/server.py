"""Server of the toy protocol inside the hub."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from tieline.contract import command as c
from tieline.contract.identifiers import MemberName
from tieline.contract.member import ByToken
from tieline.contract.message import Content
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Progress, Reply
from tieline.contract.target import parse_target
from tieline.wire.greeting import Greeting
from tieline.wire.protocol import Host, Server
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.stream import Stream
from tieline.wire.unix import UnixServer, listen

from . import codec

PROTOCOL = "toy"


class _Connection(Stream):
    """Server's end of one client's connection, which is one session."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._limits = host.hub.limits
        self._pump = SessionPump(host.hub, self)
        self._greeting: Greeting[codec.ClientLine] = Greeting(self._pump)
        self._data = b""

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begin(transport, self._limits.unsent_bytes_max)
        self._greeting.expect(lambda: self.end(Refusal(Code.UNAUTHORIZED, "say hello first")))

    def data_received(self, data: bytes) -> None:
        *lines, self._data = (self._data + data).split(b"\n")
        for line in lines:
            self._handle(line)

    def pause_writing(self) -> None:
        self._pump.pause_writing()

    def resume_writing(self) -> None:
        self._pump.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._greeting.close()
        self._pump.close()

    # Methods that the session pump calls: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        for message, key, _ in parcels:
            self.write(codec.encode(codec.Given(key, message.sender, message.content.body)))
        return parcels

    def write_progress(self, step: Progress) -> None:
        """Do nothing, because this protocol does not report the states of sent messages to their sender."""

    def end(self, why: Refusal) -> None:
        self.write(codec.encode(codec.No(why.message)))
        self.hang_up()

    # Inside.

    def _handle(self, line: bytes) -> None:
        try:
            said = codec.decode_client(line)
        except msgspec.MsgspecError as error:
            self.write(codec.encode(codec.No(str(error))))
            self.hang_up()
            return
        if self._greeting.waits:
            self._greeting.wait((said,))
        else:
            self._act(said)

    def _act(self, said: codec.ClientLine) -> None:
        session = self._pump.session
        match said:
            case codec.Hello():
                attach = c.Attach(protocol=PROTOCOL, credential=ByToken(said.token), member=MemberName(said.name))
                self._greeting.open(attach, self._opened)
            case codec.Ack():
                self._pump.acknowledged(1)
                self._pump.submit((c.Advance(session, ranges=((said.key, said.key),)),))
            case codec.Say():
                target = parse_target(said.target)
                if isinstance(target, Refusal):
                    self.write(codec.encode(codec.No(target.message)))
                    return
                self._pump.submit((c.Send(session, content=Content(target=target, body=said.body)),), self._said)

    def _opened(self, reply: Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.end(reply)
            return
        self.write(codec.encode(codec.Welcome()))
        waiting = self._greeting.activate()
        self._pump.receive(window=64)
        for said in waiting:
            self._act(said)

    def _said(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Refusal):
                self.write(codec.encode(codec.No(reply.message)))


class ToyServer(Server):
    """Server of the toy protocol on the Unix socket `<home>/toy.sock`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._path = host.home / "toy.sock"
        self._listener: UnixServer | None = None

    async def start(self) -> None:
        self._listener = await listen(self._path, lambda: _Connection(self._host), mode=0o600)

    def places(self) -> Mapping[str, str]:
        return {"toy_socket": str(self._path)}

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
