"""Test client for one connection of the hub's own protocol, with a fake hub behind it."""

from tests.wire.native.fake_hub import FakeHub
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.message import Content, Message
from tieline.contract.target import to_member
from tieline.wire.native import frames as f
from tieline.wire.native.server import NativeConnection, Transport

BOB = MemberName("bob")
SESSION = SessionId("session-1")
ATTACHED = r.Attached(session=SESSION, member=BOB, speaker="bob")


class FakeTransport(Transport):
    """Test double: a carrier (connection) that records the written batches."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.closed = False
        self.aborted = False
        self.reading = True
        self.owner = ""
        # Batches that said nothing.
        self.blank = 0

    def send(self, payload: bytes) -> None:
        self.payloads.append(payload)

    def close(self) -> None:
        self.closed = True

    def admit(self, owner: str) -> None:
        self.owner = owner

    def await_hello(self) -> None:
        self.blank += 1

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    @property
    def frames(self) -> list[f.HubFrame]:
        return [frame for payload in self.payloads for frame in f.decode_hub_batch(payload)]


class Line:
    """Test client: one end of a connection whose hub is a fake."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.hub = FakeHub(limits)
        self.transport = FakeTransport()
        self.connection = NativeConnection(self.hub, self.transport, local=True)

    def say(self, *frames: f.Frame) -> None:
        self.connection.receive_batch(f.encode_batch(frames))

    def greet(self, hello: f.Hello | None = None, attached: r.Attached = ATTACHED) -> None:
        """Send hello, let the hub accept it with `attached`, check the welcome, and forget the recorded frames."""
        self.say(hello or f.Hello(token="t"))
        self.hub.answer(attached)
        assert isinstance(self.transport.frames[0], f.Welcome)
        self.transport.payloads.clear()

    @property
    def refused(self) -> f.Refused:
        """Return the refusal with which the connection ended."""
        assert self.transport.closed
        last = self.transport.frames[-1]
        assert isinstance(last, f.Refused)
        assert last.n is None
        return last


def message(key: int, body: str = "x", data: dict[str, str] | None = None) -> Message:
    content = Content(target=to_member(BOB), body=body, data=data)
    return Message(id=MessageId(f"m{key}"), offset=key, sender="alice", protocol="fake", sent_at_ms=0, content=content)
