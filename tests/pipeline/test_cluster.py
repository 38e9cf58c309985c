"""Tests of the pipeline on a real Spark cluster with two workers, which read the log only through the hub's URL."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.processes import SOAK
from tests.pipeline.clusters import Cluster, cluster
from tests.pipeline.event_logs import tasks, write_settings
from tests.pipeline.oracle import stored
from tests.server.hubs import HubHarness, running_hub, take
from tieline.contract.permission import INSIGHTS_WRITE, LOG_READ
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report
from tieline.pipeline.run import run
from tieline.wire.insights import FILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MESSAGES, ACKED = 120, 10
"""Numbers of messages to bob, and of those that he acknowledges. So many wait that there is an alert."""
_COMMAND = "from tieline.cli.main import main; main()"
_READ = """
import json, os, sys
from pathlib import Path
import pyarrow as pa
from tieline.pipeline.session import start_session

master, scratch, url = sys.argv[1:]

def read_here(batches):
    # An executor's Python runs in the folder that its worker gave it.
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    yield pa.RecordBatch.from_pylist([{"folder": os.getcwd(), "offsets": offsets}])

# Both workers are there before anything is given to one.
settings = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
spark = start_session(master, scratch=Path(scratch), settings=settings)
options = {"url": url, "token": os.environ["TIELINE_TOKEN"], "logs": "main", "partitions": "4"}
rows = spark.read.format("tieline").options(**options).load().select("offset")
found = rows.mapInArrow(read_here, "folder string, offsets array<bigint>").collect()
print(json.dumps([[row["folder"], row["offsets"]] for row in found]))
spark.stop()
"""


async def _live(there: HubHarness) -> None:
    """Add members to a hub. Let them send messages, acknowledge and answer."""
    await there.add("alice", "bob", "carol")
    await there.add("analyst", permissions=(LOG_READ, INSIGHTS_WRITE))
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    sent = [await alice.send("@bob", f"number {number}", thread="work") for number in range(MESSAGES)]
    for delivery in (await take(bob, MESSAGES))[:ACKED]:
        bob.ack(delivery)
    await bob.send("@alice", "all of them", reply_to=sent[-1].id)
    await alice.send("*", "to all")


async def _python(program: str, *arguments: str, token: str, **environment: str) -> bytes:
    """Run `program` in a separate Python process, because a process has only one Spark session. Return its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments,
        env={**os.environ, "TIELINE_TOKEN": token, **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-3000:]
    return out


@pytest.fixture(scope="module")
def there(scratch: Path) -> Iterator[Cluster]:
    """Fixture: a Spark cluster with a master and two workers."""
    with cluster(scratch / "cluster") as started:
        yield started


@pytest.mark.skipif(not SOAK, reason="one more session on the cluster: make soak")
async def test_workers_read_ranges_of_one_log_side_by_side(there: Cluster, folder: Path) -> None:
    async with running_hub(folder / "h") as hub:
        await _live(hub)
        out = await _python(_READ, there.url, str(folder / "s"), hub.running.http, token=hub.tokens["analyst"])
    ranges = json.loads(out.splitlines()[-1])
    assert len(ranges) == 4
    workers = {Path(where).parents[1].name for where, _ in ranges}
    assert workers == {"work-0", "work-1"}
    read = sorted(offset for _, offsets in ranges for offset in offsets)
    assert read == list(range(len(read)))
    assert len(read) > MESSAGES
    assert all(offsets == list(range(offsets[0], offsets[-1] + 1)) for _, offsets in ranges)


async def test_the_same_job_runs_on_a_cluster_over_a_hubs_url(
    spark: "SparkSession", there: Cluster, folder: Path
) -> None:
    lake, events = Lake(folder / "lake"), write_settings(folder / "c")
    async with running_hub(folder / "h") as hub:
        await _live(hub)
        arguments = ["--hub", hub.running.http, "--lake", str(lake.path), "--master", there.url, "--json"]
        arguments += ["--alerts", "@carol"]
        own = {"SPARK_CONF_DIR": str(folder / "c")}
        out = await _python(_COMMAND, "pipeline", "run", *arguments, token=hub.tokens["analyst"], **own)
        summary = json.loads(out.splitlines()[-1])
        assert summary["events_read"] == sum(lake.head().position.values()) > MESSAGES
        told = (await (await hub.join("carol")).inbox()).items[-1].message
        assert (told.sender, told.body) == ("analyst", "At least 100 deliveries wait for bob.")
    assert all(there.executors()), "each worker had an executor"
    ended = tasks(events)
    assert {task.executor for task in ended} <= {"0", "1"}
    assert sum(task.rows_read for task in ended) > summary["events_read"], "Spark's own count of rows that tasks read"
    assert there.url in lake.head().engine
    position = lake.head().position
    local = Lake(folder / "local")
    run(spark, local, {"home": str(folder / "h")}, until=position)
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(lake.files(table), columns) == stored(local.files(table), columns), table
    report = make_report(lake)
    assert json.loads((folder / "h" / FILE).read_bytes())["totals"]["acked"] == ACKED, "the hub has it for the console"
    assert report.totals.acked == ACKED
    assert {(edge.sender, edge.recipient): edge.messages for edge in report.edges}["alice", "bob"] == MESSAGES + 1
