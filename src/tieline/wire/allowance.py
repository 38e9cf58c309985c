"""An allowance: so many of something in so long a time, for each key. It has no clock; the caller says what time it is.

Memory is bounded: past `keys_max` the key that was spent from longest ago is forgotten.
"""

from collections import deque
from collections.abc import Hashable


class Allowance:
    """What may still be spent."""

    def __init__(self, most: int, window_ms: int, keys_max: int = 10_000) -> None:
        self._most = most
        self._window_ms = window_ms
        self._keys_max = keys_max
        # When each key was spent from, oldest first; keys in the order of their last time.
        self._spent: dict[Hashable, deque[int]] = {}

    def wait_ms(self, key: Hashable, now_ms: int) -> int:
        """How long until something may be spent; 0 when it may be now."""
        spent = self._spent.get(key)
        if spent is None:
            return 0
        while spent and spent[0] <= now_ms - self._window_ms:
            spent.popleft()
        if not spent:
            del self._spent[key]
            return 0
        return spent[-self._most] + self._window_ms - now_ms if len(spent) >= self._most else 0

    def spend(self, key: Hashable, now_ms: int) -> None:
        """Count one."""
        spent = self._spent.pop(key, None)
        if spent is None:
            spent = deque(maxlen=self._most)
            if len(self._spent) >= self._keys_max:
                del self._spent[next(iter(self._spent))]
        spent.append(now_ms)
        self._spent[key] = spent

    def clear(self, key: Hashable) -> None:
        """Count from zero again."""
        self._spent.pop(key, None)

    def __len__(self) -> int:
        return len(self._spent)


def seconds(wait_ms: int) -> int:
    """A wait as it is said on the wire: whole seconds, never too few."""
    return -(-wait_ms // 1000)
