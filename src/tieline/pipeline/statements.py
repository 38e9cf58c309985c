"""Gets the SQL statements of `tables/statements.sql` by name, with their parts filled in.

Used by: the tables, and `flow`. A statement in parentheses stands for its rows, so it can be a part of another one.
"""

import re
from importlib.resources import files
from string import Template

from tieline.stores.statements import load

_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_STATEMENTS = {
    name: Template(_COMMENT.sub("", text).strip())
    for name, text in load(files("tieline.pipeline.tables").joinpath("statements.sql").read_text("utf-8")).items()
}


def statement(name: str, **parts: object) -> str:
    """Return the SQL text of the statement `name`. `parts` are texts in SQL for its `$names`."""
    return _STATEMENTS[name].substitute({part: str(text) for part, text in parts.items()})


def rows_of(name: str, **parts: object) -> str:
    """Return the SQL statement `name` in parentheses, for use as a subquery in another statement.

    `parts` are the values of its placeholders.
    """
    return f"({statement(name, **parts)})"
