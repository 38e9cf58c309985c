"""Starts the Spark session of the pipeline, with settings that were chosen by measurements of its jobs."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tieline.pipeline.engines import CONNECT, INSTALL_SAIL, LOCAL, SAIL, connect, has_spark, packed
from tieline.pipeline.java import INSTALL, MissingPart, find_java, require_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.app.name": "tieline",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
    # Read only the offsets that a query asks for.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # Batches are small for Spark: use few partitions; Spark merges partitions that are nearly empty.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.files.maxPartitionBytes": "64m",
    # A commit of the lake makes files valid, so files need no second move and no success marker.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.autoBroadcastJoinThreshold": "16m",
    # Number of parts that a task writes at the same time; with more parts, a task sorts its rows first.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Nobody reads the query plans that Spark describes for its own web pages.
    "spark.sql.ui.explainMode": "simple",
    # Recording the source line of every column takes ten times as long as making the column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The files of a table are known; listing them needs no separate job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}

WORKERS = "tieline.pipeline.workers"
"""The module that starts Python workers on this machine. Workers of a cluster get Tieline later, as an archive."""

_BRIEF = {
    # For few rows, compiling the query takes longer than interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Do not re-plan a running query: with one task there is nothing to decide again.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}

_BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
"""Without its optimising compiler, Java keeps only 48 MB of compiled code, which some ten batches fill. Then it drops
code and compiles it again, in every batch.
"""

_JARS = (
    "spark-catalyst", "scala-library", "spark-core", "spark-sql-api", "spark-sql", "scala-reflect", "parquet-column",
    "parquet-jackson", "parquet-encoding", "parquet-format-structures", "parquet-hadoop", "parquet-common",
    "log4j-core", "commons-compiler", "jackson-databind", "hadoop-client-api", "janino", "spark-network-common",
    "hadoop-client-runtime", "netty-common", "netty-transport", "antlr4-runtime", "spark-common-utils", "jackson-core",
    "spark-unsafe", "py4j",
)  # fmt: skip
"""Archives (jars) with most of Spark's classes. Java searches archives in order, so these archives come first."""

_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""


def start_session(
    master: str = LOCAL, *, scratch: Path, brief: bool = False, settings: dict[str, str] | None = None
) -> "SparkSession":
    """Start a Spark session with the `tieline` source. Raise `MissingPart` if Spark or Java is missing.

    `master` is Spark's master URL, the address of a Spark Connect server (`sc://…`), or `sail`. `scratch` is a
    temporary folder. `settings` are additional Spark settings. A `brief` session is for little work. It does not use
    Java's optimising compiler, which is useful only for longer work.
    """
    require_extra()
    if master == SAIL or master.startswith(CONNECT):
        every = {**_SETTINGS, **(_BRIEF if brief else {}), **(settings or {})}
        own = {name: value for name, value in every.items() if name.startswith("spark.sql.")}
        return _with_source(connect(master, own, scratch))
    if not has_spark():
        raise MissingPart(f"this environment has only Spark's client: use --engine sail ({INSTALL_SAIL}), or {INSTALL}")
    java = find_java(scratch)
    if java is not None:
        os.environ["JAVA_HOME"] = str(java)
    # Workers on this machine run the same Python, whatever Python comes first on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be missing, which was said above

    builder = SparkSession.builder.master(master)
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    bound = local if master.startswith(("local", "spark://127.0.0.1", "spark://localhost")) else {}
    if master.startswith("local"):
        bound["spark.python.daemon.module"] = WORKERS
    scratch.mkdir(parents=True, exist_ok=True)
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOGGING, encoding="utf-8")
    folders = {
        # ErrorFile: if Java crashes, it writes the reason to a file of this session, not to the current folder.
        # UseParallelGC: with few cores and a small heap it takes a seventh less processor time than G1.
        # MetaspaceSize: Spark's classes fill this much, and collecting before that frees nothing.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:MetaspaceSize=256m "
        f"{_BRIEF_JAVA if brief else ''}"
        f"-XX:ErrorFile={scratch}/java-%p.log "
        f"-Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={scratch}",
        # Executors of a cluster are other processes; each lives as long as the session.
        "spark.executor.extraJavaOptions": f"-XX:+UseParallelGC {_BRIEF_JAVA if brief else ''}",
        "spark.driver.extraClassPath": _first_jars(),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "spark"),
    }
    for name, value in {**_SETTINGS, **(_BRIEF if brief else {}), **bound, **folders, **(settings or {})}.items():
        builder = builder.config(name, value)
    # Errors in a batch are raised as exceptions; py4j need not print them as well.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    with _stderr_to(scratch / "spark.log"):
        spark = builder.getOrCreate()
    if not master.startswith("local"):
        spark.addArtifacts(str(packed(scratch)), pyfile=True)
    return _with_source(spark)


def _with_source(spark: "SparkSession") -> "SparkSession":
    from tieline.pipeline.source import TielineSource  # noqa: PLC0415 - the extra may be missing

    spark.dataSource.register(TielineSource)
    return spark


@contextlib.contextmanager
def brief_queries(spark: "SparkSession") -> Iterator[None]:
    """Use the settings of a brief session for the queries in the `with` block. Afterwards, restore the settings."""
    before = {name: str(spark.conf.get(name)) for name in _BRIEF}
    changed = {name: value for name, value in _BRIEF.items() if before[name] != value}
    try:
        for name, value in changed.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in changed:
            spark.conf.set(name, before[name])


def _first_jars() -> str:
    """Return a class path of the archives with most of Spark's classes, which Java should search first."""
    home = os.environ.get("SPARK_HOME")
    spec = find_spec("pyspark")
    folder = Path(home) if home else Path(spec.origin).parent if spec and spec.origin else Path()
    found = {re.split(r"[_-]\d", path.name)[0]: str(path) for path in (folder / "jars").glob("*.jar")}
    return os.pathsep.join(found[name] for name in _JARS if name in found)


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect stderr to a file, also for new processes, because Spark prints long errors that it also raises."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
