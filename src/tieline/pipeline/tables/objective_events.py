"""Objective events: one row for each event of an objective, with the status of the objective afterwards."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.table import Silver, columns

TABLE = Silver(
    name="objective_events",
    schema=columns(
        "offset bigint, at_ms bigint, objective string, kind string, actor string, status string, assignee string, "
        "title string, happening string"
    ),
    time="at_ms",
)

_CHANGED = "id string, kind string, by string, status string, assignee string"


def objective_events(bronze: DataFrame) -> DataFrame:
    """Return the events of objectives in a batch of log rows."""
    changed = bronze.where((f.col("log") == "main") & (f.col("kind") == "objective"))
    told = changed.select("offset", "at_ms", "happening", f.from_json("event", _CHANGED).alias("said"))
    return told.select(
        "offset",
        "at_ms",
        f.col("said.id").alias("objective"),
        "said.kind",
        f.col("said.by").alias("actor"),
        "said.status",
        "said.assignee",
        f.get_json_object("happening", "$.title").alias("title"),
        "happening",
    )
