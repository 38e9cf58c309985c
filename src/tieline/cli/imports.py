"""`tieline import`: imports the data of another system into a hub's home.

Used by: the command line. Uses: the protocols that can import their system's data. Each adds its own command here.
"""

from collections.abc import Sequence

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, warn

import_app = typer.Typer(help="Import the data of another system.", no_args_is_help=True)

_SHOWN_MAX = 20  # a screen; --json has all


def tell_left(left: Sequence[str]) -> None:
    """Print the lines of `left`, which name data that could not be imported. Raise `Failure` if there are any."""
    if not left:
        return
    for line in left[:_SHOWN_MAX]:
        warn(neutral_line(f"  not imported: {line}"))
    if len(left) > _SHOWN_MAX:
        warn(f"  … and {len(left) - _SHOWN_MAX} more; --json has them")
    raise Failure(Exit.FAILED, f"{len(left)} could not be imported, and are unchanged")
