"""A rate limit: so many of something in so long a time, for each key. It has no clock; the caller gives the time.

Memory is bounded: past `keys_max` the key that was counted longest ago is forgotten.
"""

from collections import deque
from collections.abc import Hashable


class RateLimit:
    """Counts what each key did in the last `window_ms`."""

    def __init__(self, most: int, window_ms: int, keys_max: int = 10_000) -> None:
        self._most = most
        self._window_ms = window_ms
        self._keys_max = keys_max
        # The times of each key, oldest first; keys in the order of their last time.
        self._counted: dict[Hashable, deque[int]] = {}

    def wait_ms(self, key: Hashable, now_ms: int) -> int:
        """Milliseconds until the key may do one more; 0 when it may now."""
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
        """Count one more of this key."""
        times = self._counted.pop(key, None)
        if times is None:
            times = deque(maxlen=self._most)
            if len(self._counted) >= self._keys_max:
                del self._counted[next(iter(self._counted))]
        times.append(now_ms)
        self._counted[key] = times

    def clear(self, key: Hashable) -> None:
        """Count from zero again."""
        self._counted.pop(key, None)

    def __len__(self) -> int:
        return len(self._counted)


def seconds(wait_ms: int) -> int:
    """A wait as it is said on the wire: whole seconds, never too few."""
    return -(-wait_ms // 1000)
