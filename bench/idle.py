"""Idle connections: resident memory of the hub for each Unix-socket client that says nothing."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench import processes
from bench.context import Context
from bench.machine import read_resident_bytes
from bench.processes import BenchError, Server
from bench.report import Goal, Report, Table
from tieline.wire.frames import HEADER_BYTES, encode_frame
from tieline.wire.home import read_key
from tieline.wire.native import frames as f

CONNECTIONS = 2_000
MEMBERS = 20
WARM_UP = 50
SETTLE_SECONDS = 1.0
WAIT_SECONDS_MAX = 60.0
LIMIT_BYTES = 8 * 1024

Dial = Callable[[int], socket.socket]


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _dial(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Set the timeout only after connecting: with a timeout, a full backlog raises an error instead of a short wait.
    sock.connect(str(path))
    sock.settimeout(WAIT_SECONDS_MAX)
    return sock


def _ask(sock: socket.socket, *frames: f.Frame) -> list[f.HubFrame]:
    sock.sendall(encode_frame(f.encode_batch(frames)))
    header = _receive(sock, HEADER_BYTES)
    return f.decode_hub_batch(_receive(sock, int.from_bytes(header, "big")))


def _receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise BenchError("the hub hung up")
        data += more
    return data


def _greet(server: Server, key: str, member: str | None, *, receive: bool) -> socket.socket:
    sock = _dial(server.socket)
    (welcome,) = _ask(sock, f.Hello(key=key, member=member, receive=receive))
    if not isinstance(welcome, f.Welcome):
        raise BenchError(f"the hub said {welcome}")
    return sock


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _wait_for_files(pid: int, wanted: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while _open_files(pid) != wanted:
        if time.monotonic() > deadline:
            raise BenchError(f"the hub has {_open_files(pid)} open files where {wanted} were expected")
        time.sleep(0.02)


@contextlib.contextmanager
def _hub_with_members(context: Context) -> Iterator[tuple[Server, str]]:
    with processes.hub(context.folder, "sqlite") as server:
        key = read_key(server.home)
        assert key is not None, "the hub of this home has made its key"
        with _greet(server, key, None, receive=False) as operator:
            for number in range(MEMBERS):
                _ask(operator, f.AddMember(number + 1, f"m{number}"))
        yield server, key


def _measure(server: Server, dial: Dial, sessions: str | None, connections: int) -> float:
    """Bytes per connection. The hub's open files count the accepted connections; `sessions` names a metric to check."""
    time.sleep(SETTLE_SECONDS)
    files = _open_files(server.pid)
    # The first connections load code and fill free lists that all others share.
    for sock in [dial(number) for number in range(WARM_UP)]:
        sock.close()
    _wait_for_files(server.pid, files)
    server.figures()
    time.sleep(SETTLE_SECONDS)
    before = read_resident_bytes(server.pid)
    open_sockets: list[socket.socket] = []
    try:
        open_sockets.extend(dial(number) for number in range(connections))
        _wait_for_files(server.pid, files + connections)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while sessions is not None and server.figures().get(sessions, 0) < connections:
            if time.monotonic() > deadline:
                raise BenchError(f"{sessions} is {server.figures().get(sessions)}, not {connections}")
            time.sleep(0.1)
        time.sleep(SETTLE_SECONDS)
        return (read_resident_bytes(server.pid) - before) / connections
    finally:
        for sock in open_sockets:
            sock.close()


def measure(context: Context) -> Report:
    """See the module."""
    _raise_file_limit()
    report = Report("idle")
    connections = context.scaled(CONNECTIONS) if context.quick else CONNECTIONS
    kinds = {
        "hub.sock, receiving": 'tieline_sessions{protocol="tieline"}',
        "general.sock": None,
        "inbox sockets": 'tieline_sessions{protocol="agent-channels"}',
    }
    for _ in context.rounds():
        for kind, sessions in kinds.items():
            with _hub_with_members(context) as (server, key):
                channels = Path(msgspec.json.decode((server.home / "run.json").read_bytes())["channels_dir"])
                dials: dict[str, Dial] = {
                    "hub.sock, receiving": lambda number, server=server, key=key: _greet(  # type: ignore[misc]
                        server, key, f"m{number % MEMBERS}", receive=True
                    ),
                    "general.sock": lambda _, channels=channels: _dial(channels / "general.sock"),  # type: ignore[misc]
                    "inbox sockets": lambda number, channels=channels: _dial(  # type: ignore[misc]
                        channels / f"inbox-m{number % MEMBERS}.sock"
                    ),
                }
                report.add(kind, _measure(server, dials[kind], sessions, connections))
    table = Table(f"idle: resident bytes of the hub per connection ({connections:,} open)", ["socket", "bytes each"])
    for kind in kinds:
        table.rows.append([kind, report.spread(kind)])
        middle = report.median(kind)
        assert middle is not None, "every kind was measured"
        goal = Goal(f"idle {kind}, KiB", "≤ 8", f"{middle / 1024:.1f}", middle <= LIMIT_BYTES)
        report.goals.append(goal)
    report.tables.append(table)
    report.notes.append(f"Sessions of {MEMBERS} members; accepted connections are counted by the hub's open files.")
    return report
