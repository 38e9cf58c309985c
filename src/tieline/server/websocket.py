"""WebSockets within bounds: uvicorn's protocol on the sans-I/O one of `websockets`, for strangers to try.

Above: the HTTP port, and the protocols that have streams on it. Below: uvicorn, which takes what the library makes of
the bytes, and waits for ever where the library has answered an opening request by itself.
"""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One connection."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # The library refused the opening request: its answer is all that there is to say.
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
