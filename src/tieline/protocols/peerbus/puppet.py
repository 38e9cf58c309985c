"""The puppet (scripted client for the demo, the doctor and the tests) of peerbus."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tieline.protocols.peerbus.client import Adapter, Delivery
from tieline.protocols.peerbus.codec import PROTOCOL
from tieline.wire.address import split_pin, with_pin
from tieline.wire.puppet import ANSWER_SECONDS, Heard, NotSpoken, Puppet, says_urgent


class PeerbusPuppet(Puppet):
    """Scripted client of peerbus, for the demo, the doctor and the tests.

    It sends and receives signed envelopes over a WebSocket. It has no channels.
    """

    protocol = PROTOCOL

    async def open(self) -> None:
        address, fingerprint = split_pin(self.place.http)
        url = with_pin(address.replace("http", "ws", 1) + "/peerbus", fingerprint)
        secret = self.place.settings["hmac_secret"]
        if self.place.places.get("peerbus_socket") is None:
            raise NotSpoken(self.protocol)
        if not secret:
            raise NotSpoken("peerbus to others, for it has no secret to sign with")
        self._adapter = Adapter(url, name=self.place.name, token=self.place.token, secret=secret)
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._adapter.__aenter__()
        self._deliveries: AsyncIterator[Delivery] = aiter(self._adapter)

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        said: dict[str, Any] = {"text": body, **({"priority": "urgent"} if urgent else {})}
        if target == "*":
            await self._adapter.broadcast(said)
        else:
            await self._adapter.send(target.removeprefix("@"), said)
        await self._adapter.confirm()

    async def hear(self) -> Heard:
        delivery = await anext(self._deliveries)
        body = delivery.json()
        said = body if isinstance(body, dict) else {"text": str(body)}
        return Heard(delivery.sender, str(said.get("text", "")), says_urgent(said), delivery)

    async def acknowledge(self, heard: Heard) -> None:
        await self._adapter.ack(heard.delivery)

    async def close(self) -> None:
        await self._adapter.close()
