"""One HTTP request and its answer, which leaves in one write if it has only one part.

Used by: `bounds`. Uses: uvicorn's class for a request, which writes the head and the body of an answer one after the
other. Each write costs about a tenth of a small request.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle


class HttpCycle(RequestResponseCycle):
    """A request and its answer. The head of the answer waits for the first part of the body if the length is known."""

    # The start of an answer with a known length, until its first part comes.
    _start: Any = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message if _has_length(message["headers"]) else None
            if self._start is None:
                await super().send(message)
            return
        start, self._start = self._start, None
        if start is None:
            await super().send(message)
        elif message.get("more_body", False):
            await super().send(start)
            await super().send(message)
        else:
            if self.flow.write_paused and not self.disconnected:
                await self.flow.drain()
            if not self.disconnected:
                self._send_whole(start["status"], start["headers"], message.get("body", b""))

    def _send_whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Write a complete answer."""
        parts = [STATUS_LINE[status]]
        ends = False
        for name, value in (*self.default_headers, *headers):
            if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise RuntimeError(f"the header {name!r} has a character that no header may have")
            if name == b"content-length" and int(value) != len(body) and self.scope["method"] != "HEAD":
                raise RuntimeError(f"the body has {len(body)} bytes, and its header says {value!r}")
            if name == b"connection" and b"close" in value.lower():
                ends = True
            parts += (name, b": ", value, b"\r\n")
        if not self.keep_alive and not ends:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if self.scope["method"] != "HEAD":
            parts.append(body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.keep_alive = self.keep_alive and not ends
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _has_length(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name == b"content-length" for name, _ in headers)
