"""The reference of `bench.peerbus`: the hub's own WebSocket carrier, with an echo behind it and nothing else.

`python -m bench.peerbus_echo` listens on a free port and prints its address.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import uvloop

from tieline.contract.limits import DEFAULT_LIMITS
from tieline.protocols.peerbus.connection import Carrier
from tieline.protocols.peerbus.server import PeerbusServer
from tieline.protocols.peerbus.websocket import WebSocketCarrier


class _Echo:
    """Sends every frame back; frames of one turn go back together."""

    def __init__(self, carrier: Carrier, *, silent: bool) -> None:
        self._carrier = carrier
        self._silent = silent
        self._frames: list[bytes] = []

    def receive_text(self, payload: bytes) -> None:
        """Keep a received frame until the end of the turn."""
        self._frames.append(payload)

    def finish_turn(self) -> None:
        """Send the frames of this turn back."""
        frames: Sequence[bytes] = self._frames
        self._frames = []
        if frames and not self._silent:
            self._carrier.send(frames)

    def __getattr__(self, name: str) -> Any:
        """Ignore every other call of a carrier."""
        return lambda *_: None


class EchoServer:
    """The part of a server that a carrier needs."""

    limits = DEFAULT_LIMITS

    def __init__(self, *, silent: bool = False) -> None:
        # A silent server takes frames and sends none back.
        self._silent = silent

    @property
    def server(self) -> PeerbusServer:
        """This server, typed as the server that a carrier expects."""
        return cast(PeerbusServer, self)

    @property
    def hub(self) -> "EchoServer":
        """The object from which a carrier reads limits."""
        return self

    def connect(self, carrier: Carrier) -> _Echo:
        """A new connection."""
        return _Echo(carrier, silent=self._silent)

    def enter(self, carrier: WebSocketCarrier) -> None:
        """Ignore a new carrier."""

    def leave(self, carrier: WebSocketCarrier) -> None:
        """Ignore that a carrier is gone."""


async def _serve() -> None:
    made = EchoServer()
    listener = await asyncio.get_running_loop().create_server(lambda: WebSocketCarrier(made.server), "127.0.0.1", 0)
    print(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve())
