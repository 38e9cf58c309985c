"""Loads SQL statements by their names from a text, such as `queries.sql`."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def repeat(statement: str, count: int) -> str:
    """Return an SQL statement that inserts `count` rows, made from a statement that inserts one row."""
    head, keyword, row = statement.rpartition("VALUES")
    return head + keyword + ",".join([row] * count)


def load(text: str) -> dict[str, str]:
    """Return the SQL statements in `text` by name. The name is in a comment above each statement."""
    parts = _NAME.split(text)[1:]
    return {name: statement.strip() for name, statement in zip(parts[::2], parts[1::2], strict=True)}


QUERIES = load(files("tieline.stores.sqlite").joinpath("queries.sql").read_text(encoding="utf-8"))
