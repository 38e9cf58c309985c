"""Test double for the MCP server of the existing implementation (`@agent-relay/mcp` 2.0.29), as it uses the socket.

It opens a connection for each request, and writes one frame without HELLO. Then it closes at once, or waits for a frame
with the request's id or its correlation id. The tests do not install the package itself, because it brings 29 MB of
other packages.
"""

from typing import Any

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import Frame, Wire, frame


class Mcp:
    """Test double: the MCP server of one agent."""

    def __init__(self, relay: Relay, name: str) -> None:
        self._relay = relay
        self.name = name

    async def request(self, kind: str, payload: Frame | None = None, **fields: Any) -> Frame:
        """Write a frame on a new connection. Return the frame that answers it."""
        _, answer = await self.requesting(kind, payload, **fields)
        return answer

    async def requesting(self, kind: str, payload: Frame | None = None, **fields: Any) -> tuple[Wire, Frame]:
        """Write a frame on a new connection and wait for its answer. Return the open connection and the answer."""
        wire = await self._relay.dial()
        asked = await wire.send(frame(kind, payload, **fields))
        correlation = fields.get("payload_meta", {}).get("sync", {}).get("correlationId", "")
        while (found := await wire.receive())["id"] != asked["id"]:
            if correlation and found["payload"].get("correlationId") == correlation:
                break
        return wire, found

    async def fire(self, kind: str, payload: Frame | None = None, **fields: Any) -> list[Frame]:
        """Write a frame and close the sending side. Return all frames until the hub closes.

        The real server ignores these frames. Here they show that the hub has finished.
        """
        wire = await self._relay.dial()
        await wire.send(frame(kind, payload, sender=self.name, **fields))
        wire.writer.write_eof()
        found = []
        try:
            while True:
                found.append(await wire.receive())
        except EOFError:
            return found

    async def send(self, to: str, body: str, **fields: Any) -> list[Frame]:
        """Send a message like the tool `relay_send`. Return the frames of the hub."""
        return await self.fire("SEND", {"kind": "message", "body": body}, to=to, **fields)

    async def send_and_wait(self, to: str, body: str, timeout_ms: int = 30_000) -> Frame:
        """Send a message like the tool `relay_send` with `await_response`.

        Return the answer of the recipient, or the error.
        """
        meta = {"sync": {"blocking": True, "correlationId": f"wait-{body}", "timeoutMs": timeout_ms}}
        return await self.request("SEND", {"kind": "message", "body": body}, sender=self.name, to=to, payload_meta=meta)

    async def inbox(self, **payload: Any) -> list[str]:
        """Read the inbox like the tool `relay_inbox`. Return the bodies of the messages."""
        answer = await self.request("INBOX", {"agent": self.name, "limit": 10, "unreadOnly": True} | payload)
        assert answer["type"] == "INBOX_RESPONSE", answer
        return [one["body"] for one in answer["payload"]["messages"]]
