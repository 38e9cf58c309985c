"""A PostgreSQL server with its defaults, on a disk of its own folder: it syncs every commit."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.processes import BenchError, started


def programs() -> Path | None:
    """Return the folder with the programs of PostgreSQL, if Debian's package is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[tuple[int, str]]:
    """A server, which yields its process id and the URL of its database.

    It refuses to run as root, so root starts it as the user `postgres`.
    """
    found = programs()
    assert found is not None, "asked before"
    user = "postgres" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="pg", dir=folder))
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
    try:
        if user:
            shutil.chown(home, user)
        options = ("--auth=trust", "--username=tieline", "--encoding=UTF8", "--locale=C.UTF-8")
        command = [*as_user, str(found / "initdb"), "-D", str(home / "data"), *options]
        made = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
        if made.returncode:
            raise BenchError(f"initdb failed:\n{made.stderr}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [*as_user, str(found / "postgres"), "-D", str(home / "data"), "-p", str(port), "-k", str(home)]
        ready = [str(found / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]

        def answers() -> bool:
            return subprocess.run(ready, check=False).returncode == 0

        with started(command, folder / f"{home.name}.log", answers) as process:
            yield process.pid, f"postgresql://tieline@127.0.0.1:{port}/postgres"
    finally:
        (folder / f"{home.name}.log").unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)
