"""The processes that benchmarks start: hubs, reference servers, clients. Each is ended by its own pid."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from bench import hub_main
from bench.metrics import read_figures
from tieline.wire.home import HUB_SOCKET, read_running

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
_OWN_VARIABLES = ("TIELINE_", "BACKCHANNEL_", "PEERBUS_")


class BenchError(Exception):
    """A benchmark cannot continue; the error text says why."""


class Server(Struct, frozen=True):
    """A server under load."""

    pid: int
    home: Path
    http: str = ""

    @property
    def socket(self) -> Path:
        """Path of the hub's socket."""
        return self.home / HUB_SOCKET

    def figures(self) -> dict[str, float]:
        """Current metrics of the hub."""
        return read_figures(self.http)


def environment() -> dict[str, str]:
    """This environment without variables that configure a hub or a client, and with this checkout's code."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN_VARIABLES) or name == hub_main.PROFILE_VARIABLE
    }
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def hub_command(home: Path, store: str) -> list[str]:
    """Command that starts a hub: `tieline serve`, or `bench.hub_main` for a profile or without a command line."""
    arguments = ["--home", str(home), "--http", "127.0.0.1:0", "--store", store]
    if hub_main.PROFILE_VARIABLE in os.environ or find_spec("tieline.cli.main") is None:
        return [sys.executable, "-m", hub_main.__name__, *arguments]
    return [str(Path(sys.executable).with_name("tieline")), "serve", *arguments]


@contextlib.contextmanager
def temporary_home(folder: Path) -> Iterator[Path]:
    """A folder that is removed afterwards. Its name is short, because the length of socket paths is limited."""
    home = Path(tempfile.mkdtemp(prefix="b", dir=folder))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def started(command: Sequence[str], log: Path, ready: Callable[[], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, from the moment it is ready until it has ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment(), cwd=ROOT
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                raise BenchError(f"{' '.join(command)} did not start:\n{tail}")
            time.sleep(0.02)
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process with SIGTERM, and with SIGKILL if that takes too long."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def hub(folder: Path, store: str) -> Iterator[Server]:
    """A hub in a home of its own."""
    with temporary_home(folder) as home:
        command = hub_command(home, store)
        with started(command, home / "bench.log", lambda: read_running(home) is not None):
            running = read_running(home)
            assert running is not None, "the hub said so a moment ago"
            yield Server(running.pid, home, running.http)


@contextlib.contextmanager
def file_log(folder: Path) -> Iterator[Server]:
    """The reference server of `bench.file_log`."""
    with temporary_home(folder) as home:
        server_socket = home / HUB_SOCKET
        command = [sys.executable, "-m", "bench.file_log", str(home)]
        with started(command, home / "bench.log", server_socket.exists) as process:
            yield Server(process.pid, home)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Server]:
    """A Redis that syncs its file before it answers."""
    with temporary_home(folder) as home:
        settings = f"""
            port 0
            unixsocket {home / HUB_SOCKET}
            dir {home}
            save ""
            appendonly yes
            appendfsync always
        """
        configuration = home / "redis.conf"
        configuration.write_text("\n".join(line.strip() for line in settings.strip().splitlines()))
        command = ["redis-server", str(configuration)]
        with started(command, home / "bench.log", (home / HUB_SOCKET).exists) as process:
            yield Server(process.pid, home)


def run_client(module: str, plan: Struct, seconds_max: float) -> bytes:
    """Run a client process with a plan; returns its output."""
    command = [sys.executable, "-m", module, msgspec.json.encode(plan).decode()]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    )
    try:
        output, errors = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{module} did not finish within {seconds_max:.0f} s") from None
    finally:
        end(process)
    if process.returncode:
        raise BenchError(f"{module} failed:\n{errors.decode(errors='replace')[-3000:]}")
    return output


def end_by_pid(pid: int, parent: subprocess.Popen[bytes]) -> None:
    """End a process that one of our processes started, and wait until that parent ends too."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    try:
        parent.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
