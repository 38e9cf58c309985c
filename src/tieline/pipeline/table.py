"""Definition of a table: its name, its columns, and the rules by which new facts are merged into it.

Above: one file per table in `tables/`. A silver table holds facts. A gold table holds sums over facts, so that a batch
of facts can be added to the stored rows. `contribute` returns rows with the table's keys and measures (the columns that
are summed up), possibly several for the same key. `MERGES` has the functions that merge rows of the same key into one
row. `finish` adds columns that are computed from measures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
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

from tieline.pipeline.frames import Frames

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


MERGES: dict[str, Callable[[str], Column]] = {
    "sum": f.sum,
    "min": f.min,
    "max": f.max,
    # All numbers, in order, so that percentiles are exact. Each new fact adds one number.
    "sorted": lambda name: f.sort_array(f.concat(f.collect_list(each(name)), f.flatten(f.collect_list(name)))),
    "union": lambda name: f.sort_array(f.array_distinct(f.flatten(f.collect_list(name)))),
    "newest": lambda name: f.max_by(name, f.when(f.col(name).isNotNull(), f.col(VERSION))),
}


@dataclass(frozen=True)
class Gold:
    """A gold table: rows of keys and measures, into which the facts of every batch are merged."""

    name: str
    schema: StructType
    """The stored columns: keys, measures (merged values), and the columns that `finish` adds."""
    keys: tuple[str, ...]
    measures: Mapping[str, str]
    """For each measure, the rule that merges the values of rows with the same keys: a name in `MERGES`, such as `sum`.
    """
    reads: tuple[str, ...]
    """The fields of `Frames` whose facts the table counts. A batch without such facts leaves the table unchanged."""
    contribute: Callable[[Frames], Sequence[DataFrame]]
    part: str | None = None
    """The key column with the time of a row. The table has one partition for each day of this time. `None` if the table
    has no partitions.

    On the last day of a batch, each interval of `part_ms` has its own file, so that a batch rewrites only the files
    that it changes.
    """
    part_ms: int = DAY_MS
    finish: Callable[[DataFrame], DataFrame] = lambda rows: rows

    def merge(self, rows: DataFrame) -> DataFrame:
        """Merge rows with the same keys into one row."""
        merged = rows.groupBy(*self.keys).agg(
            *(MERGES[how](measure).alias(measure) for measure, how in self.measures.items())
        )
        return self.finish(merged).select(*self.schema.fieldNames())

    def contributions(self, frames: Frames) -> DataFrame:
        """Return the facts of a batch in this table's columns. A measure for which a fact has no value is null."""
        first, *others = self.contribute(frames)
        rows = self.in_columns(first)
        for other in others:
            rows = rows.unionByName(self.in_columns(other))
        return rows

    def in_columns(self, rows: DataFrame) -> DataFrame:
        """Convert facts, or stored rows of this table, to the columns that `merge` needs."""
        types = {name: self.schema[name].dataType for name in (*self.keys, *self.measures)}
        types |= {each(name): LongType() for name, how in self.measures.items() if how == "sorted"}
        given = set(rows.columns)
        # Write expressions as text: a column made in Python takes several calls to Java.
        return rows.selectExpr(
            *(
                f"CAST({f'`{name}`' if name in given else 'NULL'} AS {kind.simpleString()}) AS `{name}`"
                for name, kind in types.items()
            )
        )


@dataclass(frozen=True)
class Silver:
    """A silver table: one row for each fact. Rows are only added, except in `deliveries`, where rows also change."""

    name: str
    schema: StructType
    time: str
    """The column with the time of a row. It determines which files must be read."""


def start_of(time_ms: Column, width_ms: int) -> Column:
    """Return the start of the minute, hour or day (`width_ms`) that contains a time."""
    return (f.floor(time_ms / width_ms) * width_ms).cast("bigint")


def percentile(values: Column, share: float) -> Column:
    """Return the nearest-rank percentile of sorted numbers. It is null if there are no numbers.

    `share` is the percentile as a fraction: 0.5 for the median.
    """
    rank = f.greatest(f.lit(1), f.ceil(f.size(values) * f.lit(share))).cast("int")
    return f.when(f.size(values) > 0, f.element_at(values, rank))
