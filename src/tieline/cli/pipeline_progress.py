"""The progress display of `pipeline run`: events read, rate, current table, and remaining time.

Used by: `tieline pipeline run`. Uses: the terminal, where one line is redrawn. Without a terminal, each batch prints
one line to stderr.
"""

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tieline.cli.output import neutral_line, warn

if TYPE_CHECKING:
    from tieline.pipeline.lake import Commit

_WIDTH = 80
"""Width of the line in characters, if the terminal does not report its width."""
_MINUTE = 60
_HOUR = 3600


class Display:
    """Progress display of one run of the pipeline: one line on a terminal. Without a terminal, one line per batch."""

    def __init__(self, waiting: int, *, quiet: bool) -> None:
        self._waiting = waiting
        self._quiet = quiet
        # Time of the first table's work: the start of Spark does not count for the rate.
        self._begun: float | None = None
        self._batch = 0
        self._table = ""
        self._read = 0
        self._live = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._draw("Starting Spark …")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def stage(self, name: str) -> None:
        """Show the name of the table that is being written."""
        if self._begun is None:
            self._begun = time.monotonic()
        self._table = name
        self._draw(f"{self._line()}, batch {self._batch + 1}: {name}")

    def done(self, commit: "Commit") -> None:
        """Show that a batch is complete in the tables. `commit` has the number of its rows."""
        self._batch += 1
        self._read += commit.written.get("bronze", 0)
        if self._live:
            self._draw(self._line())
        elif not self._quiet:
            print(f"batch {self._batch}: {self._line()}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Print a line that stays on the screen. The line goes to stderr, also with `--json`."""
        self._clear()
        warn(neutral_line(text))

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self, line: str) -> None:
        if self._live:
            # A line as wide as the terminal would wrap to a second line.
            print(f"\r\x1b[K{line[: _columns() - 1]}", end="", file=sys.stderr, flush=True)

    def _line(self) -> str:
        read = f"{self._read:,} of {max(self._waiting, self._read):,} events"
        elapsed = time.monotonic() - (self._begun or time.monotonic())
        if not self._read or elapsed <= 0:
            return read
        rate = self._read / elapsed
        left = max(0, self._waiting - self._read) / rate
        return f"{read}, {rate:,.0f}/s" + (f", {_duration(left)} left" if left else "")


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
    except (OSError, ValueError):
        return _WIDTH


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
