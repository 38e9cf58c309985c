"""Runs one SQL query on the tables and returns its rows.

Above: `tieline pipeline sql`. Below: Spark. Only statements that read are run: the tables are views, but Spark's SQL
can also write files anywhere.
"""

import logging
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tieline.pipeline.lake import Lake
from tieline.pipeline.views import register

_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_READING = ("Show", "Describe", "Explain")
_WRITING = ("Insert", "MultiInsert", "UnresolvedExecuteImmediate", "ExecuteImmediate")
_UNKNOWN_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class BadQuestion(Exception):
    """Raised for a statement that is not run: it writes, or names an unknown table."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        """Advice for the user: the names of the tables."""


def ask(spark: SparkSession, lake: Lake, query: str, rows_max: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query. Return the column names and the first `rows_max` rows. Two columns may have the same name."""
    # Errors in a statement are raised as exceptions; Spark need not print them as JSON as well.
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    tables = lake.head().tables
    register(spark, lake)
    _refuse_writing(spark, query)
    try:
        found = spark.sql(query)
        rows = found.limit(rows_max).collect()
    except AnalysisException as error:
        if error.getCondition() != _UNKNOWN_TABLE:
            raise
        name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        raise BadQuestion(f"there is no table {name!r}", f"there are {', '.join(sorted(tables))}") from error
    return found.columns, [tuple(row) for row in rows]


def _refuse_writing(spark: Any, query: str) -> None:
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(query)
    is_command = spark._jvm.java.lang.Class.forName(_COMMAND).isInstance
    # Check every part of a statement: a statement such as WITH has several.
    waiting = [plan]
    while waiting:
        one = waiting.pop()
        name = one.getClass().getSimpleName()
        if name.startswith(_READING):
            continue
        if is_command(one) or name.startswith(_WRITING):
            raise BadQuestion("only questions are answered here: SELECT, SHOW, DESCRIBE, EXPLAIN")
        children = one.children()
        waiting += [children.apply(index) for index in range(children.size())]
