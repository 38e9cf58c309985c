"""What a table is: its name, its columns' meaning, and how new facts join it.

Above: one file per table in `tables/`. A gold table is sums over facts, so that a batch of facts can be added to what
is there: `contribute` gives rows with the table's keys and measures, several for the same key if need be, and `MERGES`
says how rows of the same key become one. What is derived from measures is added by `finish`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
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
    """Columns as SQL writes them. Spark's own reader of such texts needs a session, and tables are known before one."""
    pairs = (column.split() for column in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


VERSION = "version"
"""Of rows with measures that are kept from the newest: which is newer."""


def each(measure: str) -> str:
    """The column in which facts have the one number that they add to a `sorted` measure."""
    return f"each_{measure}"


MERGES: dict[str, Callable[[str], Column]] = {
    "sum": f.sum,
    "min": f.min,
    "max": f.max,
    # Numbers, all of them, in order: percentiles of it are exact. New facts bring one each.
    "sorted": lambda name: f.sort_array(f.concat(f.collect_list(each(name)), f.flatten(f.collect_list(name)))),
    "union": lambda name: f.sort_array(f.array_distinct(f.flatten(f.collect_list(name)))),
    "newest": lambda name: f.max_by(name, f.when(f.col(name).isNotNull(), f.col(VERSION))),
}


@dataclass(frozen=True)
class Gold:
    """A table of answers."""

    name: str
    schema: StructType
    """Its stored columns: keys, measures, and what `finish` adds."""
    keys: tuple[str, ...]
    measures: Mapping[str, str]
    """Which of `MERGES` each measure is put together by."""
    reads: tuple[str, ...]
    """The frames whose facts it counts: with none of them in a batch it stays as it is."""
    contribute: Callable[[Frames], Sequence[DataFrame]]
    part: str | None = None
    """The key that says which part of time a row is in; without one, the table is small and one part."""
    part_ms: int = DAY_MS
    finish: Callable[[DataFrame], DataFrame] = lambda rows: rows

    def merge(self, rows: DataFrame) -> DataFrame:
        """Rows of the same key become one."""
        merged = rows.groupBy(*self.keys).agg(
            *(MERGES[how](measure).alias(measure) for measure, how in self.measures.items())
        )
        return self.finish(merged).select(*self.schema.fieldNames())

    def contributions(self, frames: Frames) -> DataFrame:
        """The facts of a batch in this table's columns; measures that one kind of fact lacks are null."""
        first, *others = self.contribute(frames)
        rows = self.in_columns(first)
        for other in others:
            rows = rows.unionByName(self.in_columns(other))
        return rows

    def apart(self, known: pa.Table, facts: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Rows of this table that facts are about, and all others with their part."""
        keys = facts.select(self.keys)
        numbered = known.select(self.keys).append_column("row", pa.array(np.arange(len(known))))
        if any(column.null_count for column in keys.columns):
            # Arrow holds no null to be the same as another.
            found = numbered["row"]
        else:
            found = numbered.join(keys, list(self.keys), join_type="left semi")["row"]
        mine = np.zeros(len(known), bool)
        mine[found.to_numpy()] = True
        others = known.filter(pa.array(~mine))
        part = others[self.part].to_numpy() // self.part_ms * self.part_ms if self.part else np.zeros(len(others), int)
        return known.filter(pa.array(mine)), others.append_column("part", pa.array(part))

    def in_columns(self, rows: DataFrame) -> DataFrame:
        """Facts, or rows of this table, with the columns that `merge` needs."""
        types = {name: self.schema[name].dataType for name in (*self.keys, *self.measures)}
        types |= {each(name): LongType() for name, how in self.measures.items() if how == "sorted"}
        given = set(rows.columns)
        # As text, because a column made in Python takes several calls to Java.
        return rows.selectExpr(
            *(
                f"CAST({f'`{name}`' if name in given else 'NULL'} AS {kind.simpleString()}) AS `{name}`"
                for name, kind in types.items()
            )
        )


@dataclass(frozen=True)
class Silver:
    """A table of typed facts, which only grows, except `deliveries`."""

    name: str
    schema: StructType
    time: str
    """The column that says when a row happened: it tells which files have to be read."""


def start_of(time_ms: Column, width_ms: int) -> Column:
    """The beginning of the minute, hour or day that a time is in."""
    return (f.floor(time_ms / width_ms) * width_ms).cast("bigint")


def percentile(values: Column, share: float) -> Column:
    """The nearest-rank percentile of numbers that are in order; null of none."""
    rank = f.greatest(f.lit(1), f.ceil(f.size(values) * f.lit(share))).cast("int")
    return f.when(f.size(values) > 0, f.element_at(values, rank))
