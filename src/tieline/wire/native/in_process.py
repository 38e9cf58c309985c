"""A session of the hub's own protocol inside the hub: joins a `Client` to a `NativeConnection` without a socket.

Used by: protocols that are clients of the hub themselves, such as the tools for agents. Uses: `native.client` and
`native.server`. Requests and answers are encoded as on a socket, so the code of both sides is the same as on a socket.
"""

from collections.abc import Callable

from tieline.contract.hub import Hub
from tieline.wire.native import frames as f
from tieline.wire.native.client import Arriving, Client
from tieline.wire.native.server import NativeConnection, Transport

UNREAD_BYTES_MAX = 512 * 1024
"""Most bytes of deliveries that wait in a session for its reader. Further deliveries stay in the inbox, on disk. It is
also the size limit of a page of the inbox."""

_HUNG_UP = "the hub hung up"


class _ToClient(Transport):
    """Passes batches of frames from the hub to a client in this process."""

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
        """Do nothing. Batches need no size limit here, because the caller limits its own requests."""

    def await_hello(self) -> None:
        """Do nothing. A client in this process always sends its hello first."""

    abort = close

    def pause_reading(self) -> None:
        """Do nothing. The caller limits the number of its requests, and the connection queues them."""

    def resume_reading(self) -> None:
        """Do nothing, because `pause_reading` paused nothing."""


class _ToHub:
    """Passes batches of frames from a client to the hub in this process."""

    __slots__ = ("_connection",)

    def __init__(self, connection: NativeConnection) -> None:
        self._connection = connection

    def send(self, payload: bytes) -> None:
        self._connection.receive_batch(payload)

    async def drain(self) -> None:
        """Return at once, because nothing is buffered."""

    def close(self) -> None:
        self._connection.connection_lost()


class _Unread(Arriving[f.Deliver]):
    """Deliveries that the client has not read yet.

    Calls `full` when their size exceeds `UNREAD_BYTES_MAX`, and `drained` when it falls to half of that limit.
    """

    __slots__ = ("_bytes", "_drained", "_full", "_is_full", "_sizes")

    def __init__(self, full: Callable[[], None], drained: Callable[[], None]) -> None:
        super().__init__()
        self._full = full
        self._drained = drained
        self._is_full = False
        # Size of each delivery, and of all of them. A list, because an empty deque is large and most are empty.
        self._sizes: list[int] = []
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Size in bytes of all deliveries that the client has not read yet."""
        return self._bytes

    def add_bytes(self, batch_bytes: int) -> None:
        """Add the size of the deliveries in a new batch. `batch_bytes` is the size of the whole batch.

        The size is divided equally among the deliveries of the batch.
        """
        fresh = len(self._items or ()) - len(self._sizes)
        if fresh:
            self._sizes.extend([batch_bytes // fresh] * fresh)
            self._bytes += batch_bytes // fresh * fresh
        if self._bytes > UNREAD_BYTES_MAX and not self._is_full:
            self._is_full = True
            self._full()

    async def get(self) -> f.Deliver:
        """Wait for the next delivery and return it.

        If the connection has ended and no delivery is left, raise the error.
        """
        delivery = await super().get()
        self._bytes -= self._sizes.pop(0)
        if self._is_full and self._bytes <= UNREAD_BYTES_MAX // 2:
            self._is_full = False
            self._drained()
        return delivery


class Session(Client):
    """A client in the hub's own process. If it has too many unread bytes, further deliveries stay in the inbox."""

    def __init__(self, hub: Hub, protocol: str) -> None:
        super().__init__()
        self._connection = NativeConnection(
            hub, _ToClient(self), local=False, protocol=protocol, page_bytes_max=UNREAD_BYTES_MAX
        )
        self._unread = _Unread(self._connection.pause_deliveries, self._connection.resume_deliveries)
        self._deliveries = self._unread

    async def open(self, token: str, *, receive: bool, window: int) -> None:
        """Open the session of the token's member. Raises `HubRefused`."""
        await self.greet(_ToHub(self._connection), f.Hello(token=token, receive=receive, window=window))

    def receive_batch(self, payload: bytes | str) -> None:
        """Handle a batch of frames that came from the hub."""
        super().receive_batch(payload)
        self._unread.add_bytes(len(payload))


async def open_session(hub: Hub, token: str, protocol: str, *, receive: bool = False, window: int = 1) -> Session:
    """Open a session of the token's member. Raises `HubRefused`.

    With `receive`, the hub pushes deliveries. `window` is the limit of unacknowledged deliveries.
    """
    session = Session(hub, protocol)
    await session.open(token, receive=receive, window=window)
    return session
