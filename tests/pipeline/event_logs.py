"""Test helper that reads Spark's event log: the tasks of a run, and what Spark itself counted of each."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

CONF = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.rolling.enabled": "false"}


class TaskEnd(NamedTuple):
    """A task that ended well."""

    attempt: int
    executor: str
    rows_read: int
    """Number of rows that Spark counted when the task read Parquet files."""
    bytes_read: int


def write_settings(folder: Path, more: Mapping[str, str] | None = None) -> Path:
    """Write settings of Spark that keep an event log. Return the folder of the log.

    `folder` is for the environment variable `SPARK_CONF_DIR`.
    """
    events = folder / "events"
    events.mkdir(parents=True)
    settings = {**CONF, "spark.eventLog.dir": f"file://{events}", **(more or {})}
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return events


def tasks(events: Path) -> list[TaskEnd]:
    """Return the tasks that ended well, of all runs whose event logs are in a folder."""
    found = []
    for path in sorted(one for one in events.iterdir() if one.is_file()):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
                found.append(_task(event))
    return found


def _task(event: Mapping[str, Any]) -> TaskEnd:
    info, read = event["Task Info"], event["Task Metrics"]["Input Metrics"]
    return TaskEnd(info["Task ID"], info["Executor ID"], read["Records Read"], read["Bytes Read"])
