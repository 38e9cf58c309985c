"""Loads SQL statements by their names from a text, such as `queries.sql`."""

import re

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load(text: str) -> dict[str, str]:
    """Return the SQL statements in `text` by name. The name is in a comment above each statement."""
    parts = _NAME.split(text)[1:]
    return {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}
