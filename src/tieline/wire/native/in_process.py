"""A session of the hub's own protocol inside the hub: joins a `Client` to a `NativeConnection` without a socket.

Above: protocols that use the hub as a program of the SDK does, such as the tools for agents. Below: `native.client` and
`native.server`. Requests and answers are encoded as on a socket, so both sides are the same code in both places.
"""

from tieline.contract.hub import Hub
from tieline.wire.native import frames as f
from tieline.wire.native.client import Client
from tieline.wire.native.server import NativeConnection, Transport

_HUNG_UP = "the hub hung up"


class _ToClient(Transport):
    """Carries batches from the hub to a client in this process."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client: Client | None = client

    def send(self, payload: bytes) -> None:
        if self._client is not None:
            self._client.receive_batch(payload)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.connection_lost(_HUNG_UP)

    def admit(self, owner: str) -> None:
        """Do nothing: the caller limits the size of requests."""

    def await_hello(self) -> None:
        """Do nothing: the client says hello at once."""

    abort = close

    def pause_reading(self) -> None:
        """Do nothing: the caller limits the number of requests, and the connection queues them."""

    def resume_reading(self) -> None:
        """Do nothing: nothing was paused."""


class _ToHub:
    """Carries batches from a client to the hub of this process."""

    __slots__ = ("_connection",)

    def __init__(self, connection: NativeConnection) -> None:
        self._connection = connection

    def send(self, payload: bytes) -> None:
        self._connection.receive_batch(payload)

    async def drain(self) -> None:
        """Return at once: nothing is buffered."""

    def close(self) -> None:
        self._connection.connection_lost()


class Session(Client):
    """A client in the hub's own process."""

    def __init__(self, hub: Hub, protocol: str) -> None:
        super().__init__()
        self._connection = NativeConnection(hub, _ToClient(self), local=False, protocol=protocol)

    async def open(self, token: str, *, receive: bool, window: int) -> None:
        """Open the session of the token's member. Raises `HubRefused`."""
        await self.greet(_ToHub(self._connection), f.Hello(token=token, receive=receive, window=window))

    def pause(self) -> None:
        """Stop deliveries, because their reader is too slow: they stay in the inbox."""
        self._connection.pause_writing()

    def resume(self) -> None:
        """Continue with deliveries."""
        self._connection.resume_writing()


async def open_session(hub: Hub, token: str, protocol: str, *, receive: bool = False, window: int = 1) -> Session:
    """Open a session of the token's member. With `receive` the hub pushes deliveries. Raises `HubRefused`."""
    session = Session(hub, protocol)
    await session.open(token, receive=receive, window=window)
    return session
