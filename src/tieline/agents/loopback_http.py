"""One side of the proxy: an HTTP/1.1 connection whose events are passed on as they arrive.

Used by: `loopback.py`. Uses: h11, and streams of bytes. An ordinary server collects a whole body before it passes the
body on. Here every part of a body is passed on at once, because programs show a model's answer while the model writes
it.
"""

import asyncio

import h11

HEAD_BYTES_MAX = 65_536
"""Maximum number of bytes of a request line or status line with its headers. The headers may contain long tokens."""

_PIECE_BYTES = 65_536
"""Maximum number of bytes of one read. A socket usually holds no more."""
_CLOSE_SECONDS = 1.0
"""Seconds that the other side has to read the last bytes. After this time the connection is aborted."""

Headers = tuple[tuple[str, str], ...]
"""HTTP headers: pairs of a name, in its original spelling, and a value."""


class Side:
    """One HTTP connection of the proxy.

    The other end is the agent's program (the proxy is the server) or the model's API (the proxy is the client).
    """

    def __init__(self, role: type[h11.SERVER | h11.CLIENT], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._http = h11.Connection(role, HEAD_BYTES_MAX)
        self._reader = reader
        self._writer = writer

    @property
    def usable(self) -> bool:
        """False once one of the two ends has closed the connection."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def receive(self) -> h11.Event | type[h11.PAUSED]:
        """Wait for the next HTTP event from the other side, and return it.

        `PAUSED` means that the next request can be read only after `start_next`.
        """
        while True:
            event = self._http.next_event()
            if not isinstance(event, type) or event is h11.PAUSED:
                return event
            self._http.receive_data(await self._reader.read(_PIECE_BYTES))

    async def send(self, event: h11.Event) -> None:
        """Send an HTTP event (the headers, a part of the body, or the end) to the other end of the connection."""
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def answer(self, status: int, reason: str, body: bytes, kind: str) -> None:
        """Send a whole HTTP response.

        `reason` is the text after the status, and `kind` is the media type of the body.
        """
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        await self.send(h11.Response(status_code=status, headers=headers, reason=reason.encode()))
        await self.send(h11.Data(data=body))
        await self.send(h11.EndOfMessage())

    def start_next(self) -> bool:
        """Prepare the connection for another request. Return false if this connection can carry no further request."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def tunnel(self, other: "Side") -> None:
        """Pass bytes of another protocol, such as WebSocket, between this connection and `other`.

        Return when one of them ends.
        """
        ways = [asyncio.create_task(self._carry(other)), asyncio.create_task(other._carry(self))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ways:
                task.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _carry(self, other: "Side") -> None:
        data, _ = self._http.trailing_data
        while data := data or await self._reader.read(_PIECE_BYTES):
            other._writer.write(data)
            await other._writer.drain()
            data = b""

    def close(self) -> None:
        """Close the connection without waiting until the last bytes are written."""
        self._writer.close()

    async def hang_up(self) -> None:
        """Close the connection, and wait at most `_CLOSE_SECONDS` until the last bytes are written."""
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError, asyncio.CancelledError):
            self._writer.transport.abort()


def headers_of(event: h11.Request | h11.Response | h11.InformationalResponse) -> Headers:
    """Return the headers of a request or response, with their names as they were written."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers.raw_items())


def header(event: h11.Request, name: bytes) -> str:
    """Return the value of a request's header; empty if it is missing. Several values are joined by commas."""
    return ", ".join(value.decode("latin-1") for key, value in event.headers if key == name)
