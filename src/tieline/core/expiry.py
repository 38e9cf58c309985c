"""Expiry: marks deliveries as `expired` when their time to live has passed.

The broker calls this module at the beginning of each batch. The heap of deadlines is part of the broker's memory. If a
delivery fails to expire, it is tried again after a delay, which doubles with each failure. Without the delay, the same
delivery could fail in every batch, and no command could be decided.
"""

import heapq

from tieline.contract.delivery import State
from tieline.contract.keys import one_key
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Directory

Deadline = tuple[int, int, int]
"""Deadline of a delivery that can expire: the time, the member number and the key."""

_REST_MS_MIN = 60_000
_REST_MS_MAX = 3_600_000
"""Longest pause before the retry of a delivery that failed to expire."""


class Expiry:
    """Marks deliveries as expired. Remembers the deliveries for which this failed, and tries them again later."""

    __slots__ = ("_stuck",)

    def __init__(self) -> None:
        # By member number and key: the length of the pause, and its end.
        self._stuck: dict[tuple[int, int], tuple[int, int]] = {}

    def work(
        self, deadlines: list[Deadline], directory: Directory, deliveries: Deliveries, now_ms: int, most: int
    ) -> bool:
        """Mark due deliveries as expired. Return true if some may be left for the next batch.

        `deadlines` is a heap. `most` is the largest number of deadlines to handle in this call. If a delivery fails to
        expire, note it for a later retry and raise the exception.
        """
        for _ in range(most):
            if not deadlines or deadlines[0][0] > now_ms:
                return False
            _, number, key = heapq.heappop(deadlines)
            rest_ms, until_ms = self._stuck.get((number, key), (_REST_MS_MIN, 0))
            if until_ms > now_ms:
                heapq.heappush(deadlines, (until_ms, number, key))
                continue
            account = directory.accounts.get(number)
            try:
                if account is not None:
                    held = " while it was held" if account.inbox.is_held(key) else ""
                    deliveries.move(account, one_key(key), State.EXPIRED, evidence=f"time to live passed{held}")
                    if account.inbox.entry(key) is not None:
                        # The external inbox must reserve the delivery for the hub first. Try again later.
                        heapq.heappush(deadlines, (now_ms + _REST_MS_MIN, number, key))
            except Exception:
                # Pause this delivery longer than the chore, so that it does not block the others again.
                rest_ms = min(2 * rest_ms, _REST_MS_MAX)
                self._stuck[number, key] = rest_ms, now_ms + rest_ms
                raise
            self._stuck.pop((number, key), None)
        return True
