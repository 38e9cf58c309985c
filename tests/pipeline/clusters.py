"""Test helpers that start Spark on this machine: a cluster of a master and workers, or a Spark Connect server."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from tieline.pipeline.java import find_java

START_SECONDS = 120
_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_JOINED = "Registering worker"
_SERVER = re.compile(r"Spark Connect server started at: (127\.0\.0\.1:\d+)")


class Cluster:
    """A running Spark cluster: the address of the master, and the folders of the workers."""

    def __init__(self, url: str, work: list[Path]) -> None:
        self.url = url
        self._work = work

    def executors(self) -> list[int]:
        """Return the number of executors that each worker has started."""
        return [len(list(folder.glob("app-*/*"))) for folder in self._work]


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a Spark cluster on free ports of this machine. Stop it at the end."""
    folder.mkdir(parents=True)
    address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    # They do little, and not for long.
    environment = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with contextlib.ExitStack() as stack:
        master = ("org.apache.spark.deploy.master.Master", *address)
        log = stack.enter_context(_spark(folder, "master", master, environment))
        url = _wait_for(log, _MASTER)[1]
        work = [folder / f"work-{number}" for number in range(workers)]
        for number, path in enumerate(work):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(path))
            worker = ("org.apache.spark.deploy.worker.Worker", *address, *own, url)
            stack.enter_context(_spark(folder, f"worker-{number}", worker, environment))
        _wait_for(log, re.compile(f"(?s)({_JOINED}.*){{{workers}}}"))
        yield Cluster(url, work)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Start a Spark Connect server on a free port of this machine. Yield its address. Stop it at the end.

    The server's own Python is Debian's, which has no packages.
    """
    folder.mkdir(parents=True)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal")
    given = [one for name, value in settings.items() for one in ("--conf", f"{name}={value}")]
    command = ("org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", *given, *server)
    with _spark(folder, "connect", command, {"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}) as log:
        yield f"sc://{_wait_for(log, _SERVER)[1]}"


@contextlib.contextmanager
def _spark(folder: Path, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Path]:
    """Start a process of Spark. Yield the file with its output. Stop the process at the end."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home, java, log = Path(spec.origin).parent, find_java(folder), folder / f"{name}.log"
    own = {"SPARK_HOME": str(home), **({"JAVA_HOME": str(java)} if java else {})}
    with log.open("wb") as output:
        # A session of its own, because the script starts Java as its child.
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments], env={**os.environ, **own, **environment}, cwd=folder,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(log: Path, what: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + START_SECONDS
    while True:
        text = log.read_text(errors="replace")
        if found := what.search(text):
            return found
        assert time.monotonic() < deadline, f"{log.name}: {text[-2000:]}"
        time.sleep(0.1)
