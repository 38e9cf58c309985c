"""Durations as options of the command line, such as `--for 90m`."""

from tieline.cli.failure import Exit, Failure
from tieline.wire.duration import parse_duration

_DAYS_MAX = 366
"""Longest duration in days: a year. Whoever means for ever says so in another way."""


def duration_option(text: str, option: str, days_max: int = _DAYS_MAX) -> int:
    """Return the seconds in a duration such as `90m`. For other text, raise a `Failure` that names `option`."""
    try:
        return parse_duration(text, days_max)
    except ValueError as error:
        raise Failure(Exit.USAGE, f"{option} {error}") from error
