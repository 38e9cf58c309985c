"""The puppet (scripted client for the demo, the doctor and the tests) of agent-relay."""

from tieline.protocols.agent_relay.client import RelayClient
from tieline.wire.puppet import Heard, NotSpoken, Puppet, says_urgent


class RelayPuppet(Puppet):
    """Scripted client of agent-relay, for the demo, the doctor and the tests. Has one session on the hub's socket."""

    protocol = "agent-relay"

    async def open(self) -> None:
        socket = self.place.places.get("relay_socket")
        if socket is None:
            raise NotSpoken(self.protocol)
        self._client = RelayClient(socket, self.place.name, token=self.place.token)
        await self._client.open()

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        data = {"priority": "urgent"} if urgent else None
        await self._client.send(target.removeprefix("@"), body, data=data)

    async def hear(self) -> Heard:
        delivery = await self._client.receive()
        return Heard(delivery.sender, delivery.body, says_urgent(delivery.data), delivery)

    async def acknowledge(self, heard: Heard) -> None:
        heard.delivery.ack()

    async def close(self) -> None:
        await self._client.close()
