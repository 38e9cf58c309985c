"""Test helper that starts a Spark cluster on this machine: a master and workers as separate processes."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tieline.pipeline.java import find_java

START_SECONDS = 120
_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_JOINED = "Registering worker"


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
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    spark_home = Path(spec.origin).parent
    java = find_java(folder)
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home),
        "SPARK_DAEMON_MEMORY": "256m",
        # They do little, and not for long.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_NO_DAEMONIZE": "1",
        **({"JAVA_HOME": str(java)} if java else {}),
    }
    with contextlib.ExitStack() as stack:

        def start(name: str, *arguments: str) -> Path:
            log = folder / f"{name}.log"
            program = str(spark_home / "bin" / "spark-class")
            with log.open("wb") as output:
                # A session of its own, because the script starts Java as its child.
                process = subprocess.Popen(
                    [program, *arguments], env=environment, stdout=output, stderr=output, start_new_session=True
                )
            stack.callback(_end, process)
            return log

        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = start("master", "org.apache.spark.deploy.master.Master", *address)
        url = _wait_for(log, _MASTER)[1]
        work = [folder / f"work-{number}" for number in range(workers)]
        for number, path in enumerate(work):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(path))
            start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *address, *own, url)
        _wait_for(log, re.compile(f"(?s)({_JOINED}.*){{{workers}}}"))
        yield Cluster(url, work)


def _wait_for(log: Path, what: re.Pattern[str]) -> re.Match[str]:
    deadline = time.monotonic() + START_SECONDS
    while True:
        text = log.read_text(errors="replace")
        if found := what.search(text):
            return found
        assert time.monotonic() < deadline, f"{log.name}: {text[-2000:]}"
        time.sleep(0.1)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
