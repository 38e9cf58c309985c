"""Tests of the Python workers that Spark starts on this machine."""

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_a_worker_begins_with_all_modules_imported_and_frozen(spark: SparkSession) -> None:
    before = ("pyspark.worker", "tieline.pipeline.tasks", "pyarrow.parquet")

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            begun = [name in sys.modules for name in before]
            yield pa.RecordBatch.from_pydict({"begun": [all(begun)], "frozen": [gc.get_freeze_count()]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(look, "begun boolean, frozen bigint").collect()

    assert row["begun"]
    assert row["frozen"] > 10_000
