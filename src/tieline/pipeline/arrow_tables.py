"""Reads the tables of a lake with Arrow, without Spark and Java, so that a report takes only a second.

Used by: the report, and the checks of the tables. Uses: the Parquet files of one commit, so that all tables are as of
the same batch. Only the files of the wanted days are opened.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct

from tieline.pipeline.lake import Commit, DayFile, Lake, LakeError
from tieline.pipeline.storage import day_of

Numbers = np.ndarray[Any, Any]
DAY_MS = 86_400_000


class Window(Struct, frozen=True):
    """A span of time: from `since_ms` until before `until_ms`. `None` means that it has no start or no end."""

    since_ms: int | None = None
    until_ms: int | None = None

    def days(self) -> tuple[str, str]:
        """Return the first and the last day of the span, such as `2026-01-31`."""
        first = "" if self.since_ms is None else day_of(max(0, self.since_ms))
        return first, "~" if self.until_ms is None else day_of(max(0, self.until_ms - 1))


ALWAYS = Window()


class ArrowTables:
    """Reader of a lake's tables as of one commit. Without `commit`, it is the newest commit."""

    def __init__(self, lake: Lake, commit: Commit | None = None) -> None:
        self._lake = lake
        self.commit: Commit = lake.head() if commit is None else commit
        self._files: dict[str, list[DayFile]] = {}

    def read(
        self,
        name: str,
        columns: Sequence[str],
        within: Window = ALWAYS,
        *,
        time: str | None = None,
        width_ms: int = 1,
        where: ds.Expression | None = None,
    ) -> pa.Table:
        """Return the columns `columns` of the table `name`. With `time`, only rows of the time span `within`.

        `time` names the column with the start of the row's minute, hour or day, and `width_ms` is the length of this
        period. A row belongs to the time span if a part of its period does. `where` is another condition.
        """
        files, limits = self._known(name), [] if where is None else [where]
        if time is not None:
            first, last = within.days()
            files = [file for file in files if file.day is None or first <= file.day <= last]
            limits += _limits(time, within, width_ms)
        return self._read(files, name, columns, *limits)

    def at(self, name: str, columns: Sequence[str], within: Window, time: str) -> pa.Table:
        """Return the rows of a table whose column `time` is in a time span.

        `time` is another column than the one by which the table is divided into days. Delta's statistics tell which
        files have such rows. A file without any value in the column has no such rows.
        """
        since, until = within.since_ms or 0, within.until_ms or 2**62
        files = [
            DayFile(file.path, file.day)
            for file in self._lake.data_files(name, self.commit)
            if (span := file.known_span(time)) is not None and span[0] < until and span[1] >= since
        ]
        return self._read(files, name, columns, *_limits(time, within, 1))

    def span(self, name: str, time: str, within: Window = ALWAYS) -> tuple[int, int] | None:
        """Return the first and the last value of the column `time` in a time span, or `None` if there is no row.

        Only files at the borders of the time span are read. For the other files, Delta's statistics are enough.
        """
        first, last = within.days()
        since, until = within.since_ms or 0, within.until_ms or 2**62
        found: list[int] = []
        for file in self._known(name):
            if file.day is None or not first <= file.day <= last:
                continue
            if (
                file.first_ms is not None
                and file.last_ms is not None
                and since <= file.first_ms <= file.last_ms < until
            ):
                found += (file.first_ms, file.last_ms)
            else:
                found += numbers(self._read([file], name, [time], *_limits(time, within, 1)), time).tolist()
        return (min(found), max(found)) if found else None

    def written(self, name: str, columns: Sequence[str], since_ms: int) -> pa.Table:
        """Return the rows of the files that were written to a table after a time, and of older files that overlap.

        An older file is read only if its offsets overlap with those of a new file. So the result has both copies of a
        row that was added twice, even if one of them is older.
        """
        new = [file for file in self._known(name) if file.written_ms > since_ms]
        old = [
            file
            for file in self._known(name)
            if file.written_ms <= since_ms and any(file.overlaps(other) for other in new)
        ]
        return self._read([*new, *old], name, columns)

    def changed(self, name: str, since_ms: int) -> list[str]:
        """Return the days for which files were written to a table after a time, in order."""
        return sorted({file.day for file in self._known(name) if file.day is not None and file.written_ms > since_ms})

    def rows(self, name: str) -> int:
        """Return the number of all rows in a table."""
        return self.commit.rows(name)

    def _known(self, name: str) -> list[DayFile]:
        if name not in self._files:
            self._files[name] = self._lake.day_files(name, self.commit)
        return self._files[name]

    def _read(self, files: Sequence[DayFile], name: str, columns: Sequence[str], *limits: ds.Expression) -> pa.Table:
        if not files:
            return pa.table({column: pa.nulls(0) for column in columns})
        wanted = functools.reduce(operator.and_, limits) if limits else None
        try:
            paths = [file.path for file in files]
            dataset = ds.dataset(paths, format="parquet", filesystem=self._lake.storage.filesystem())
            return dataset.to_table(columns=list(columns), filter=wanted)
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"table {name} is damaged: {error}; 'tieline pipeline rebuild {name}' mends it") from error


def _limits(time: str, within: Window, width_ms: int) -> list[ds.Expression]:
    found = []
    if within.since_ms is not None:
        found.append(ds.field(time) > within.since_ms - width_ms)
    if within.until_ms is not None:
        found.append(ds.field(time) < within.until_ms)
    return found


def total(table: pa.Table, column: str) -> int:
    """Return the sum of a column; 0 if the table has no rows."""
    return int(pc.sum(table[column]).as_py() or 0) if table.num_rows else 0


def summed(table: pa.Table, keys: Sequence[str], sums: Sequence[str]) -> pa.Table:
    """Return a table with one row for each combination of the `keys`, and the sums of the columns `sums`.

    The rows are sorted by the first sum, largest first.
    """
    if not table.num_rows:
        return table.select([*keys, *sums])
    found = table.group_by(list(keys)).aggregate([(name, "sum") for name in sums])
    found = found.rename_columns([name.removesuffix("_sum") for name in found.column_names])
    return found.sort_by([(sums[0], "descending"), *((key, "ascending") for key in keys)])


def grouped(table: pa.Table, keys: Sequence[str]) -> tuple[Numbers, list[tuple[str, ...]]]:
    """Group the rows by the `keys`. Return the group number of each row, and the keys of each group.

    The keys are texts; a null becomes the empty text.
    """
    codes: Numbers = np.zeros(table.num_rows, np.int64)
    words: list[list[str]] = []
    for key in keys:
        text = pc.fill_null(pc.cast(table[key], pa.string()), "")
        encoded = pc.dictionary_encode(text).unify_dictionaries().combine_chunks()
        words.append(encoded.dictionary.to_pylist())
        codes = codes * len(words[-1]) + encoded.indices.to_numpy()
    found, of_row = np.unique(codes, return_inverse=True)
    places = []
    for known in reversed(words):
        found, place = np.divmod(found, len(known))
        places.append([known[index] for index in place])
    return of_row, list(zip(*reversed(places), strict=True))


def numbers(table: pa.Table, column: str) -> Numbers:
    """Return a column of integers as an array, with 0 for null."""
    found: Numbers = pc.fill_null(pc.cast(table[column], pa.int64()), 0).to_numpy()
    return found


def flattened(table: pa.Table, column: str) -> tuple[Numbers, Numbers]:
    """Flatten a column of lists of numbers or texts. Return the row index of each value, and the values."""
    lists = table[column].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], pa.list_(pa.int64()))
    if not pa.types.is_list(lists.type):
        lists = pa.array([], pa.list_(pa.int64()))
    return pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists).to_numpy(zero_copy_only=False)


_VALUE_BITS = 36
"""Bits for one value in `percentiles`: more than two years in milliseconds."""


def percentiles(groups: Numbers, values: Numbers) -> dict[int, tuple[int, int, int]]:
    """Return for each group the count, median and 99th percentile of its values. `groups` has the group of each value.

    The percentiles are nearest-rank, as in the tables: each is one of the values. A group is a number from 0 on.
    """
    if not len(values):
        return {}
    # One number for both sorts several times as fast as two.
    ordered = np.minimum(values, (1 << _VALUE_BITS) - 1).astype(np.int64)
    ordered |= groups.astype(np.int64) << _VALUE_BITS
    ordered.sort()
    keys = np.unique(groups)
    starts = np.searchsorted(ordered, keys.astype(np.int64) << _VALUE_BITS)
    counts = np.diff(np.append(starts, len(ordered)))
    ordered &= (1 << _VALUE_BITS) - 1
    middle, high = (
        ordered[starts + np.maximum(1, np.ceil(counts * share)).astype(np.int64) - 1] for share in (0.5, 0.99)
    )
    return {
        int(key): (int(count), int(p50), int(p99))
        for key, count, p50, p99 in zip(keys, counts, middle, high, strict=True)
    }


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return one table with the rows of all `tables`. Tables without rows may have columns of other types."""
    found = [table for table in tables if table.num_rows] or tables[:1]
    # The values of a list have another name in tables that Arrow made.
    return pa.concat_tables([table.cast(found[0].schema) for table in found])
