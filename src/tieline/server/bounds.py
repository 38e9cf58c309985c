"""HTTP/1.1 with limits: uvicorn's protocol class, with limits on the headers that a client may send.

Used by: the HTTP port. Uses: uvicorn and its parser, which would accept headers of any size and wait for them without a
timeout. A client that breaks the rules of HTTP gets a JSON answer, as for any other error, and causes no line in the
log.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tieline.server.http_cycle import HttpCycle
from tieline.wire.http import JSON, SMALL_BODY, failure
from tieline.wire.unfinished import FREE_BYTES, TOO_MUCH, Unfinished

HEAD_BYTES_MAX = 64 * 1024
"""Most bytes of a request line with its headers, or of the trailers after a body. Usual clients send far less."""
HEADERS_MAX = 128
"""Most headers of one request, including trailers. Browsers send about thirty headers. Each header needs far more
memory than its bytes."""
HEAD_SECONDS_MAX = 10.0
"""Longest time in seconds until the headers of a request are complete. The time starts when the connection opens, or
with the first byte of the request."""


class BoundedProtocol(HttpToolsProtocol):
    """One HTTP connection to a client, with limits on the size, the number and the time of the headers."""

    # An object with more than thirty attributes in its dictionary needs another kilobyte. Uvicorn's class has nearly
    # that many.
    __slots__ = ("_body_bytes", "_deadline", "_headers", "_heading", "_reading", "_share", "_unparsed")

    head_bytes_max = HEAD_BYTES_MAX
    head_seconds_max = HEAD_SECONDS_MAX

    def __init__(self, unfinished: Unfinished, **options: Any) -> None:
        super().__init__(**options)
        # Headers of the request that is being read.
        self._headers = 0
        # Bytes of its body.
        self._body_bytes = 0
        # Bytes since the parser last finished headers, a part of a body, or a request.
        self._unparsed = 0
        # True while a request is being read; true while its headers are being read.
        self._reading = False
        self._heading = False
        # Timer that ends a connection if the headers, or the rest of a request that was answered early, do not come.
        self._deadline: asyncio.TimerHandle | None = None
        self._share = unfinished.share(self._too_much)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._share.close()
        super().connection_lost(exc)
        # A request and its connection refer to each other, and the garbage collector takes its time. The code that
        # answers the request has its own reference.
        self.cycle = None  # type: ignore[assignment]  # as before the first request
        self.pipeline.clear()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._forget_deadline()
                self._share.close()
                self.handle_websocket_upgrade()
                # The parser refers back to this protocol, which is no longer used.
                self.parser = None  # type: ignore[assignment]  # as uvicorn does it
                return
        except httptools.HttpParserError:
            if self._headers > HEADERS_MAX:
                self._reject(431, f"the request has more than {HEADERS_MAX} headers")
            else:
                self._reject(400, "this is not HTTP")
            return
        if self._unparsed > self.head_bytes_max:
            self._reject(431, f"the headers are larger than {self.head_bytes_max} bytes")
            return
        # The headers of a request are as large in memory as on the wire.
        self._share.report(self._unparsed)
        if self._heading and self._deadline is None and not self.transport.is_closing():
            self._expect_rest()

    # Called by the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading = self._heading = True
        self._headers = self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > HEADERS_MAX:
            # An exception in a callback ends the parsing.
            raise ValueError(f"more than {HEADERS_MAX} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._unparsed = 0
        self._heading = False
        self._forget_deadline()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._body_bytes += len(body)
        self._unparsed = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        newest = self._newest
        # The lengths differ if the application has received a part already, or if it has answered.
        if (
            newest is not None
            and len(newest.body) == self._body_bytes <= FREE_BYTES
            and not newest.waiting_for_100_continue
        ):
            newest.scope[SMALL_BODY] = bytes(newest.body)  # type: ignore[literal-required]  # a key of our own
        self._unparsed = 0
        self._reading = False
        self._forget_deadline()

    # Called for each request before its answer, and by a request after its answer.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        # Uvicorn makes the requests itself, and gives them to this method only.
        cycle.__class__ = HttpCycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._reading and not self.transport.is_closing():
            # The rest of a request that was answered early is discarded, but not for ever.
            self._expect_rest()

    # Inside.

    @property
    def _newest(self) -> RequestResponseCycle | None:
        # Uvicorn's own annotation does not say that this is `None` before the first request.
        return cast("RequestResponseCycle | None", self.cycle)

    @property
    def _answered(self) -> bool:
        return self._newest is not None and self._newest.response_complete

    def _expect_rest(self) -> None:
        self._forget_deadline()
        self._deadline = self.loop.call_later(self.head_seconds_max, self._too_late)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        if self._heading:
            self._reject(408, f"the headers did not come within {self.head_seconds_max:g} seconds")
        else:
            self.transport.close()

    def _too_much(self) -> None:
        self._reject(503, TOO_MUCH)

    def _reject(self, status: int, text: str) -> None:
        """Send an error answer to a request of which the rest cannot be read, and disconnect.

        If an answer has started already, only disconnect.
        """
        self._forget_deadline()
        if self._newest is None or self._answered or not self._newest.response_started:
            body = failure(status, text).body
            head = (STATUS_LINE[status], b"content-type: ", JSON, b"\r\ncontent-length: %d\r\n" % len(body))
            self.transport.write(b"".join((*head, b"connection: close\r\n\r\n", body)))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing. Uvicorn's own method would log a warning whenever a client offers a protocol such as HTTP/2."""
