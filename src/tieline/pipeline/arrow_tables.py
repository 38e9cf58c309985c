"""Reads the tables of a lake with Arrow, without Spark and Java, so that a report takes only a second.

Used by: the report. Uses: the Parquet files of one commit, so that all tables are as of the same batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tieline.pipeline.lake import Commit, Lake, LakeError

Numbers = np.ndarray[Any, Any]


class ArrowTables:
    """Reader of a lake's tables as of the newest commit. It can leave out rows from before `since_ms`."""

    def __init__(self, lake: Lake, since_ms: int = 0) -> None:
        self._lake = lake
        self._since_ms = since_ms
        self.commit: Commit = lake.head()

    def read(self, name: str, columns: Sequence[str], *, time: str | None = None, width_ms: int = 0) -> pa.Table:
        """Return the columns `columns` of the table `name`. With `time`, leave out old rows.

        `time` names the column with the start of the row's minute, hour or day, and `width_ms` is the length of this
        period. A row is left out if its period ended before `since_ms`. A row whose period contains `since_ms` is not
        left out.
        """
        files = self._lake.data_files(name, self.commit)
        wanted = None
        if time is not None and self._since_ms:
            since = self._since_ms - max(1, width_ms)
            wanted = ds.field(time) > since
            files = [file for file in files if file.span(time)[1] > since]
        if not files:
            return pa.table({column: pa.nulls(0) for column in columns})
        storage = self._lake.storage
        try:
            dataset = ds.dataset([file.path for file in files], format="parquet", filesystem=storage.filesystem())
            return dataset.to_table(columns=list(columns), filter=wanted)
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"table {name} is damaged: {error}; 'tieline pipeline rebuild {name}' mends it") from error

    def rows(self, name: str) -> int:
        """Return the number of all rows in a table, including rows from before `since_ms`."""
        return self.commit.rows(name)


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


def percentiles(groups: Numbers, values: Numbers) -> dict[int, tuple[int, int, int]]:
    """Return for each group the count, median and 99th percentile of its values. `groups` has the group of each value.

    The percentiles are nearest-rank, as in the tables: each is one of the values.
    """
    if not len(values):
        return {}
    order = np.lexsort((values, groups))
    keys, starts, counts = np.unique(groups[order], return_index=True, return_counts=True)
    ordered = values[order]
    middle, high = (
        ordered[starts + np.maximum(1, np.ceil(counts * share)).astype(np.int64) - 1] for share in (0.5, 0.99)
    )
    return {
        int(key): (int(count), int(p50), int(p99))
        for key, count, p50, p99 in zip(keys, counts, middle, high, strict=True)
    }
