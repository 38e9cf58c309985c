"""A session of the hub's own protocol inside the hub: joins a `Client` to a `NativeConnection` without a socket.

Used by: protocols that are clients of the hub themselves, such as the tools for agents. Uses: `native.client` and
`native.server`. Requests and answers are encoded as on a socket, so both sides need no other code than on a socket.
"""

from collections.abc import Callable

from tieline.contract.hub import Hub
from tieline.wire.native import frames as f
from tieline.wire.native.client import Arriving, Client
from tieline.wire.native.server import NativeConnection, Transport

UNREAD_BYTES_MAX = 512 * 1024
"""Most bytes of deliveries that wait in a session for its reader. Further deliveries stay in the inbox, on disk. This
is also the size limit of a page of the inbox."""

_HUNG_UP = "the hub hung up"


class _ToClient(Transport):
    """The hub's end of a connection inside one process: passes batches (JSON arrays of answers) to the client."""

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
        """Do nothing, because this transport never limits the size of batches. The caller limits its own requests."""

    def await_hello(self) -> None:
        """Do nothing. A client in this process always sends its login (`hello`) in its first batch."""

    abort = close

    def pause_reading(self) -> None:
        """Do nothing, because there is no socket to pause. The connection queues the requests of the client."""

    def resume_reading(self) -> None:
        """Do nothing, because `pause_reading` paused nothing."""


class _ToHub:
    """The client's end of a connection inside one process: passes batches (JSON arrays of requests) to the hub."""

    __slots__ = ("_connection",)

    def __init__(self, connection: NativeConnection) -> None:
        self._connection = connection

    def send(self, payload: bytes) -> None:
        self._connection.receive_batch(payload)

    async def drain(self) -> None:
        """Return at once, because batches are passed on directly and never wait."""

    def close(self) -> None:
        self._connection.connection_lost()


class _Unread(Arriving[f.Deliver]):
    """Queue of deliveries that the client has not read yet.

    `full` is called when the size of these deliveries exceeds `UNREAD_BYTES_MAX`. `drained` is called when the size has
    fallen to half of that limit.
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
        """Count the size of the deliveries that a new batch brought. `batch_bytes` is the size of the whole batch.

        Each delivery of the batch gets an equal part of this size.
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

        If the connection has ended and no delivery is left, raise the error that ended the connection.
        """
        delivery = await super().get()
        self._bytes -= self._sizes.pop(0)
        if self._is_full and self._bytes <= UNREAD_BYTES_MAX // 2:
            self._is_full = False
            self._drained()
        return delivery


class Session(Client):
    """Client of the hub's own protocol inside the hub's process.

    If too many bytes of deliveries are unread, further deliveries stay in the inbox.
    """

    def __init__(self, hub: Hub, protocol: str) -> None:
        super().__init__()
        self._connection = NativeConnection(
            hub, _ToClient(self), local=False, protocol=protocol, page_bytes_max=UNREAD_BYTES_MAX
        )
        self._unread = _Unread(self._connection.pause_deliveries, self._connection.resume_deliveries)
        self._deliveries = self._unread

    async def open(self, token: str, *, receive: bool, window: int) -> None:
        """Log in as the member of `token`. Raises `HubRefused` if the token is not valid.

        With `receive`, the hub pushes deliveries. `window` is the limit of unacknowledged deliveries.
        """
        await self.greet(_ToHub(self._connection), f.Hello(token=token, receive=receive, window=window))

    def receive_batch(self, payload: bytes | str) -> None:
        """Handle a batch of frames (JSON answers and deliveries) that came from the hub."""
        super().receive_batch(payload)
        self._unread.add_bytes(len(payload))


async def open_session(hub: Hub, token: str, protocol: str, *, receive: bool = False, window: int = 1) -> Session:
    """Open a session for the member of `token`, and return it. Raises `HubRefused` if the token is not valid.

    `protocol` is the name of the protocol that uses the session. With `receive`, the hub pushes deliveries. `window` is
    the limit of unacknowledged deliveries.
    """
    session = Session(hub, protocol)
    try:
        await session.open(token, receive=receive, window=window)
    except BaseException:
        # A caller that was cancelled never gets the session, so nobody else can end it.
        await session.close()
        raise
    return session
