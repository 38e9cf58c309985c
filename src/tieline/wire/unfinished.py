"""Unfinished messages: limits the memory for incomplete frames, requests and bodies, over all connections together.

Above: code that reads a connection; after each read it reports how much it holds. It refuses to know sockets.

Each connection has a `Share`. Strangers (clients that are not identified yet) have one limit. Members have another, so
that no stranger takes room from a member. Beyond a limit, the largest holder is refused: all connections of a member
count together, each connection of a stranger counts by itself. Small messages do not count, so a client that sends
only small messages is never refused.
"""

from collections.abc import Callable

from tieline.contract.limits import Limits

FREE_BYTES = 4096
"""Bytes of a connection that are not counted: about the cost of the connection itself."""

TOO_MUCH = "too many large messages are on their way to this hub at once; send yours again"


class _Pool:
    """One limit on unfinished bytes, and the connections' shares of it."""

    __slots__ = ("bytes_max", "held", "shares")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.shares: set[Share] = set()

    def relieve(self) -> None:
        """Refuse the connection that holds the most, again and again, until the rest is within the limit."""
        while self.held > self.bytes_max:
            sums: dict[str | int, int] = {}
            for share in self.shares:
                sums[share.owner] = sums.get(share.owner, 0) + share.held
            owner = max(sums, key=sums.__getitem__)
            max((share for share in self.shares if share.owner == owner), key=lambda share: share.held).refuse()


class Unfinished:
    """The two limits of one hub: one for clients that are not identified yet, one for members."""

    __slots__ = ("_members", "_strangers")

    def __init__(self, limits: Limits) -> None:
        self._strangers = _Pool(limits.strangers_bytes_max)
        self._members = _Pool(limits.unfinished_bytes_max)

    @property
    def held(self) -> int:
        """Bytes of unfinished frames that all connections buffer now. The first bytes of each are not counted."""
        return self._strangers.held + self._members.held

    def share(self, refused: Callable[[], None], owner: str | None = None) -> "Share":
        """Make the share of a new connection. `owner` is its member, `None` if the client is not identified yet.

        `refused` is called if the connection holds too much; it must end the connection.
        """
        share = Share(self._strangers, self._members, refused)
        if owner is not None:
            share.admit(owner)
        return share


class Share:
    """The count of the bytes of unfinished messages that one connection holds."""

    __slots__ = ("_members", "_pool", "_refused", "held", "owner")

    def __init__(self, strangers: _Pool, members: _Pool, refused: Callable[[], None]) -> None:
        # `None` if the share is closed.
        self._pool: _Pool | None = strangers
        self._members = members
        self._refused: Callable[[], None] | None = refused
        self.held = 0
        # Name of the member. A stranger's share has a value of its own.
        self.owner: str | int = id(self)

    def hold(self, size: int) -> None:
        """Report that the connection now holds this many bytes of an unfinished message."""
        pool = self._pool
        if size <= FREE_BYTES:
            size = 0
        if size == self.held or pool is None:
            return
        pool.held += size - self.held
        self.held = size
        if size:
            pool.shares.add(self)
            if pool.held > pool.bytes_max:
                pool.relieve()
        else:
            pool.shares.discard(self)

    def admit(self, owner: str) -> None:
        """Report that the client was identified as the member `owner`: from now on, the limit for members applies."""
        if self._pool is None:
            return
        held = self.held
        self.hold(0)
        self.owner = owner
        self._pool = self._members
        self.hold(held)

    def refuse(self) -> None:
        """End the connection, because it holds too much."""
        refused = self._refused
        assert refused is not None, "a closed share holds nothing"
        self.close()
        refused()

    def close(self) -> None:
        """Report that the connection is gone and holds nothing."""
        self.hold(0)
        self._pool = self._refused = None
