"""A puppet (test client of one member) that speaks MCP over HTTP."""

from tieline.protocols.mcp.client import McpClient, NoRoute
from tieline.protocols.mcp.framing import unescape
from tieline.wire.puppet import Heard, NotSpoken, Puppet


class McpPuppet(Puppet):
    """Puppet (scripted test client) of MCP.

    It sends with the tool `send`, receives pushed messages, and acknowledges with the tool `drain`.
    """

    protocol = "mcp"

    async def open(self) -> None:
        self._client = McpClient(self.place.http, self.place.token)
        try:
            await self._client.open()
        except NoRoute as error:
            raise NotSpoken(self.protocol) from error
        await self._client.listen()
        self._messages = self._client.messages()

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        await self._client.call("send", to=target, body=body, urgent=urgent)

    async def hear(self) -> Heard:
        params = await anext(self._messages)
        meta = params["meta"]
        return Heard(meta["from"], unescape(params["content"]), meta.get("priority") == "urgent", meta["msg_id"])

    async def acknowledge(self, heard: Heard) -> None:
        # The oldest message is taken first, so this takes the message that was heard first.
        while f'msg_id="{heard.delivery}"' not in (taken := await self._client.call("drain", limit=1)):
            if "msg_id" not in taken:
                return

    async def close(self) -> None:
        await self._client.close()
