"""A client of ac7: sends requests, and reads a member's messages as server-sent events.

Used by: programs, and the puppet (test client) of this folder. Uses: a hub's HTTP port.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tieline.wire.tls import client_context, open_http

ANSWER_SECONDS = 10.0  # a hub under load may answer slowly

_LINE_BYTES_MAX = 1 << 20  # a message with all its fields is far smaller
_REFUSED = 400

Json = dict[str, Any]


class NoRoute(ConnectionError):
    """Raised if the hub answers that the route does not exist. This means that the hub does not serve ac7."""


class Ac7Client:
    """Client of ac7 that acts as one member, with the member's token."""

    def __init__(self, url: str, name: str, token: str) -> None:
        self._url = url
        self._address = urlsplit(url)
        self._name = name
        self._token = token
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def subscribe(self) -> None:
        """Open the stream of the member's messages. Raises `ConnectionError` if the hub refuses."""
        address = self._address
        self._reader, self._writer = await asyncio.open_connection(
            address.hostname, address.port, limit=_LINE_BYTES_MAX, ssl=client_context(self._url)
        )
        request = (
            f"GET /subscribe?name={self._name} HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"authorization: Bearer {self._token}\r\n\r\n"
        )
        self._writer.write(request.encode())
        async with asyncio.timeout(ANSWER_SECONDS):
            status = await self._reader.readline()
        if b" 200 " not in status:
            await self.close()
            kind = NoRoute if b" 404 " in status else ConnectionError
            raise kind(f"the hub answered {status.decode(errors='replace').strip()!r}")

    async def messages(self) -> AsyncIterator[Json]:
        """Yield the member's messages, as JSON objects, when they arrive. Call `subscribe` first.

        Raises `ConnectionError` when the hub closes the connection.
        """
        assert self._reader is not None, "subscribe first"
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                yield msgspec.json.decode(line.removeprefix(b"data: "))
        raise ConnectionError("the hub hung up")

    async def push(self, target: str, body: str, data: Json | None = None) -> Json:
        """Send a message to `@member`, `#channel` or `*` (everybody). Return the JSON of the hub's answer."""
        form: Json = {"body": body, "data": data or {}}
        if target.startswith("@"):
            form["to"] = target[1:]
        elif target.startswith("#"):
            channel = (await self.ask("GET", f"/channels/{target[1:]}"))["channel"]
            form["data"] = {**form["data"], "thread": f"chan:{channel['id']}"}
        return await self.ask("POST", "/push", form)

    async def ask(self, method: str, path: str, form: Json | None = None) -> Json:
        """Send an HTTP request and return the JSON of the answer. `form` is the JSON body of the request.

        Raises `ConnectionError` if the hub refuses the request.
        """
        return await asyncio.to_thread(self._ask, method, path, form)

    def _ask(self, method: str, path: str, form: Json | None) -> Json:
        connection = open_http(self._url, ANSWER_SECONDS)
        with contextlib.closing(connection):
            headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
            connection.request(method, path, None if form is None else msgspec.json.encode(form), headers)
            response = connection.getresponse()
            answer: Json = msgspec.json.decode(response.read(_LINE_BYTES_MAX) or b"{}")
        if response.status >= _REFUSED:
            raise ConnectionError(f"{method} {path}: {answer.get('error')}")
        return answer

    async def close(self) -> None:
        """Close the stream of messages."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
