"""Makes the tables of a lake available in a Spark session as views, for SQL and for notebooks."""

from pyspark.sql import DataFrame, SparkSession

from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.flow import read_files
from tieline.pipeline.lake import Commit, Lake


def read_table(spark: SparkSession, lake: Lake, name: str, commit: Commit | None = None) -> DataFrame:
    """Return a table as of a commit. Without `commit`, return it as of the newest commit."""
    return read_files(spark, lake, SCHEMAS[name], lake.data_files(name, commit or lake.head()))


def register(spark: SparkSession, lake: Lake) -> None:
    """Register every table as a view in this Spark session, all as of the same commit."""
    head = lake.head()
    for name in SCHEMAS:
        read_table(spark, lake, name, head).createOrReplaceTempView(name)
