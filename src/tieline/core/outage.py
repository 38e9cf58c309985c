"""Outages of a store that is on another machine or in another process: it does not answer, and comes back later.

Used by: stores in a database, which wait for it in the middle of a call, and the local hub, which serves its clients
meanwhile. The broker does not notice an outage: the call returns when the store is back, with the same result.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tieline.core.store import DiskError

OnOutage = Callable[[DiskError], bool]
"""A function that a store calls again and again while it waits. It may block for some tenths of a second. If it returns
false, the store waits no longer and raises the error."""


@runtime_checkable
class Interruptible(Protocol):
    """Interface of a store that can have outages. If `on_outage` is `None`, the store raises the error at once."""

    on_outage: OnOutage | None
