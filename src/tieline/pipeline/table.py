"""Definition of a table: its name, its columns, and the rules by which new facts are merged into it.

Used by: one file per table in `tables/`. A silver table holds facts. A gold table holds sums over facts, so that a
batch of facts can be added to the stored rows. `facts` are rows with the table's keys and measures (the columns that
are summed up), possibly several for the same key. `MERGES` has the functions that merge rows of the same key into one
row. `finish` has columns that are computed from measures.

Rules are texts in Spark SQL, and a table is one statement. Building the same query in Python would take several calls
to Java for each column, and Spark would analyse each step anew. For few rows, this takes longer than the work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tieline.pipeline.statements import rows_of, statement

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 86_400_000

_TYPES: dict[str, DataType] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "array<bigint>": ArrayType(LongType()),
    "array<string>": ArrayType(StringType()),
}


def columns(text: str) -> StructType:
    """Parse a schema from text such as `"day_ms bigint, member string"`.

    Spark's own parser needs a Spark session, but tables are defined before there is a session.
    """
    pairs = (column.split() for column in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


VERSION = "version"
"""Name of the column with the version of a row. A measure of the kind `newest` takes its value from the row with the
highest version.
"""


def each(measure: str) -> str:
    """Return the name of the column with a fact's number for a measure of the kind `sorted`.

    Such a measure is the sorted list of the numbers of all facts.
    """
    return f"each_{measure}"


MERGES: dict[str, Callable[[str], str]] = {
    "sum": lambda name: f"sum({name})",
    "min": lambda name: f"min({name})",
    "max": lambda name: f"max({name})",
    # All numbers, in order, so that percentiles are exact. Each new fact adds one number.
    "sorted": lambda name: f"sort_array(concat(collect_list({each(name)}), flatten(collect_list({name}))))",
    "union": lambda name: f"sort_array(array_distinct(flatten(collect_list({name}))))",
    "newest": lambda name: f"max_by({name}, CASE WHEN {name} IS NOT NULL THEN {VERSION} END)",
}


@dataclass(frozen=True)
class Facts:
    """Definition of the facts that a gold table counts. All texts are Spark SQL."""

    of: str
    """The rows that are counted: a field of `Frames` in braces, such as `{messages}`, or a query over such fields in
    parentheses.
    """
    columns: Mapping[str, str]
    """For each key and measure of the table, its expression in SQL. Measures that are left out are null."""
    where: str = "true"
    by: Sequence[str] = ()
    """Expressions by which rows are summed up here, before they are merged with other facts. Empty: one row is one
    fact.
    """


@dataclass(frozen=True)
class Gold:
    """Definition of a gold table: rows of keys and measures, into which the facts of every batch are merged."""

    name: str
    schema: StructType
    """The stored columns: keys, measures (merged values), and the columns of `finish`."""
    keys: tuple[str, ...]
    measures: Mapping[str, str]
    """For each measure, the rule that merges the values of rows with the same keys: a name in `MERGES`, such as `sum`.
    """
    reads: tuple[str, ...]
    """The kinds of facts that the table counts (see `Frames`). A batch without such facts does not change the table."""
    facts: tuple[Facts, ...]
    part: str | None = None
    """The key column with the time of a row. The table has one partition for each day of this time. `None` if the table
    has no partitions.

    On the last day of a batch, each interval of `part_ms` has its own file, so that a batch rewrites only the files
    that it changes.
    """
    part_ms: int = DAY_MS
    finish: Mapping[str, str] = field(default_factory=dict)
    """For each column that is computed after the merge, its expression over keys and measures."""

    def query(self, frames: Mapping[str, str], stored: str | None = None, *, few: bool = False) -> str:
        """Return a query (SQL text) for the rows of this table.

        It merges the facts in `frames`, which are texts in SQL, with the rows of the view `stored`. If the rows are
        `few`, one task does this without a shuffle.
        """
        parts = [self._select(one.of.format_map(frames), one.columns, one.where, one.by) for one in self.facts]
        if stored is not None:
            parts.append(self._select(stored, {name: f"`{name}`" for name in (*self.keys, *self.measures)}))
        merged = ", ".join(f"{MERGES[how](measure)} AS {measure}" for measure, how in self.measures.items())
        columns = ", ".join(
            f"CAST({self.finish[one.name]} AS {one.dataType.simpleString()}) AS `{one.name}`"
            if one.name in self.finish
            else f"`{one.name}`"
            for one in self.schema
        )
        keys = ", ".join(f"`{key}`" for key in self.keys)
        rows = gathered(f"({' UNION ALL '.join(parts)})", few=few)
        return rows_of("merged", columns=columns, keys=keys, measures=merged, rows=rows)

    def _select(self, rows: str, columns: Mapping[str, str], where: str = "true", by: Sequence[str] = ()) -> str:
        """Return a query (SQL text) for rows with the columns that the merge needs.

        These columns are the keys, the measures, and the numbers of measures of the kind `sorted`. `where` filters the
        rows. `by` has the expressions by which the rows are grouped and summed up.
        """
        types = {name: self.schema[name].dataType for name in (*self.keys, *self.measures)}
        types |= {each(name): LongType() for name, how in self.measures.items() if how == "sorted"}
        selected = ", ".join(
            f"CAST({columns.get(name, 'NULL')} AS {kind.simpleString()}) AS `{name}`" for name, kind in types.items()
        )
        grouped = f"GROUP BY {', '.join(by)}" if by else ""
        return statement("facts", columns=selected, rows=rows, where=where, by=grouped)


@dataclass(frozen=True)
class Silver:
    """Definition of a silver table: one row for each fact.

    Rows are only added, except in `deliveries`, where rows also change.
    """

    name: str
    schema: StructType
    time: str
    """The column with the time of a row. It determines which files must be read."""


def gathered(rows: str, *, few: bool) -> str:
    """Return a query (SQL text) with the same rows. If the rows are `few`, it puts them into one partition.

    Then Spark need not shuffle them.
    """
    return rows_of("one_partition", rows=rows) if few else rows


def quoted(text: str) -> str:
    """Return a text as a string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def listed(texts: Sequence[str]) -> str:
    """Return texts as a list of string literals of SQL, for `IN`."""
    return f"({', '.join(map(quoted, texts))})"


def start_of(time_ms: str, width_ms: int) -> str:
    """Return an expression (SQL text) for the start of the minute, hour or day that contains a time.

    `width_ms` is the length of the minute, hour or day. `time_ms` is the expression for the time.
    """
    return f"CAST(floor({time_ms} / {width_ms}) * {width_ms} AS BIGINT)"


def percentile(values: str, share: float) -> str:
    """Return an expression (SQL text) for the nearest-rank percentile of sorted numbers.

    `values` is the expression for the numbers. `share` is the percentile as a fraction: 0.5 for the median. The result
    is null if there are no numbers.
    """
    rank = f"CAST(greatest(1, ceil(size({values}) * {share}D)) AS INT)"
    return f"CASE WHEN size({values}) > 0 THEN element_at({values}, {rank}) END"
