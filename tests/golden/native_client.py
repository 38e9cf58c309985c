"""Clients of the hub's own protocol that write frames by themselves, over either of its carriers."""

import json
from pathlib import Path
from typing import Any, Protocol

from tests.golden.framed import Framed
from tests.golden.stage import Stage
from tieline.wire.home import HUB_SOCKET

Frame = dict[str, Any]

EVERYTHING = ["members.manage", "team.manage", "log.read", "activity.read", "objectives.create"]
"""The permissions of the one who makes the others."""

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
"""Everything that a message can say beside where it goes, its body, and what it answers."""


class Carrier(Protocol):
    """A connection that carries batches."""

    async def say(self, *payloads: str) -> None:
        """Write batches."""

    async def hear(self) -> str:
        """Wait for the next batch."""

    async def ended(self) -> None:
        """Wait until the hub closes the connection."""

    async def leave(self) -> None:
        """Close the connection, and wait until the hub has noticed it."""


class Native:
    """One session."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self._number = 0

    async def say(self, *frames: Frame) -> None:
        """Write a batch."""
        await self.carrier.say(json.dumps(frames, separators=(",", ":"), ensure_ascii=False))

    async def hear(self) -> Frame:
        """Wait for a batch of one frame."""
        (frame,) = await self.hear_batch()
        return frame

    async def hear_batch(self) -> list[Frame]:
        """Wait for a batch."""
        batch: list[Frame] = json.loads(await self.carrier.hear())
        return batch

    async def hello(self, **fields: Any) -> Frame:
        """Send hello, and wait for the answer."""
        await self.say({"t": "hello", "v": 1, **fields})
        return await self.hear()

    async def leave(self) -> None:
        """Close the connection."""
        await self.carrier.leave()

    async def ask(self, kind: str, /, **fields: Any) -> Frame:
        """Send a request, and wait for its answer, which must be the next frame."""
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
    """The Unix socket of a hub."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    @property
    def path(self) -> Path:
        """Path of the socket."""
        return self.stage.there.home / HUB_SOCKET

    async def dial(self, name: str) -> Native:
        """Connect, and send nothing."""
        return Native(await Framed.dial(self.stage, name, self.path))

    async def join(self, name: str, token: str, **fields: Any) -> Native:
        """Connect as a member."""
        session = await self.dial(name)
        assert (await session.hello(token=token, **fields))["t"] == "welcome"
        return session

    async def operator(self) -> Native:
        """Connect with the key of the home, without a member."""
        key = (self.stage.there.home / "key").read_text().strip()
        self.stage.recorder.know(key, "key of the home")
        session = await self.dial("operator")
        assert (await session.hello(key=key))["t"] == "welcome"
        return session
