"""A driver of its own that kills itself so long after a stage begins: `victim.py HOME LAKE ROWS STAGE SECONDS`.

ROWS are those of a batch. The driver uses the Java of the tests' session, named by `gateway`, which outlives it: its
tasks go on and write files that nobody commits. `tests/faults` kills drivers together with their Java.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, run


def gateway(spark: SparkSession) -> dict[str, str]:
    """Variables by which another process finds the Java of a session."""
    java = spark.sparkContext._gateway.java_parameters  # type: ignore[union-attr]  # it has begun
    return {"PYSPARK_GATEWAY_PORT": str(java.port), "PYSPARK_GATEWAY_SECRET": java.auth_token}


def attached() -> SparkSession:
    """A session in the Java that the variables name."""
    found = launch_gateway()  # type: ignore[no-untyped-call]  # it has no types
    jvm = found.jvm
    assert jvm is not None
    context = jvm.org.apache.spark.api.java.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=found, jsc=context, conf=conf))


def main() -> None:
    """Run until the stage, and die there."""
    home, lake, rows, stage, seconds = sys.argv[1:]

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die(name: str) -> None:
        if name != stage:
            return
        if float(seconds):
            # The stage continues meanwhile.
            threading.Timer(float(seconds), kill).start()
        else:
            kill()

    run(attached(), Lake(Path(lake)), {"home": home}, rows_per_batch=int(rows), watch=Watch(stage=die))


if __name__ == "__main__":
    main()
