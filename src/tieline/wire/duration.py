"""Durations as people write them: a number and a unit, such as `30s`, `5m`, `24h` or `7d`."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def parse_duration(text: str, days_max: int) -> int:
    """Return a duration such as `90m` in seconds, from 1 second to `days_max` days.

    Raises `ValueError` for any other text. The text of the error is the rest of a sentence that begins with the name of
    the option.
    """
    number, unit = text[:-1], _SECONDS.get(text[-1:])
    if unit is None or not (number.isascii() and number.isdecimal()) or not 0 < int(number) * unit <= days_max * 86_400:
        raise ValueError(f"takes a number and s, m, h or d, at most {days_max}d; for example 90m")
    return int(number) * unit
