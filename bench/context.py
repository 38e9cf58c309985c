"""Context of every benchmark: how much to do, in which folder, and until when."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

QUICK_ROUNDS = 3
FULL_ROUNDS = 7


class Context:
    """One run of the benchmarks."""

    def __init__(
        self, folder: Path, *, quick: bool, rounds: int | None, minutes_max: float, duration_minutes: float = 15.0
    ) -> None:
        self.folder = folder
        self.quick = quick
        # Time for which `service` sends messages.
        self.duration_minutes = duration_minutes
        self.chance = random.Random(7117)
        self._rounds = rounds or (QUICK_ROUNDS if quick else FULL_ROUNDS)
        self._deadline = time.monotonic() + 60 * minutes_max
        # Benchmarks that ended early for lack of time.
        self.cut_short = 0

    def rounds(self) -> Iterator[int]:
        """Numbers of the rounds to run, at least one; ends early when the time is up."""
        for number in range(self._rounds):
            if number and time.monotonic() > self._deadline:
                self.cut_short += 1
                return
            yield number

    def scaled(self, count: int) -> int:
        """A count of the full run, scaled for this run."""
        return count // 4 if self.quick else count
