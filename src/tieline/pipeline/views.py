"""The tables of a lake as views of a session, for SQL and for notebooks."""

from pyspark.sql import DataFrame, SparkSession

from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Commit, Lake


def read_table(spark: SparkSession, lake: Lake, name: str, commit: Commit | None = None) -> DataFrame:
    """A table as of a commit, or else as of the newest commit."""
    files = (commit or lake.head()).tables.get(name, ())
    if not files:
        return spark.createDataFrame([], SCHEMAS[name])
    return spark.read.schema(SCHEMAS[name]).parquet(*(str(lake.path / file.path) for file in files))


def register(spark: SparkSession, lake: Lake) -> None:
    """Register every table as a view in this session, all as of the same commit."""
    head = lake.head()
    for name in SCHEMAS:
        read_table(spark, lake, name, head).createOrReplaceTempView(name)
