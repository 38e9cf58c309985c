"""Rate limit: allows at most a given number of events per key within a time window. The caller gives the time.

Memory is limited. Above `keys_max` keys, the key whose last event is the oldest is forgotten.
"""

from collections import deque
from collections.abc import Hashable


class RateLimit:
    """Counter of the events of each key (such as a member or an address) in the last `window_ms`.

    `most` is the number of events of one key that are allowed within this time. `keys_max` limits the number of keys.
    """

    def __init__(self, most: int, window_ms: int, keys_max: int = 10_000) -> None:
        self._most = most
        self._window_ms = window_ms
        self._keys_max = keys_max
        # Times of events by key, oldest first. The keys are in the order of their last event.
        self._counted: dict[Hashable, deque[int]] = {}

    def wait_ms(self, key: Hashable, now_ms: int) -> int:
        """Return the milliseconds until one more event of the key is allowed; 0 if an event is allowed now."""
        times = self._counted.get(key)
        if times is None:
            return 0
        while times and times[0] <= now_ms - self._window_ms:
            times.popleft()
        if not times:
            del self._counted[key]
            return 0
        return times[-self._most] + self._window_ms - now_ms if len(times) >= self._most else 0

    def count(self, key: Hashable, now_ms: int) -> None:
        """Count one event of the key, at the time `now_ms`."""
        times = self._counted.pop(key, None)
        if times is None:
            times = deque(maxlen=self._most)
            if len(self._counted) >= self._keys_max:
                del self._counted[next(iter(self._counted))]
        times.append(now_ms)
        self._counted[key] = times

    def clear(self, key: Hashable) -> None:
        """Forget all events of this key, so that new events are allowed again."""
        self._counted.pop(key, None)


def seconds(wait_ms: int) -> int:
    """Return a wait of `wait_ms` milliseconds in whole seconds, rounded up."""
    return -(-wait_ms // 1000)
