"""A real PostgreSQL server for tests, from Debian's package: one for each test process, and a schema for each test.

PostgreSQL refuses to run as root, so root starts it as the user `postgres`. The server keeps its data in a temporary
folder and ends with the test process.
"""

import atexit
import contextlib
import ctypes
import functools
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from tieline.stores.postgres import PostgresActivity, PostgresSearch, PostgresStore

_START_SECONDS = 60
"""Longest wait for a server, on a busy machine."""

_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=16MB", "max_wal_size=256MB")
"""Settings for tests that do not need the server to survive a crash of the machine."""

_PR_SET_PDEATHSIG = 1

_numbers = itertools.count(1)


def programs() -> Path:
    """Return the folder with the programs of the newest PostgreSQL on this machine."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    assert found, "the tests need PostgreSQL: 'make test' installs it"
    return found[-1].parent


def _end_with_parent() -> None:
    """Let the kernel stop this process when the test process ends, even if that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A running PostgreSQL server with one database, on a free port of this machine."""

    def __init__(self, settings: tuple[str, ...] = _FAST) -> None:
        self._user = "postgres" if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="tieline-pg-"))
        self._data = self._folder / "data"
        self._settings = settings
        self.port = _free_port()
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        options = ("--auth=trust", "--username=tieline", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
        self._run("initdb", "-D", str(self._data), *options)
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(programs() / program), *arguments]
        done = subprocess.run(command, user=self._user, cwd=self._folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [option for setting in self._settings for option in ("-c", setting)]
        program = str(programs() / "postgres")
        places = ("-D", str(self._data), "-p", str(self.port), "-k", str(self._folder))
        self._process = subprocess.Popen(
            [program, *places, "-c", "listen_addresses=127.0.0.1", *options],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - it makes one call of the system
        )
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=1).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server ended"
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.02)
            else:
                return

    @property
    def url(self) -> str:
        """The URL of the server's database."""
        return f"postgresql://tieline@127.0.0.1:{self.port}/postgres"

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. The default ends its sessions, and lets it write everything."""
        self._process.send_signal(how)
        self._process.wait()

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL, so that the next start must recover."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._process.kill()
        self._process.wait()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        until = time.monotonic() + _START_SECONDS
        # A server refuses to start while a process still has the memory of the one before it.
        while any(_is_alive(child) for child in children):
            assert time.monotonic() < until, "a process of the server does not end"
            time.sleep(0.01)

    def remove(self) -> None:
        """Stop the server, and remove its data."""
        if self._process.poll() is None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder, ignore_errors=True)


@functools.cache
def server() -> Server:
    """Return the server of this test process. The first call starts it."""
    made = Server()
    atexit.register(made.remove)
    return made


def on_postgres() -> bool:
    """True if suites that have a choice run on PostgreSQL; see `test_suites_on_postgres.py`."""
    return os.environ.get("TIELINE_TEST_STORE") == "postgres"


in_files = pytest.mark.skipif(on_postgres(), reason="it looks at files of the home, which are in the database then")
"""Mark of a test that looks at files in which only a hub on SQLite keeps something."""


@functools.cache
def database_url(home: Path) -> str:
    """Return the URL of a database of its own for a hub's home: always the same for the same home."""
    name = f"hub_{next(_numbers)}"
    with psycopg.connect(server().url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server().url.replace("/postgres", f"/{name}")


@functools.cache
def schema_of(folder: Path) -> str:
    """Return a schema that stands for a folder in tests: always the same for the same folder, never used before."""
    return f"test_{next(_numbers)}"


def postgres_store(folder: Path) -> PostgresStore:
    """Open the store whose schema stands for a folder."""
    return PostgresStore(server().url, schema_of(folder), "the hub of a test")


def postgres_activity(folder: Path) -> PostgresActivity:
    """Open the activity log in the schema that stands for a folder."""
    return PostgresActivity(server().url, schema_of(folder))


def postgres_search(folder: Path) -> PostgresSearch:
    """Open the search index in the schema that stands for a folder."""
    return PostgresSearch(server().url, schema_of(folder))
