"""Unfinished messages: limits the memory for incomplete frames, requests and bodies of all connections together.

Used by: code that reads from a connection. After each read it reports the number of incomplete bytes that it holds.
This module knows no sockets.

Each connection has a `Share`. There are two limits: one for strangers (clients that are not identified yet) and one for
members, so that strangers cannot use up the memory of members. Above a limit, the client that holds the most bytes is
refused. All connections of a member count together; each connection of a stranger counts alone. Small messages do not
count, so a client that sends only small messages is never refused.
"""

from collections.abc import Callable

from tieline.contract.limits import Limits

FREE_BYTES = 4096
"""Number of bytes of an unfinished message that are not counted. An idle connection uses about as much memory."""

TOO_MUCH = "too many large messages are on their way to this hub at once; send yours again"


class _Pool:
    """A limit on the bytes of unfinished messages, with the counters (`Share`) of its connections."""

    __slots__ = ("bytes_max", "shares", "size")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size = 0
        self.shares: set[Share] = set()

    def enforce(self) -> None:
        """Refuse connections until the limit is kept.

        Each time, choose the client that holds the most bytes, and refuse its largest connection.
        """
        while self.size > self.bytes_max:
            sums: dict[str | int, int] = {}
            for share in self.shares:
                sums[share.owner] = sums.get(share.owner, 0) + share.size
            owner = max(sums, key=sums.__getitem__)
            max((share for share in self.shares if share.owner == owner), key=lambda share: share.size).refuse()


class Unfinished:
    """The two limits of one hub on the bytes of unfinished messages.

    One limit is for members, the other limit is for clients that are not identified yet.
    """

    __slots__ = ("_members", "_strangers")

    def __init__(self, limits: Limits) -> None:
        self._strangers = _Pool(limits.strangers_bytes_max)
        self._members = _Pool(limits.unfinished_bytes_max)

    @property
    def size(self) -> int:
        """Number of bytes of unfinished messages that all connections hold now.

        A connection with at most `FREE_BYTES` is not counted.
        """
        return self._strangers.size + self._members.size

    def share(self, refused: Callable[[], None], owner: str | None = None) -> "Share":
        """Return a counter of unfinished bytes for a new connection.

        `owner` is the connection's member; `None` if it is not known yet. `refused` is called if the connection holds
        too many bytes. This callback must end the connection.
        """
        share = Share(self._strangers, self._members, refused)
        if owner is not None:
            share.admit(owner)
        return share


class Share:
    """Counter of the bytes of unfinished messages that one connection holds."""

    __slots__ = ("_members", "_pool", "_refused", "owner", "size")

    def __init__(self, strangers: _Pool, members: _Pool, refused: Callable[[], None]) -> None:
        # `None` if the share is closed.
        self._pool: _Pool | None = strangers
        self._members = members
        self._refused: Callable[[], None] | None = refused
        self.size = 0
        # Name of the member. A stranger's share has a value of its own.
        self.owner: str | int = id(self)

    def report(self, size: int) -> None:
        """Record that the connection now holds `size` bytes of an unfinished message.

        This may refuse the largest connection.
        """
        pool = self._pool
        if size <= FREE_BYTES:
            size = 0
        if size == self.size or pool is None:
            return
        pool.size += size - self.size
        self.size = size
        if size:
            pool.shares.add(self)
            if pool.size > pool.bytes_max:
                pool.enforce()
        else:
            pool.shares.discard(self)

    def admit(self, owner: str) -> None:
        """Record that the client is now known to be the member `owner`. From now on, the limit for members applies."""
        if self._pool is None:
            return
        size = self.size
        self.report(0)
        self.owner = owner
        self._pool = self._members
        self.report(size)

    def refuse(self) -> None:
        """Call the callback that ends the connection, because the connection holds too many bytes."""
        refused = self._refused
        assert refused is not None, "a closed share holds nothing"
        self.close()
        refused()

    def close(self) -> None:
        """Record that the connection is closed, so that its bytes no longer count."""
        self.report(0)
        self._pool = self._refused = None
