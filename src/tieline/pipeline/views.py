"""Makes the tables of a lake available in a Spark session as views, for SQL and for notebooks."""

from pyspark.sql import DataFrame, SparkSession

from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Commit, Lake


def read_table(spark: SparkSession, lake: Lake, name: str, commit: Commit | None = None) -> DataFrame:
    """Return a table as of a commit; without `commit`, as of the newest one."""
    files = (commit or lake.head()).tables.get(name, ())
    if not files:
        return spark.createDataFrame([], SCHEMAS[name])
    return spark.read.schema(SCHEMAS[name]).parquet(*(str(lake.path / file.path) for file in files))


def register(spark: SparkSession, lake: Lake) -> None:
    """Register every table as a view in this Spark session, all as of the same commit."""
    head = lake.head()
    for name in SCHEMAS:
        read_table(spark, lake, name, head).createOrReplaceTempView(name)
