"""Raw test clients of Agent Relay, which write frames like a foreign client."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, Self

from tests.server.hubs import WAIT_SECONDS

Frame = dict[str, Any]

_numbers = itertools.count(1)


def framed(payload: bytes) -> bytes:
    """Return a payload with its length before it."""
    return len(payload).to_bytes(4, "big") + payload


def frame(kind: str, payload: Frame | None = None, **fields: Any) -> Frame:
    """Return an envelope with a new id. The parameter `sender` stands for the field `from`."""
    if "sender" in fields:
        fields["from"] = fields.pop("sender")
    return {"v": 1, "type": kind, "id": f"c-{next(_numbers)}", "ts": 1734440000000, "payload": payload or {}} | fields


def said(body: str, to: str, **fields: Any) -> Frame:
    """Return a SEND frame with a message."""
    return frame("SEND", {"kind": "message", "body": body}, to=to, **fields)


class Wire:
    """Test client: one raw connection, so that a test can send bytes that no library would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.name = ""
        self.welcome: Frame = {}
        # Every AGENT_READY so far: it comes whenever another agent opens a session, between any two frames.
        self.ready: list[Frame] = []

    @classmethod
    async def dial(cls, path: str | Path) -> Self:
        """Open a connection and send nothing."""
        return cls(*await asyncio.open_unix_connection(path))

    async def raw(self, data: bytes) -> None:
        """Write bytes unchanged."""
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, *frames: Frame) -> Frame:
        """Write frames to the hub as one chunk. Return the last of these frames, so that a test can use its id."""
        await self.raw(b"".join(framed(json.dumps(one).encode()) for one in frames))
        return frames[-1]

    async def receive(self) -> Frame:
        """Wait for the next frame except AGENT_READY. Raises `EOFError` when the hub closed the connection."""
        while (found := await self._next())["type"] == "AGENT_READY":
            self.ready.append(found)
        return found

    async def until_ready(self, name: str) -> Frame:
        """Return the AGENT_READY frame of the agent `name`. Until it comes, no frame of another type may come."""
        while not (told := [one for one in self.ready if one["payload"]["name"] == name]):
            found = await self._next()
            assert found["type"] == "AGENT_READY", found
            self.ready.append(found)
        return told[-1]

    async def _next(self) -> Frame:
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                size = int.from_bytes(await self.reader.readexactly(4), "big")
                found: Frame = json.loads(await self.reader.readexactly(size))
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise EOFError from error
        return found

    async def expect(self, *kinds: str) -> Frame:
        """Wait for the next frame, which must be of one of these types. Answer a PING before it, and skip it."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (found := await self.receive())["type"] == "PING" and "PING" not in kinds:
                await self.send(frame("PONG", found["payload"]))
        assert found["type"] in kinds, found
        return found

    async def hello(self, name: str, *, resume_token: str | None = None, **payload: Any) -> Frame:
        """Send HELLO and wait for WELCOME. Return the payload of WELCOME."""
        self.name = name
        await self.send(greeting(name, resume_token=resume_token, **payload))
        self.welcome = (await self.expect("WELCOME"))["payload"]
        return self.welcome

    async def deliveries(self, count: int) -> list[Frame]:
        """Wait for `count` DELIVER frames in a row. Return them."""
        return [await self.expect("DELIVER") for _ in range(count)]

    async def bodies(self, count: int) -> list[str]:
        """Wait for `count` DELIVER frames in a row. Return their bodies."""
        return [delivery["payload"]["body"] for delivery in await self.deliveries(count)]

    async def ask(self, kind: str, payload: Frame | None = None, **fields: Any) -> Frame:
        """Send a request. Return the next frame, which must have the request's id."""
        asked = await self.send(frame(kind, payload, **fields))
        found = await self.receive()
        assert found["id"] == asked["id"], found
        return found

    async def settled(self) -> list[Frame]:
        """Send a STATUS request. Return all frames that came before its answer."""
        asked = await self.send(frame("STATUS"))
        before: list[Frame] = []
        while (found := await self.receive())["id"] != asked["id"]:
            before.append(found)
        return before

    async def silent(self) -> None:
        """Check that the hub has sent no unread frame."""
        assert await self.settled() == []

    async def ack(self, delivery: Frame, **payload: Any) -> None:
        """Acknowledge a delivery."""
        await self.send(frame("ACK", {"ack_id": delivery["id"], "seq": delivery["delivery"]["seq"]} | payload))

    async def failed(self, *, fatal: bool = True) -> Frame:
        """Wait for an ERROR, a BYE and the end, in this order. Return the payload of the ERROR."""
        error = await self.expect("ERROR")
        assert error["payload"]["fatal"] is fatal
        await self.expect("BYE")
        await self.ended()
        payload: Frame = error["payload"]
        return payload

    async def ended(self) -> None:
        """Wait until the hub closes the connection. Fail if a frame comes before."""
        try:
            found = await self.receive()
        except EOFError:
            return
        raise AssertionError(found)

    async def close(self) -> None:
        """Close the connection without BYE."""
        self.writer.close()


def greeting(name: str, *, resume_token: str | None = None, **payload: Any) -> Frame:
    """Return a HELLO frame."""
    session = {"session": {"resume_token": resume_token}} if resume_token else {}
    capabilities = {"ack": True, "resume": True, "max_inflight": 256, "supports_topics": True}
    return frame("HELLO", {"agent": name, "capabilities": capabilities} | session | payload)


def resumption(wire: Wire, streams: Frame | None = None, **payload: Any) -> Frame:
    """Return a RESUME frame for the session that a connection had."""
    return frame(
        "RESUME",
        {"session_id": wire.welcome["session_id"], "agent": wire.name, "streams": streams or {}} | payload,
    )
