"""The workers of a hub, seen from the hub's process: starts them, hands connections over, replaces dead workers.

Used by: the code that assembles the hub. Uses: processes of `tieline.server.workers.process`, a control line to each,
and the server of the links. The hub's process listens at all doors. A new connection goes to the worker with the fewest
connections. So a door stays open while workers come and go, and a worker that is gone gets no connections.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tieline.server.config import ConfigError
from tieline.server.workers.control import (
    Begin,
    ControlLine,
    Handed,
    Load,
    NotOpened,
    NotReady,
    Opened,
    OpenPort,
    OpenSocket,
    Ready,
    Stop,
    ToPool,
    Unsent,
)
from tieline.wire import unix
from tieline.wire.acceptor import Acceptor
from tieline.wire.backoff import Backoff
from tieline.wire.doors import Closable, bound
from tieline.wire.hub_link.server import LinkServer
from tieline.wire.tls import BACKLOG

_BACKOFF = Backoff(initial_ms=100, wait_ms_max=10_000, attempts_max=None)
"""Waits before a worker is started again. A worker that dies at once takes half a second of processor time."""
_LASTED_SECONDS = 60.0
"""A worker that ran this long was no failed start, so the next wait is the shortest again."""
_STOP_SECONDS = 5.0
"""Time for a worker to end its connections. It needs half a second for clients that do not read."""
_WAITING_MAX = BACKLOG
"""Most connections of a door that wait while there is no worker: as many as the kernel would queue."""

log = structlog.get_logger(__name__)


class WorkersFailed(OSError):
    """Raised if a worker cannot start. The text says why."""


class _Door(Acceptor):
    """A listening socket of the hub (a port or a Unix socket). It hands its connections over to workers."""

    def __init__(self, listener: socket.socket, address: tuple[str, int] | None) -> None:
        # Host and port of a port.
        self.address = address
        # Workers that serve this door, with their number of the door.
        self.workers: dict[_Worker, int] = {}
        # Connections that came while there was no worker.
        self._waiting: deque[socket.socket] = deque()
        super().__init__(listener, lambda _: asyncio.Protocol())

    def take(self, accepted: socket.socket) -> None:
        """Hand a connection over to the worker with the fewest connections. Without a worker, let it wait for one."""
        if self.workers:
            worker = min(self.workers, key=lambda one: one.connections)
            worker.hand_over(self.workers[worker], accepted)
        elif len(self._waiting) < _WAITING_MAX:
            self._waiting.append(accepted)
        else:
            accepted.close()

    def add(self, worker: "_Worker", number: int) -> None:
        """Hand connections over to this worker too. `number` is the worker's own number for this door."""
        self.workers[worker] = number
        while self._waiting:
            self.take(self._waiting.popleft())

    def close(self) -> None:
        """Stop listening, and close the connections that wait for a worker."""
        super().close()
        while self._waiting:
            self._waiting.popleft().close()


class _Worker:
    """One process of a worker, and the control line to it. When the process dies, the pool makes a new object."""

    def __init__(self, pool: "WorkerPool", number: int, started: asyncio.Future[Ready]) -> None:
        self._pool = pool
        self.number = number
        self.process: asyncio.subprocess.Process
        self.line: ControlLine
        # Resolved when all doors of the first life of this worker are open.
        self._started = started
        # Id of the worker's link to the hub; empty until it is ready.
        self.link = ""
        # Connections that were handed over, and the worker's own last numbers.
        self._handed = 0
        self._load = Load(0, 0)
        # The error of the last door that could not be opened.
        self._error: OSError | None = None

    @property
    def connections(self) -> int:
        """Number of connections that this worker has."""
        return self._load.connections + self._handed - self._load.taken

    async def run(self) -> int:
        """Start the process, log its output until it ends, and return its exit code."""
        ours, theirs = socket.socketpair()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "tieline.server.workers.process", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.line = ControlLine(ours, ToPool, self._receive, self._lost)
        self._pool.enter(self)
        self.line.send(self._pool.begin(self.number))
        assert self.process.stdout is not None, "it is a pipe"
        try:
            while True:
                try:
                    line = await self.process.stdout.readline()
                except ValueError:
                    # A line that is longer than the buffer; its beginning is dropped.
                    continue
                if not line:
                    break
                _log(line.decode(errors="replace").strip(), self.number)
            return await self.process.wait()
        finally:
            self.kill()
            self.line.close()
            self._pool.leave(self)

    def kill(self) -> None:
        """End the process at once, if it still runs."""
        # Not by the process object, which could take the exit code before asyncio does.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)

    def _lost(self, unsent: Sequence[Unsent]) -> None:
        """End the process, because its control line is lost. Other workers get the connections in `unsent`."""
        self.kill()
        doors = self._pool.close_doors(self)
        for message, connection in unsent:
            assert isinstance(message, Handed), "no other message has a connection"
            doors[message.door].take(connection)

    def hand_over(self, door: int, connection: socket.socket) -> None:
        """Hand a client's connection over to the worker. `door` is the worker's own number for the door."""
        self._handed += 1
        self.line.send(Handed(door), connection)

    def share_door(self, number: int, door: _Door, address: tuple[str, int] | None) -> None:
        """Tell the worker that a door is open, and hand over connections of the door from now on.

        `number` is the worker's own number for the door. `address` is the door's host and port, if it is a port.
        """
        self.line.send(Opened(number, address))
        door.add(self, number)

    def refuse_door(self, number: int, error: OSError) -> None:
        """Tell the worker that the door with this number cannot be opened, because of `error`."""
        self._error = error
        self.line.send(NotOpened(number, error.errno, error.strerror or str(error)))

    def _receive(self, message: ToPool, connection: socket.socket | None) -> None:
        del connection
        match message:
            case OpenSocket() | OpenPort():
                self._pool.open_later(self, message)
            case Load():
                self._load = message
            case Ready(link):
                self.link = link
                if not self._started.done():
                    self._started.set_result(message)
            case NotReady(why, is_setting):
                log.error("a worker cannot start", worker=self.number, reason=why)
                if not self._started.done():
                    self._started.set_exception(ConfigError(why) if is_setting else self._error or WorkersFailed(why))


class WorkerPool(Collector):
    """The workers of a hub.

    `begin` returns the first message to the worker with a given number. `key` is the secret in this message, with which
    the worker proves to the hub's sockets that it is a worker.
    """

    def __init__(self, count: int, key: str, begin: Callable[[int], Begin], links: LinkServer) -> None:
        self._count = count
        self.key = key
        self.begin = begin
        self._links = links
        self._doors: dict[Path | tuple[str, int], _Door] = {}
        # Unix sockets with their files, and ports, which are closed at the end.
        self._listening: list[Closable] = []
        self._opening = asyncio.Lock()
        # The tasks that open doors.
        self._wishes: set[asyncio.Task[None]] = set()
        # The workers that run now, by number, and the tasks that keep them running.
        self._workers: dict[int, _Worker] = {}
        self._keeping: list[asyncio.Task[None]] = []
        self._starts = 0
        self._ending = asyncio.Event()

    async def start(self) -> Ready:
        """Start all workers, and return the addresses of their doors (ports and sockets).

        Raises `ConfigError` if a setting cannot be used, and `OSError` if a door cannot be opened or a worker fails.
        """
        loop = asyncio.get_running_loop()
        started: list[asyncio.Future[Ready]] = [loop.create_future() for _ in range(self._count)]
        self._keeping = [loop.create_task(self._keep(number, one)) for number, one in enumerate(started, 1)]
        await asyncio.wait(started)
        failures = [error for one in started if (error := one.exception()) is not None]
        if failures:
            raise failures[0]
        return started[0].result()

    async def stop(self) -> None:
        """End all workers, and close all doors."""
        self._ending.set()
        for listening in self._listening:
            listening.close()
        for worker in self._workers.values():
            worker.line.send(Stop())
        if self._keeping:
            await asyncio.wait(self._keeping, timeout=_STOP_SECONDS)
        for worker in list(self._workers.values()):
            log.warning("a worker does not stop", worker=worker.number)
            worker.kill()
        await asyncio.gather(*self._keeping, *self._wishes)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the workers, for Prometheus."""
        yield CounterMetricFamily("tieline_worker_starts", "Starts of processes that serve clients", value=self._starts)
        text = "Open connections of each process that serves clients"
        connections = GaugeMetricFamily("tieline_worker_connections", text, labels=["worker"])
        for number, worker in sorted(self._workers.items()):
            connections.add_metric([str(number)], worker.connections)
        yield connections

    async def _keep(self, number: int, started: asyncio.Future[Ready]) -> None:
        """Keep a worker running until the hub stops, or until its first start fails."""
        failures = 0
        while not self._ending.is_set():
            begun = time.monotonic()
            self._starts += 1
            worker = _Worker(self, number, started)
            try:
                code: int | str = await worker.run()
            except OSError as error:
                code = str(error)
            if not started.done():
                started.set_exception(WorkersFailed("a worker ended at its start; the lines above say why"))
            if started.exception() is not None or self._ending.is_set():
                return
            failures = 0 if time.monotonic() - begun > _LASTED_SECONDS else failures + 1
            wait = _BACKOFF.wait_seconds(failures)
            log.warning("a worker ended", worker=number, code=code, again_in_seconds=round(wait, 1))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), wait)

    # Calls of workers.

    def enter(self, worker: _Worker) -> None:
        """Add a worker whose process runs now."""
        self._workers[worker.number] = worker

    def leave(self, worker: _Worker) -> None:
        """Forget a worker whose process has ended, and end its sessions."""
        self._workers.pop(worker.number, None)
        self.close_doors(worker)
        self._links.end(worker.link)

    def close_doors(self, worker: _Worker) -> dict[int, _Door]:
        """Hand no more connections over to a worker. Return its doors, by the worker's own numbers for them."""
        return {door.workers.pop(worker): door for door in self._doors.values() if worker in door.workers}

    def open_later(self, worker: _Worker, wish: OpenSocket | OpenPort) -> None:
        """Start to open the door that a worker wants. If the door is open for another worker, both share it."""
        task = asyncio.get_running_loop().create_task(self._open(worker, wish))
        self._wishes.add(task)
        task.add_done_callback(self._wishes.discard)

    async def _open(self, worker: _Worker, wish: OpenSocket | OpenPort) -> None:
        key = Path(wish.path) if isinstance(wish, OpenSocket) else (wish.host, wish.port)
        async with self._opening:
            try:
                door = self._doors[key] = self._doors.get(key) or await self._listen(wish)
            except OSError as error:
                worker.refuse_door(wish.door, error)
            else:
                worker.share_door(wish.door, door, door.address)

    async def _listen(self, wish: OpenSocket | OpenPort) -> _Door:
        if isinstance(wish, OpenPort):
            sock = bound(wish.host, wish.port)
            sock.setblocking(False)
            sock.listen(BACKLOG)
            door = _Door(sock, sock.getsockname()[:2])
            self._listening.append(door)
            return door
        made: list[_Door] = []

        async def serve(sock: socket.socket) -> _Door:
            made.append(_Door(sock, None))
            return made[0]

        self._listening.append(await unix.listen_with(Path(wish.path), serve, mode=0o600))
        return made[0]


def _log(line: str, number: int) -> None:
    """Log a line of a worker's output, marked with the number of the worker."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
        said, level = str(fields.pop("event")), str(fields.pop("level"))
        fields.pop("timestamp", None)
    except (msgspec.MsgspecError, KeyError):
        if line:
            log.warning(line, worker=number)
        return
    write = {"warning": log.warning, "error": log.error, "critical": log.error}.get(level, log.info)
    write(said, **{**fields, "worker": number})
