"""Test clients of the hub's own protocol that write frames themselves, over a Unix socket or a WebSocket."""

import json
from pathlib import Path
from typing import Any, Protocol

from tests.golden.framed import Framed
from tests.golden.stage import Stage
from tieline.wire.home import HUB_SOCKET

Frame = dict[str, Any]

EVERYTHING = ["members.manage", "team.manage", "log.read", "activity.read", "objectives.create"]
"""The permissions of the member that makes other members."""

ATTACHMENT = {"path": "/ada/plan.md", "name": "plan.md", "size": 12, "media_type": "text/markdown"}
FULL: Frame = {
    "data": {"é": [1, 2.5, None, True, {"deep": "\u2028 line\nbreak"}]},
    "title": "All of it",
    "level": "warning",
    "priority": "urgent",
    "kind": "status",
    "topic": "builds",
    "scope": "repo:main",
    "thread": "t-1",
    "refs": ["https://example.org/1", "file.py:3"],
    "attachments": [ATTACHMENT],
    "ttl_ms": 86_400_000,
    "wire_id": "ada-1",
}
"""All optional fields of a message, except those that name other messages."""


class Carrier(Protocol):
    """Interface of a connection that carries batches of frames as text."""

    async def say(self, *payloads: str) -> None:
        """Write batches as text."""

    async def hear(self) -> str:
        """Wait for the next batch. Return its text."""

    async def ended(self) -> None:
        """Wait until the hub closes the connection."""

    async def leave(self) -> None:
        """Close the connection, and wait until the hub has noticed it."""


class Native:
    """Test client: one session in the hub's own protocol."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self._number = 0

    async def say(self, *frames: Frame) -> None:
        """Write frames as one batch."""
        await self.carrier.say(json.dumps(frames, separators=(",", ":"), ensure_ascii=False))

    async def hear(self) -> Frame:
        """Wait for a batch that has exactly one frame. Return the frame."""
        (frame,) = await self.hear_batch()
        return frame

    async def hear_batch(self) -> list[Frame]:
        """Wait for a batch. Return its frames."""
        batch: list[Frame] = json.loads(await self.carrier.hear())
        return batch

    async def hello(self, **fields: Any) -> Frame:
        """Send hello. Return the hub's answer."""
        await self.say({"t": "hello", "v": 1, **fields})
        return await self.hear()

    async def leave(self) -> None:
        """Close the connection."""
        await self.carrier.leave()

    async def ask(self, kind: str, /, **fields: Any) -> Frame:
        """Send a request. Return its answer, which must be the next frame."""
        self._number += 1
        await self.say({"t": kind, "n": self._number, **fields})
        answer = await self.hear()
        assert answer["n"] == self._number, answer
        return answer

    async def send(self, target: str, body: str, /, **fields: Any) -> str:
        """Send a message. Return its id."""
        found: str = (await self.ask("send", target=target, body=body, **fields))["id"]
        return found


class Sockets:
    """Test helper: makes clients for the Unix socket of a hub."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @property
    def path(self) -> Path:
        """Return the path of the socket."""
        return self.stage.there.home / HUB_SOCKET

    async def dial(self, name: str) -> Native:
        """Open a connection and send nothing."""
        return Native(await Framed.dial(self.stage, name, self.path))

    async def join(self, name: str, token: str, **fields: Any) -> Native:
        """Open a session of a member by its token. The hub must accept it."""
        session = await self.dial(name)
        assert (await session.hello(token=token, **fields))["t"] == "welcome"
        return session

    async def operator(self) -> Native:
        """Open a session with the key of the home, without a member."""
        key = (self.stage.there.home / "key").read_text().strip()
        self.stage.recorder.know(key, "key of the home")
        session = await self.dial("operator")
        assert (await session.hello(key=key))["t"] == "welcome"
        return session
