"""A puppet (test client of one member) that speaks ac7."""

from collections.abc import AsyncIterator
from typing import Any

from tieline.protocols.ac7.client import Ac7Client, NoRoute
from tieline.wire.puppet import Heard, NotSpoken, Puppet, says_urgent

Json = dict[str, Any]


class Ac7Puppet(Puppet):
    """Puppet (scripted test client) of ac7. It sends by HTTP request and receives by event stream.

    It does not acknowledge messages, because ac7 has no acknowledgements.
    """

    protocol = "ac7"
    acknowledges = False

    async def open(self) -> None:
        self._client = Ac7Client(self.place.http, self.place.name, self.place.token)
        try:
            await self._client.subscribe()
        except NoRoute as error:
            raise NotSpoken(self.protocol) from error
        self._messages: AsyncIterator[Json] = self._client.messages()

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        await self._client.push(target, body, {"priority": "urgent"} if urgent else {})

    async def ask(self, method: str, path: str, form: Json | None = None) -> Json:
        """Send an HTTP request of ac7 and return the JSON of the answer. `form` is the JSON body of the request."""
        return await self._client.ask(method, path, form)

    async def hear(self) -> Heard:
        # Skip announcements of the hub, and the member's own messages, which its stream shows too.
        while (message := await anext(self._messages))["from"] in ("ac7", self.place.name):
            pass
        return Heard(message["from"], message["body"], says_urgent(message["data"]), message["id"])

    async def close(self) -> None:
        await self._client.close()
