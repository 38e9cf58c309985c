"""The overview: what `tieline --help` prints, on one screen of 80 columns and 40 lines.

Used by: `main`. Commands that belong together share a line. The help of each command has the details.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperGroup

_COLUMN = 27
"""Column in which the sentences begin. Longer names are followed by their sentence at once."""

EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 4 no hub, 5 timeout, 6 missed"
"""Exit codes in one line, at the end. `docs/reference.md` has their whole meaning."""

BEGIN = "Begin: tieline serve, then tieline connect. Documentation: /docs of the hub"
"""The first two commands of a newcomer, and the place of the documentation."""

Line = tuple[str, str]
"""A line of the overview: the names of commands, and a sentence about them."""


class Overview(TyperGroup):
    """The command `tieline` itself. Its help is an overview of all commands."""

    lines: Mapping[str, Sequence[Line]] = {}
    """Lines by their heading. The module with the commands sets them."""
    notes: Sequence[str] = ()
    """Text that only the man page has."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the overview."""
        own = ctx.command_path
        formatter.write(f"{self.help}\n")
        formatter.write(f"Usage: {own} COMMAND [ARGUMENTS]; '{own} COMMAND --help' has examples\n")
        formatter.write(f"{BEGIN}\n")
        for heading, lines in self.lines.items():
            formatter.write(f"\n{heading}\n")
            for names, sentence in lines:
                formatter.write(f"  {names:<{_COLUMN - 4}}  {sentence}\n")
        formatter.write(f"\n{EXIT_CODES}\n")
