"""Outages of a store on another machine or in another process: for a while, the store does not answer.

Used by: stores that are in a database server, and the local hub. During an outage, a call to the store waits until the
server is back, and the hub goes on serving its clients. The broker does not notice the outage: the call returns later,
with the same result.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tieline.core.store import DiskError

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
