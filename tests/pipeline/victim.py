"""A Spark driver that kills itself some time after a stage begins: `victim.py HOME LAKE ROWS STAGE SECONDS [OPTIONS]`.

ROWS is the number of rows of a batch. OPTIONS are the lake's options for delta-rs, as JSON. The driver uses the Java
process of the tests' Spark session, which the function `gateway` describes. This Java process survives the kill: its
tasks continue and write files that nobody commits. `tests/faults` kills drivers together with their Java.
"""

import json
import os
import signal
import sys
import threading

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tieline.pipeline.lake import Lake
from tieline.pipeline.run import Watch, run


def gateway(spark: SparkSession) -> dict[str, str]:
    """Return environment variables by which another process finds the Java process of a Spark session."""
    java = spark.sparkContext._gateway.java_parameters  # type: ignore[union-attr]  # it has begun
    return {"PYSPARK_GATEWAY_PORT": str(java.port), "PYSPARK_GATEWAY_SECRET": java.auth_token}


def attached() -> SparkSession:
    """Return a Spark session in the Java process that the environment variables name."""
    found = launch_gateway()  # type: ignore[no-untyped-call]  # it has no types
    jvm = found.jvm
    assert jvm is not None
    context = jvm.org.apache.spark.api.java.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    conf = SparkConf(_jvm=jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=found, jsc=context, conf=conf))


def main() -> None:
    """Run the pipeline until the stage, and kill this process there."""
    home, lake, rows, stage, seconds, *options = sys.argv[1:]

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

    there = Lake(lake, json.loads(options[0]) if options else {})
    run(attached(), there, {"home": home}, rows_per_batch=int(rows), watch=Watch(stage=die))


if __name__ == "__main__":
    main()
