"""The engines that run the pipeline besides the Spark of this process: a Spark Connect server, and Sail.

Used by: `session`. Sail (`pysail`) is a Spark Connect server, too. It needs no Java, and runs in this process. A
session with a server has the same interface as other sessions, so the pipeline's code is the same for all engines.
"""

import atexit
import contextlib
import functools
import os
import socket
import sys
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tieline.pipeline.java import INSTALL, MissingPart, install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
SAIL = "sail"
CONNECT = "sc://"
"""The master that means Spark in this process, the name of Sail, and the start of a Spark Connect server's address."""
INSTALL_SAIL = install_command("sail")
_PORT = 15002
_SECONDS_MAX = 10.0  # a server that takes no connection by then is not there
_PYTHON = "spark.sql.execution.pyspark.python"
_CLIENT = ("grpc", "grpc_status", "zstandard")


def default_master() -> str:
    """Return the engine for a user who names none: Spark in this process, or Sail if only Sail is installed."""
    return SAIL if not has_spark() and find_spec("pysail") is not None else LOCAL


def has_spark() -> bool:
    """True if Spark itself is installed, not only its Python client."""
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (Path(spec.origin).parent if spec and spec.origin else None)
    return home is not None and (Path(home) / "jars").is_dir()


def connect(address: str, settings: Mapping[str, str], scratch: Path) -> "SparkSession":
    """Open a session with the Spark Connect server at `address`, such as `sc://host:15002`, or with Sail (`sail`).

    Workers of the server get this version of Tieline as an archive. The archive is made in the folder `scratch`.
    `settings` are Spark settings that only make the work faster. If the server refuses one of them, that setting is
    left out.
    """
    if address == SAIL and find_spec("pysail") is None:
        raise MissingPart(f"Sail is not installed; make an environment for it, and install it there: {INSTALL_SAIL}")
    missing = [name for name in _CLIENT if find_spec(name) is None]
    if missing:
        raise MissingPart(f"Spark's client needs {', '.join(missing)}: {INSTALL}")
    if address != SAIL:
        _require_server(address)

    from pyspark.errors import PySparkException  # noqa: PLC0415 - the extra may be missing, which was said before
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    spark = SparkSession.builder.remote(_sail() if address == SAIL else address).getOrCreate()
    if address == SAIL:
        try:
            spark.version  # noqa: B018 - the first request
        except PySparkException as error:
            raise MissingPart(
                f"Sail does not work with the packages of this environment ({error}); "
                f"make an environment for it, and install it there: {INSTALL_SAIL}"
            ) from error
    else:
        spark.addArtifacts(str(packed(scratch)), pyfile=True)
        # The server knows only its own Python, unless it is on this machine or somebody names another.
        named = os.environ.get("PYSPARK_PYTHON") or (sys.executable if _is_here(address) else "")
        settings = {**settings, **({_PYTHON: named} if named else {})}
    for name, value in settings.items():
        with contextlib.suppress(PySparkException):
            spark.conf.set(name, value)
    return spark


def engine_name(spark: "SparkSession") -> str:
    """Return the name and version of the engine of a session, such as `spark 4.3.0 (local[2])` or `sail 0.7.2`."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the extra may be missing
    from pyspark.sql import is_remote  # noqa: PLC0415 - the same

    version = str(spark.version)
    if is_remote():
        (row,) = spark.range(1).select(f.version().alias("version")).collect()
        # Spark's own version has the id of a source commit after it. Sail names its own version.
        if not row["version"].startswith(f"{version} "):
            return f"{SAIL} {row['version']}"
        return f"spark {version} (connect, {spark.conf.get('spark.master', 'unknown')})"
    return f"spark {version} ({spark.conf.get('spark.master')})"


def packed(folder: Path) -> Path:
    """Write this version of Tieline as an archive into `folder`, for workers that have none. Return its path."""
    root = Path(__file__).parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tieline.zip"
    with zipfile.PyZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writepy(str(root))
        for file in sorted(root.rglob("*.sql")):
            archive.write(file, file.relative_to(root.parent))
    return path


@functools.cache
def _sail() -> str:
    """Start Sail in this process, once. Return its address."""
    # Sail writes its log to stderr.
    os.environ.setdefault("RUST_LOG", "error")
    # Its allocator asks for huge pages, and the kernel clears each one: a quarter of the time of a small batch.
    os.environ.setdefault("MIMALLOC_ALLOW_THP", "0")
    from pysail.spark import SparkConnectServer  # noqa: PLC0415 - the extra may be missing

    server = SparkConnectServer("127.0.0.1", 0)
    server.start()
    # Without it, the process is aborted at its end.
    atexit.register(server.stop)
    host, port = server.listening_address
    return f"{CONNECT}{host}:{port}"


def _require_server(address: str) -> None:
    """Raise `MissingPart` if nothing answers at `address`. Spark's client itself would try for minutes."""
    host, port = _endpoint(address)
    try:
        socket.create_connection((host, port), _SECONDS_MAX).close()
    except OSError as error:
        raise MissingPart(
            f"no Spark Connect server answers at {host}:{port} ({error}); start it, or name another with --master"
        ) from error


def _is_here(address: str) -> bool:
    host, _ = _endpoint(address)
    with contextlib.suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _endpoint(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    try:
        return parts.hostname or "localhost", parts.port or _PORT
    except ValueError as error:
        raise MissingPart(f"{address} is not the address of a Spark Connect server, such as sc://host:15002") from error
