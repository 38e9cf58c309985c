"""The puppet (scripted client for the demo, the doctor and the tests) of backchannel."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import cast

from tieline.protocols.backchannel.client import RelayArrivals, RelayClient, RelayRefused, RelayUnreachable
from tieline.protocols.backchannel.codec import SpoolMessage
from tieline.wire.puppet import ANSWER_SECONDS, Heard, NotSpoken, Puppet
from tieline.wire.tls import open_http

_NO_ROUTE = 404


class BackchannelPuppet(Puppet):
    """Scripted client of backchannel, for the demo, the doctor and the tests.

    It sends by HTTP requests, receives by an event stream, and claims messages.
    """

    protocol = "backchannel"

    async def open(self) -> None:
        self._client = RelayClient(self.place.http, self.place.token)
        try:
            await asyncio.to_thread(self._client.inbox, self.place.name)
        except (RelayRefused, RelayUnreachable) as error:
            if await asyncio.to_thread(_status, self.place.http, "/v1/agents") == _NO_ROUTE:
                raise NotSpoken(self.protocol) from error
            raise
        arrivals = aiter(RelayArrivals(self._client, self.place.name))
        self._messages = cast("AsyncGenerator[SpoolMessage, None]", arrivals)

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        form = {"to": "#general" if target == "*" else target, "body": body, "priority": "urgent" if urgent else ""}
        await asyncio.to_thread(self._client.send, form)

    async def hear(self) -> Heard:
        message = await anext(self._messages)
        return Heard(message.sender, message.body, message.priority == "urgent", message.id)

    async def acknowledge(self, heard: Heard) -> None:
        await self.take(heard)

    async def take(self, heard: Heard) -> bool:
        """Claim a received message. Return false if another reader claimed it first."""
        return await asyncio.to_thread(self._client.take, self.place.name, heard.delivery) is not None

    async def close(self) -> None:
        await self._messages.aclose()


def _status(url: str, path: str) -> int:
    with contextlib.closing(open_http(url, ANSWER_SECONDS)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status
