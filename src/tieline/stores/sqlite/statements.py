"""The SQL statements of the SQLite stores by their names, from `queries.sql`."""

from importlib.resources import files

from tieline.stores.statements import load


def repeat(statement: str, count: int) -> str:
    """Return an SQL statement that inserts `count` rows, made from a statement that inserts one row."""
    head, keyword, row = statement.rpartition("VALUES")
    return head + keyword + ",".join([row] * count)


QUERIES = load(files("tieline.stores.sqlite").joinpath("queries.sql").read_text(encoding="utf-8"))
"""The statements by name."""
