"""The overview: what `tieline --help` prints, on one screen of 80 columns and 50 lines.

Used by: `main`. Commands that belong together share a line. The help of each command says the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

_COLUMN = 25
"""Column in which the sentences begin. Longer names are followed by their sentence at once."""

Line = tuple[str, str]
"""A line of the overview: the names of commands, and a sentence about them."""


class Overview(TyperGroup):
    """The command `tieline` itself. Its help is the overview."""

    lines: Mapping[str, Sequence[Line]] = {}
    """Lines by their heading. The module with the commands sets them."""
    notes: Sequence[str] = ()
    """Text at the end."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the overview."""
        formatter.write(f"Usage: {ctx.command_path} COMMAND [ARGUMENTS]\n\n{self.help}\n")
        for heading, lines in self.lines.items():
            formatter.write(f"\n{heading}\n")
            for names, sentence in lines:
                formatter.write(f"  {names:<{_COLUMN - 4}}  {sentence}\n")
        formatter.write("\n" + "\n".join(self.notes) + "\n")
