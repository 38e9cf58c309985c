"""A process for tests of engines: opens one session and does steps with it: `engine_job.py MASTER SCRATCH HOME LAKE …`.

Steps: `run` reads all new rows, `run:MAIN,ACTIVITY` up to that position. `stages` does as `run`, and prints the names
of the stages. `die:STAGE` does it, and kills the process when the stage begins. `beside:STAGE` lets a second run do
all the work at that stage, and prints how both were refused. `fails:STEP` prints why a step failed. `free:FILE`
deletes a file. `rebuild` computes all tables again, `rewind` those of a log that was restored. `verify` checks the
log. `native:TABLE` prints the rows of a table as the engine itself reads Delta. `witness:FOLDER` lets tasks of later
steps write into a folder what they read and wrote. Each step prints a line of JSON; the first line tells where a
worker found Tieline. The process needs no packages for tests, so that it runs in Sail's environment.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

import tieline
from tieline.pipeline import flow
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.run import RunFailed, Watch, rebuild_all, rewind, run
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


class Unlocked(Lake):
    """A lake that several runs may write at once, as in an object store."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Reserve nothing."""
        yield


def run_twice(spark: SparkSession, lake: Lake, where: Mapping[str, str], stage: str) -> list[str]:
    """Read all new rows. When a stage begins, let a second run read them, too.

    Return why the lock refused the second run, and why the first one was refused after the second came past the lock.
    """
    refused = list[str]()

    def look(name: str) -> None:
        if name != stage or refused:
            return
        try:
            run(spark, lake, where)
        except LakeError as error:
            refused.append(str(error))
            run(spark, Unlocked(lake.storage.location, lake.storage.options), where)

    try:
        run(spark, lake, where, watch=Watch(stage=look))
    except (LakeError, RunFailed) as error:
        refused.append(str(error))
    return refused


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
        case "stages":
            seen = list[str]()
            run(spark, lake, where, watch=Watch(stage=seen.append))
            return seen
        case "beside":
            return run_twice(spark, lake, where, rest)
        case "fails":
            try:
                return step(spark, lake, home, rest)
            except (LakeError, RunFailed) as error:
                return str(error)
        case "free":
            Path(rest).unlink()
            return rest
        case "rewind":
            return rewind(spark, lake, where).number
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
