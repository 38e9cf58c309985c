"""The display of a run: how many events were read, how fast, which table is at work, and how long it will take.

Above: `tieline pipeline run`. Below: the terminal, where a line is drawn again and again; elsewhere a line for each
batch goes to stderr.
"""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tieline.pipeline.lake import Commit


class Display:
    """What a person sees of a run."""

    def __init__(self, waiting: int, *, quiet: bool) -> None:
        self._waiting = waiting
        self._quiet = quiet
        self._begun = time.monotonic()
        self._batch = 0
        self._table = "starting Spark"
        self._read = 0
        self._live = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def stage(self, name: str) -> None:
        """A table is at work."""
        self._table = name
        self._draw()

    def done(self, commit: "Commit") -> None:
        """A batch is in the lake."""
        self._batch += 1
        self._read += commit.written.get("bronze", 0)
        if self._live:
            self._draw()
        elif not self._quiet:
            print(f"batch {self._batch}: {self._line()}", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._live:
            print(f"\r\x1b[K{self._line()}, {self._table}", end="", file=sys.stderr, flush=True)

    def _line(self) -> str:
        rate = self._read / max(0.001, time.monotonic() - self._begun)
        left = max(0, self._waiting - self._read) / rate if rate else 0
        remaining = f", {left:.0f} s left" if left else ""
        return f"{self._read:,} of {max(self._waiting, self._read):,} events, {rate:,.0f}/s{remaining}"
