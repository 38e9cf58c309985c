"""A puppet (test client of one member) that speaks agent-channels."""

import asyncio
from pathlib import Path

from tieline.protocols.agent_channels.client import ChannelClient
from tieline.protocols.agent_channels.posts import PROTOCOL
from tieline.wire.puppet import ANSWER_SECONDS, Heard, NotSpoken, Puppet, says_urgent

_POLL_SECONDS = 0.01  # short, compared with the wait for a new socket


class ChannelsPuppet(Puppet):
    """Puppet (scripted test client) of agent-channels.

    It reads from its own inbox socket and writes to the socket of the target.
    """

    protocol = PROTOCOL
    acknowledges = False

    async def open(self) -> None:
        self._inbox = await self._connect(f"inbox-{self.place.name}")
        self._messages = aiter(self._inbox)

    async def _connect(self, name: str) -> ChannelClient:
        folder = self.place.places.get("channels_dir")
        if folder is None:
            raise NotSpoken(self.protocol)
        client = ChannelClient(Path(folder, f"{name}.sock"))
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                try:
                    await client.connect()
                except FileNotFoundError:
                    # The socket of a new member's inbox or of a new channel appears after a short delay.
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
        return Heard(str(data.get("from", "")), message.msg, says_urgent(data), None)

    async def close(self) -> None:
        self._inbox.disconnect()
