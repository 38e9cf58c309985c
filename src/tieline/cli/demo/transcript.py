"""The transcript: lines for the person who watches the demo, printed slowly enough to read.

Used by: `script`. Uses: the output. A terminal gets one colour for each protocol, any other output gets plain lines.
The name of the protocol is also on the line, so that nobody needs the colour.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tieline.cli.output import neutral_line
from tieline.protocols import protocols

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {protocol.name: protocol.terminal_colour for protocol in protocols()} | {"tieline": "default"}
_PAUSE_SECONDS = 0.25
_PACED_SECONDS = 11.5
"""Seconds that the whole demo should take. The remaining time is divided among the remaining pauses, so that a slow
machine makes shorter pauses."""
_PAUSES = 34
"""Approximate number of pauses in a run of the demo."""
_PROTOCOL_WIDTH = max(map(len, COLOURS))
_WHO_WIDTH = 20


class Line(Struct, frozen=True):
    """One line of the demo's transcript: an action or message of `who`, to `whom`, with its protocol and time."""

    at_ms: int
    """Milliseconds since the demo began."""
    protocol: str
    who: str
    whom: str
    text: str


def _colours() -> "Console":
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


class Transcript:
    """Prints the lines of the demo as they come. If `silent`, only stores them."""

    def __init__(self, *, fast: bool, silent: bool) -> None:
        self.lines: list[Line] = []
        self._fast = fast
        self._silent = silent
        # Number of pauses so far.
        self._pauses = 0
        self._began = time.monotonic()
        self._console = None if silent or not sys.stdout.isatty() else _colours()

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    async def scene(self, title: str) -> None:
        """Print the heading of a scene."""
        await self._pause()
        self._print(("", ""))
        self._print((title, "bold"))

    async def line(self, protocol: str, who: str, whom: str, text: str) -> None:
        """Print and store a line: `who` did something or sent a message (`text`), to `whom`, by `protocol`."""
        line = Line(round(self.seconds * 1000), protocol, who, whom, text)
        self.lines.append(line)
        await self._pause()
        colour = COLOURS[protocol]
        both = f"{who} → {whom}" if whom else who
        self._print(
            (f"{line.at_ms / 1000:6.2f}  ", "dim"),
            (f"{protocol:<{_PROTOCOL_WIDTH}}  ", colour),
            (f"{neutral_line(both):<{_WHO_WIDTH}}  ", f"bold {colour}"),
            (neutral_line(text), ""),
        )

    def heard(self, players: Sequence[tuple[str, str]]) -> None:
        """Print the names of the agents that received the last message.

        Each of `players` is an agent's name and protocol.
        """
        self._print((" " * 10 + "heard by ", "dim"), *self._names(players))

    def _names(self, players: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        parts: list[tuple[str, str]] = []
        for name, protocol in players:
            parts.append((f"{', ' if parts else ''}{name} ({protocol})", COLOURS[protocol]))
        return parts

    def remark(self, text: str) -> None:
        """Print a line of plain text."""
        self._print((text, ""))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under column names."""
        from tieline.cli.output import print_table

        if not self._silent:
            print_table(columns, rows, empty="nothing")

    def _print(self, *parts: tuple[str, str]) -> None:
        if self._silent:
            return
        if self._console is None:
            print("".join(text for text, _ in parts).rstrip(), flush=True)
            return
        from rich.text import Text

        self._console.print(Text.assemble(*parts))

    async def _pause(self) -> None:
        if self._fast or self._silent:
            return
        self._pauses += 1
        left = (_PACED_SECONDS - self.seconds) / max(1, _PAUSES - self._pauses)
        await asyncio.sleep(max(0.0, min(_PAUSE_SECONDS, left)))
