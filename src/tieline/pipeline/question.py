"""Runs one SQL query on the tables and returns its rows.

Used by: `tieline pipeline sql`. Uses: Spark. Spark's SQL can also write files, read any file and call any Java method,
but this module runs only statements that read the tables. `SHOW`, `DESCRIBE` and `EXPLAIN` are run as they are. Every
other statement is put in parentheses, where Spark accepts only a query. Files cannot be named as tables. Functions that
call Java or read files are refused by their names, wherever these names occur, even in a string: only Spark's parser
knows where a string ends.
"""

import logging
import re
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tieline.pipeline.lake import Lake
from tieline.pipeline.views import register

_READING = re.compile(r"\s*(show|describe|desc|explain)\b", re.IGNORECASE)
_WRITING = frozenset({
    "insert", "create", "drop", "set", "reset", "add", "execute", "alter", "truncate", "delete", "update", "merge",
    "refresh", "cache", "uncache", "clear", "load", "replace", "analyze", "repair", "use", "begin", "call",
    "declare", "grant", "revoke", "list", "msck", "comment", "lock", "unlock",
})  # fmt: skip
"""First words of statements that do more than read."""
_REACHING = re.compile(r"(?<!\w)(reflect|try_reflect|java_method|read_files|identifier)(?!\w)", re.IGNORECASE)
"""Functions that reach beyond the tables, and `IDENTIFIER`, which can spell their names in parts."""
_FILE = re.compile(
    r"(?<!\w)`?(csv|json|parquet|orc|text|xml|avro|delta|iceberg|binaryfile|tieline)`?\s*\.\s*[`\"]", re.IGNORECASE
)
"""A file that is named as a table, such as csv.`/etc/passwd`."""
_FILES_AS_TABLES = "spark.sql.runSQLOnFiles"
_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class BadQuestion(Exception):
    """Raised for a statement that cannot be run, because it does not only read, or because a table is unknown."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        """Advice for the user, such as the names of the tables."""


def ask(spark: SparkSession, lake: Lake, query: str, rows_max: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query. Return the column names and the first `rows_max` rows. Two columns may have the same name."""
    # Errors in a statement are raised as exceptions; Spark need not print them as JSON as well.
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    tables = lake.head().versions
    _require_inside(query)
    spark.conf.set(_FILES_AS_TABLES, "false")
    register(spark, lake)
    try:
        found = spark.sql(_only_reading(query))
        rows = found.limit(rows_max).collect()
    except ParseException as error:
        if _near(error) in _WRITING:
            raise BadQuestion("only questions are answered here: SELECT, SHOW, DESCRIBE, EXPLAIN") from error
        raise
    except AnalysisException as error:
        if error.getCondition() != _UNKNOWN_TABLE:
            raise
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        raise BadQuestion(f"there is no table {name!r}", f"there are {', '.join(sorted(tables))}") from error
    return found.columns, [tuple(row) for row in rows]


def _require_inside(query: str) -> None:
    """Raise `BadQuestion` for a statement that could reach more than the tables."""
    if found := _REACHING.search(query):
        hint = "a function that calls Java or reads files is not run here, and its name cannot be part of a text"
        raise BadQuestion(f"{found[1].lower()} cannot be used here", hint)
    if found := _FILE.search(query):
        raise BadQuestion(
            f"only the tables are read here, no {found[1].lower()} files", "'show tables' lists the tables"
        )


def _only_reading(query: str) -> str:
    """Return a statement with the same result as `query` that cannot write.

    `query` is put in parentheses, where Spark accepts only a query.
    """
    if _READING.match(query):
        return query
    return f"(\n{query.rstrip().rstrip(';')}\n)"


def _near(error: ParseException) -> str:
    """Return the word in a statement at which Spark's parser reported the error."""
    return str((error.getMessageParameters() or {}).get("error", "")).strip("'").lower()
