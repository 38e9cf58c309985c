"""Test client of a WebSocket, with its handshake and every message in the transcript."""

import asyncio
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.golden.stage import Stage
from tests.server.hubs import WAIT_SECONDS


class WebSocket:
    """Test client: one WebSocket connection."""

    def __init__(self, stage: Stage, name: str, connection: ClientConnection) -> None:
        self.stage = stage
        self.name = name
        self._connection = connection

    @classmethod
    async def dial(cls, stage: Stage, name: str, path: str, *, url: str = "", **headers: str) -> Self | None:
        """Open a connection.

        Return `None` if the hub refuses it. `url` is the address, if it is not the hub's HTTP port.
        """
        await stage.turn()
        stage.recorder.said(name, f"WebSocket {path}", *(f"{key}: {value}" for key, value in headers.items()))
        address = (url or stage.url.replace("http", "ws", 1)) + path
        try:
            connection = await connect(address, compression=None, proxy=None, additional_headers=headers)
        except InvalidStatus as refused:
            answer = refused.response
            kind = [f"content-type: {answer.headers['content-type']}"] if "content-type" in answer.headers else []
            body = [answer.body.decode()] if answer.body else []
            stage.recorder.heard(name, str(answer.status_code), *kind, *body)
            return None
        stage.closing.push_async_callback(connection.close)
        stage.recorder.heard(name, "101")
        return cls(stage, name, connection)

    async def say(self, *payloads: str) -> None:
        """Write text messages, each after a step of the clock."""
        for payload in payloads:
            await self.stage.turn()
            self.stage.recorder.said(self.name, payload)
            await self._connection.send(payload)

    async def hear(self) -> str:
        """Wait for the next text message. Return it."""
        async with asyncio.timeout(WAIT_SECONDS):
            payload = await self._connection.recv()
        assert isinstance(payload, str)
        self.stage.recorder.heard(self.name, payload)
        return payload

    async def ended(self) -> None:
        """Wait until the hub closes the connection. Fail if a message comes before."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                payload = await self._connection.recv()
        except ConnectionClosed as end:
            said = f"{end.rcvd.code} {end.rcvd.reason}" if end.rcvd else "without a word"
            self.stage.recorder.heard(self.name, f"(closes: {said})")
            return
        raise AssertionError(payload)

    async def leave(self) -> None:
        """Close the connection. Fail if a message was left unread."""
        await self.stage.turn()
        self.stage.recorder.said(self.name, "(closes)")
        await self._connection.close()
        try:
            payload = await self._connection.recv()
        except ConnectionClosed:
            await self.stage.settle()
            return
        raise AssertionError(payload)
