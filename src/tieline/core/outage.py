"""Outages of a store on another machine or in another process: for a while, the store does not answer or is not ours.

Used by: stores that are in a database server, and the local hub. During an outage, a call to the store waits until the
server is back, and the hub goes on serving its clients. The broker does not notice the outage: the call returns later,
with the same result. If another hub takes the store over, the lease is lost, and the hub must give up.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tieline.core.store import DiskError, StoreError


class OutOfDate(StoreError):
    """Error: the hub's memory does not belong to its store any more, because another hub has taken over the store.

    The hub cannot write. It must give up its sessions and restore itself from the store.
    """


class LeaseHeld(StoreError):
    """Error: another hub has the right to write to the store now."""


OnOutage = Callable[[DiskError], bool]
"""A function that a store calls again and again while it waits. It may block for some tenths of a second. If it returns
false, the store waits no longer and raises the error."""


@runtime_checkable
class Interruptible(Protocol):
    """Interface of a store that can have outages.

    In an outage, the store calls `on_outage` again and again while it waits. If `on_outage` is `None`, the store does
    not wait, and raises the error at once.
    """

    on_outage: OnOutage | None


class Lease(Protocol):
    """Interface of a lease: the right of this hub to write to its store, which another hub may take over."""

    lost: OutOfDate | None
    """The error with which the right was lost; `None` as long as this hub has it."""
    on_lost: Callable[[OutOfDate], None] | None
    """Called once when the right is lost, on any thread."""


@runtime_checkable
class Leased(Protocol):
    """Interface of a store that several hubs may write to, one after the other."""

    lease: Lease
