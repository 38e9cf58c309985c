"""Unfinished messages: the bytes of frames, requests and bodies that are not whole yet, bounded over all connections.

Above: whatever reads a connection; it says how much it holds after each read. It refuses to know sockets.

Each connection has a `Share`. Strangers, who have not shown who they are, have one bound, members another, so that no
stranger takes room from a member. When a bound is passed, whoever holds most is refused: a member by all its
connections together, a stranger by the one. Small messages do not count, so nobody who says little is ever refused.
"""

from collections.abc import Callable

from tieline.contract.limits import Limits

FREE_BYTES = 4096
"""What a connection may hold without being counted: as much as the connection costs by itself."""

TOO_MUCH = "too many large messages are on their way to this hub at once; send yours again"


class _Pool:
    """One bound, and who holds something of it."""

    __slots__ = ("bytes_max", "held", "shares")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.shares: set[Share] = set()

    def relieve(self) -> None:
        """Refuse whoever holds most, until the rest fits."""
        while self.held > self.bytes_max:
            sums: dict[str | int, int] = {}
            for share in self.shares:
                sums[share.owner] = sums.get(share.owner, 0) + share.held
            owner = max(sums, key=sums.__getitem__)
            max((share for share in self.shares if share.owner == owner), key=lambda share: share.held).refuse()


class Unfinished:
    """Both bounds of one hub."""

    __slots__ = ("_members", "_strangers")

    def __init__(self, limits: Limits) -> None:
        self._strangers = _Pool(limits.strangers_bytes_max)
        self._members = _Pool(limits.unfinished_bytes_max)

    @property
    def held(self) -> int:
        """Bytes that count, of strangers and of members."""
        return self._strangers.held + self._members.held

    def share(self, refused: Callable[[], None], owner: str | None = None) -> "Share":
        """The share of a new connection: a stranger's, unless its owner is known. `refused` must end the connection."""
        share = Share(self._strangers, self._members, refused)
        if owner is not None:
            share.admit(owner)
        return share


class Share:
    """What one connection holds."""

    __slots__ = ("_members", "_pool", "_refused", "held", "owner")

    def __init__(self, strangers: _Pool, members: _Pool, refused: Callable[[], None]) -> None:
        # `None` when it is closed.
        self._pool: _Pool | None = strangers
        self._members = members
        self._refused: Callable[[], None] | None = refused
        self.held = 0
        # A member's name; a stranger is nobody but this connection.
        self.owner: str | int = id(self)

    def hold(self, size: int) -> None:
        """The connection holds this many bytes of an unfinished message now."""
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
        """The connection is no stranger's any more."""
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
        self.close()
        if refused is not None:
            refused()

    def close(self) -> None:
        """The connection holds nothing any more."""
        self.hold(0)
        self._pool = self._refused = None
