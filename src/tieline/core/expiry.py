"""Expiry: deliveries whose time to live has passed.

Above: the broker, at the beginning of each batch. Below: the heap of deadlines, which is part of its memory. After a
fault all of this rests for a while, and the delivery that failed longer each time: it would raise again and again, and
nothing else would be decided.
"""

import heapq

from tieline.contract.delivery import State
from tieline.contract.keys import one_key
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Directory

Deadline = tuple[int, int, int]
"""(time, member number, key) of a delivery that can expire."""

_REST_MS_MIN = 60_000
_REST_MS_MAX = 3_600_000
"""A delivery that fails to expire again and again is tried once in this time."""


class Expiry:
    """The deliveries that could not be expired."""

    __slots__ = ("_stuck",)

    def __init__(self) -> None:
        # By member number and key: how long each rests, and until when.
        self._stuck: dict[tuple[int, int], tuple[int, int]] = {}

    def work(
        self, deadlines: list[Deadline], directory: Directory, deliveries: Deliveries, now_ms: int, most: int
    ) -> bool:
        """Expire what is due, though at most so many deliveries; says whether any are left for the next batch.

        If this raises, it has noted which delivery failed.
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
            except Exception:
                # Longer than the others rest, so that it is not in their way again.
                rest_ms = min(2 * rest_ms, _REST_MS_MAX)
                self._stuck[number, key] = rest_ms, now_ms + rest_ms
                raise
            self._stuck.pop((number, key), None)
        return True
