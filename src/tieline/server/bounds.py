"""HTTP/1.1 within bounds: uvicorn's protocol, with a limit to what a client may send before it has asked anything.

Above: the HTTP port. Below: uvicorn and its parser, which would hold headers of any size and wait for them for ever. A
client that breaks HTTP gets an answer in JSON like any other, and is no line in the log.
"""

import asyncio
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tieline.wire.http import JSON, failure
from tieline.wire.unfinished import TOO_MUCH, Unfinished

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers, or the trailers after a body: far above any client's, tokens and cookies included."""
HEADERS_MAX = 128
"""Headers of one request, trailers included: browsers send some thirty. Each costs far more memory than its bytes."""
HEAD_SECONDS_MAX = 10.0
"""From the first byte, or the connection, to the end of the headers."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    head_bytes_max = HEAD_BYTES_MAX
    head_seconds_max = HEAD_SECONDS_MAX

    # Headers of the request that is being read.
    _headers = 0
    # Bytes since the parser last came to the end of something.
    _unparsed = 0
    # Whether a request is being read, and whether its headers are.
    _reading = False
    _heading = False
    # Ends a connection whose headers, or the rest of a request that was answered early, do not come.
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, unfinished: Unfinished, **options: Any) -> None:
        super().__init__(**options)
        self._share = unfinished.share(self._too_much)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._share.close()
        super().connection_lost(exc)
        # A request and its connection refer to each other, and the garbage collector takes its time; whoever answers
        # the request has hold of it.
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
                # It refers back to this protocol, which is done.
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
        self._share.hold(self._unparsed)
        if self._heading and self._deadline is None and not self.transport.is_closing():
            self._expect_rest()

    # What the parser calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading = self._heading = True
        self._headers = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > HEADERS_MAX:
            # What a callback raises ends the parsing.
            raise ValueError(f"more than {HEADERS_MAX} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._unparsed = 0
        self._heading = False
        self._forget_deadline()

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._unparsed = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unparsed = 0
        self._reading = False
        self._forget_deadline()

    # What a request calls when it has its answer.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._reading and not self.transport.is_closing():
            # The rest of what was answered early is thrown away, but not for ever.
            self._expect_rest()

    # Inside.

    @property
    def _newest(self) -> RequestResponseCycle | None:
        # Uvicorn's own annotation leaves out that there is none before the first request.
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
        """Answer what cannot be read any further, unless an answer is on its way already, and hang up."""
        self._forget_deadline()
        if self._newest is None or self._answered or not self._newest.response_started:
            body = failure(status, text).body
            head = (STATUS_LINE[status], b"content-type: ", JSON, b"\r\ncontent-length: %d\r\n" % len(body))
            self.transport.write(b"".join((*head, b"connection: close\r\n\r\n", body)))
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Clients offer what this port does not speak (HTTP/2, for one) as a matter of course."""
