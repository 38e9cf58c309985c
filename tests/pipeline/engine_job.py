"""A process for tests of engines: opens one session and does steps with it: `engine_job.py MASTER SCRATCH HOME LAKE …`.

Steps: `run` reads all new rows, `run:MAIN,ACTIVITY` up to that position. `die:STAGE` reads all new rows, and kills the
process when the stage begins. `rebuild` computes all tables again. `verify` checks the log. Each prints a line of JSON;
the first line tells where a worker found Tieline. `native:TABLE` prints the rows of a table as the engine itself reads
Delta. `witness:FOLDER` lets the tasks of later steps write into a folder what they read and wrote. The process needs no
packages for tests, so that it runs in Sail's environment.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

import tieline
from tieline.pipeline import flow
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, rebuild_all, run
from tieline.pipeline.session import start_session
from tieline.pipeline.storage import DataFile
from tieline.pipeline.tasks import TableWriter
from tieline.pipeline.verify import verify


def find_tieline(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Task of Spark: yield a row with the path of the package that the worker uses."""
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"path": [str(tieline.__file__)]})


def writer_with_witness(folder: str) -> type[TableWriter]:
    """Return a writer whose tasks also write into `folder` what they read and wrote."""

    class Witnessed(TableWriter):
        """Writer of a table that counts."""

        def write(self, pages: Iterator[pa.Table]) -> Iterator[DataFile]:
            """Write the rows in `pages`, yield the files, and note the sizes of both under the number of the task."""
            read = [0]

            def counted() -> Iterator[pa.Table]:
                for page in pages:
                    read[0] += page.nbytes
                    yield page

            from pyspark import TaskContext

            files = list(TableWriter.write(self, counted()))
            context = TaskContext.get()
            assert context is not None, "only tasks write"
            told = {"attempt": context.taskAttemptId(), "table": self.table, "read": read[0],
                    "rows": sum(file.rows for file in files), "bytes": sum(file.bytes for file in files)}  # fmt: skip
            with Path(folder, f"{context.taskAttemptId()}.jsonl").open("a") as note:
                note.write(f"{json.dumps(told)}\n")
            yield from files

    return Witnessed


def die_at(stage: str) -> Watch:
    """Return a watch that kills this process when a stage begins."""

    def look(name: str) -> None:
        if name == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    return Watch(stage=look)


def step(spark: SparkSession, lake: Lake, home: str, what: str) -> object:
    """Do one step. Return its result."""
    name, _, rest = what.partition(":")
    where = {"home": home}
    match name:
        case "run":
            ends = [int(end) for end in rest.split(",")] if rest else []
            until = dict(zip(("main", "activity"), ends, strict=True)) if ends else None
            return run(spark, lake, where, until=until)
        case "die":
            return run(spark, lake, where, watch=die_at(rest))
        case "rebuild":
            return rebuild_all(spark, lake).number
        case "verify":
            return verify(spark, where)
        case "native":
            rows = spark.read.format("delta").load(lake.storage.url(rest)).drop("day")
            return [list(row) for row in rows.collect()]
        case "witness":
            flow.TableWriter = writer_with_witness(rest)  # type: ignore[attr-defined]  # on purpose
            return rest
        case _:
            raise ValueError(what)


def main() -> None:
    """Do the steps of the command line."""
    master, scratch, home, lake, *steps = sys.argv[1:]
    spark = start_session(master, scratch=Path(scratch), brief=True, settings={"spark.driver.memory": "1g"})
    found = [spark.range(1).mapInArrow(find_tieline, "path string").collect()[0]["path"]]
    sys.stdout.write(f"{json.dumps(found)}\n")
    for what in steps:
        sys.stdout.write(f"{msgspec.json.encode(step(spark, Lake(lake), home, what)).decode()}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
