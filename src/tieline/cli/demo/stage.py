"""The stage of the demo: a hub and the agents, each in its own process, in a temporary folder.

Used by: `script`. Uses: `agent`, and `tieline serve`, started in the usual way but under a guard process. When the demo
ends, also by an error or by Ctrl-C, the stage ends every process that it started and removes the folder. If the stage
is killed, the guard ends the hub and removes the folder. Agents end by themselves when their stdin closes.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tieline.agents import guard
from tieline.cli.demo import agent as a
from tieline.client import Client, connect
from tieline.contract.member import MemberKind
from tieline.protocols import protocols
from tieline.server.config import load_config
from tieline.wire.home import Running, read_running
from tieline.wire.puppet import Place
from tieline.wire.unix import PATH_BYTES_MAX

WAIT_SECONDS = 8.0
"""Longest time, in seconds, to wait for an expected event. The event comes within milliseconds, or not at all."""
_START_SECONDS = 20.0  # a slow machine imports for some seconds
_STOP_SECONDS = 5.0  # then it is killed
_POLL_SECONDS = 0.02  # a person does not notice it
_LINE_BYTES_MAX = 1 << 20  # a player's line holds one message of the play
_SCRATCH_BYTES_MAX = PATH_BYTES_MAX - len("/tieline-demo-12345678/home/channels/main/inbox-cleo.sock")

_A = TypeVar("_A")

_reports: msgspec.json.Decoder[a.Report] = msgspec.json.Decoder(a.Report)


class Broken(Exception):
    """Raised if the demo cannot go on, for example because the hub did not start or an agent's process ended."""


async def soon(ask: Callable[[], Awaitable[_A]], is_it: Callable[[_A], bool]) -> _A:
    """Call `ask` again and again until `is_it` is true for its answer, or until a timeout. Return the last answer.

    This is needed for protocols without acknowledgements, which do not report that the hub has processed a message.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_SECONDS
    while not is_it(answer := await ask()) and loop.time() < deadline:  # noqa: ASYNC110 - the hub gives no sign
        await asyncio.sleep(_POLL_SECONDS)
    return answer


def _scratch() -> str | None:
    """Return the folder in which the demo makes its temporary folder; `None` for the system's default.

    In the default folder the paths of sockets may be too long.
    """
    usual = Path(tempfile.gettempdir())
    short = Path("/tmp")  # noqa: S108 - a folder with a random name is made in it
    return str(short) if len(os.fsencode(usual)) > _SCRATCH_BYTES_MAX and short.is_dir() else None


def _environment() -> dict[str, str]:
    """Return the environment for child processes of the demo, without variables that name another hub."""
    own = ("TIELINE_", *(f"{protocol.section.upper()}_" for protocol in protocols()))
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


async def _start(*arguments: str, pipes: int, log: Any, pass_fds: tuple[int, ...] = ()) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=pipes,
        stdout=pipes,
        stderr=log,
        env=_environment(),
        # Only the stage handles Ctrl-C. A child process that Ctrl-C ended would look like a failure.
        start_new_session=True,
        limit=_LINE_BYTES_MAX,
        pass_fds=pass_fds,
    )


class Player:
    """An agent of the demo, which runs in a process of its own.

    This object sends orders to that process, and collects the messages that the agent receives.
    """

    def __init__(self, name: str, protocol: str, role: str) -> None:
        self.name = name
        self.protocol = protocol
        self.role = role
        # All messages that the player has heard, over all its processes.
        self.heard: list[a.News] = []
        self._numbers = count(1)
        self._orders: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Condition()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """True if the agent has a running process."""
        return self._process is not None and self._process.returncode is None

    async def start(self, log: Any) -> None:
        """Start the agent's process, which writes its log to the file `log`.

        The agent is not connected to the hub yet.
        """
        self._process = await _start("-m", "tieline.cli.demo.agent", pipes=asyncio.subprocess.PIPE, log=log)
        self._reading = asyncio.create_task(self._read(self._process))

    async def join(self, place: Place) -> None:
        """Let the agent connect to the hub by its protocol.

        `place` has the hub's addresses, and the agent's name and token.
        """
        await self._order(lambda n: a.Join(n, self.protocol, place))

    async def say(self, target: str, body: str, *, urgent: bool = False) -> None:
        """Send a message as this agent."""
        await self._order(lambda n: a.Say(n, target, body, urgent))

    async def hold(self) -> None:
        """Let the agent acknowledge no message from now on."""
        await self._order(a.Hold)

    async def race(self) -> list[bool]:
        """Let the agent claim its last message twice at once.

        Return, for each claim, true if the claim got the message.
        """
        return msgspec.convert(await self._order(a.Race), list[bool])

    async def ask(self, method: str, path: str, **form: Any) -> a.Json:
        """Let the agent make an HTTP request that does not send a message. Return the answer."""
        return msgspec.convert(await self._order(lambda n: a.Ask(n, method, path, form)), a.Json)

    async def hears(self, is_it: Callable[[a.News], bool], *, since: int = 0) -> a.News | None:
        """Wait until the agent has received a message for which `is_it` is true.

        Return the message; `None` after a timeout. Messages before number `since` (counted from 0) are skipped.
        """

        def found() -> a.News | None:
            return next(filter(is_it, self.heard[since:]), None)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS), self._news:
                await self._news.wait_for(found)
        return found()

    async def kill(self) -> int:
        """Kill the agent's process, as if it had crashed. Return its exit code."""
        assert self._process is not None, "started before"
        # The process may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        if self._reading is not None:
            await asyncio.wait({self._reading})
        return await self._process.wait()

    async def _order(self, make: Callable[[int], a.Order]) -> Any:
        assert self._process is not None, "started before"
        assert self._process.stdin is not None, "started with a pipe"
        order = make(next(self._numbers))
        answer = self._orders[order.n] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        try:
            async with asyncio.timeout(_START_SECONDS):
                return await answer
        except TimeoutError:
            raise Broken(f"{self.name} did not do what it was told") from None

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None, "started with a pipe"
        async for line in process.stdout:
            report = _reports.decode(line)
            if isinstance(report, a.News):
                async with self._news:
                    self.heard.append(report)
                    self._news.notify_all()
                continue
            answer = self._orders.pop(report.n)
            if answer.done():
                # The caller was cancelled meanwhile.
                continue
            if report.failed:
                answer.set_exception(Broken(f"{self.name} could not do what it was told: {report.failed}"))
            else:
                answer.set_result(report.value)
        for answer in self._orders.values():
            if not answer.done():
                answer.set_exception(Broken(f"the process of {self.name} ended"))
        self._orders.clear()


class Stage:
    """The processes of the demo: the hub and the agents, in a temporary folder. Use it as an async context manager."""

    def __init__(self, players: dict[str, Player], *, keep: bool) -> None:
        self.players = players
        self._keep = keep
        self.folder = Path(tempfile.mkdtemp(prefix="tieline-demo-", dir=_scratch()))
        self.home = self.folder / "home"
        self._tokens: dict[str, str] = {}
        self._log = (self.folder / "log").open("wb")
        self._hub: asyncio.subprocess.Process | None = None
        # Our end of the pipe that keeps the hub alive.
        self._alive = -1
        self._running: Running | None = None
        self._clients: list[Client] = []

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _start(self) -> None:
        self._hub = await self._start_hub()
        # The agents start at the same time as the hub, because both take about equally long.
        await asyncio.gather(*(player.start(self._log) for player in self.players.values()))
        try:
            async with asyncio.timeout(_START_SECONDS):
                while (running := read_running(self.home)) is None:
                    if self._hub.returncode is not None:
                        raise Broken(f"the hub did not start: {self.last_words()}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise Broken(f"the hub was not ready within {_START_SECONDS:.0f} s") from None
        self._running = running

    async def _start_hub(self) -> asyncio.subprocess.Process:
        """Start the hub under a guard (a process between this process and the hub). Return the guard's process.

        A pipe connects this process with the guard. When the pipe closes, the guard ends the hub. So the hub also ends
        if this process is killed.
        """
        serve = (sys.executable, "-m", "tieline.cli.main", "serve", "--home", str(self.home), "--http", "127.0.0.1:0")
        alive, self._alive = os.pipe()
        removed = "" if self._keep else str(self.folder)
        arguments = ("-I", "-S", guard.__file__, str(alive), removed, guard.OWN_GROUP, *serve)
        try:
            return await _start(*arguments, pipes=asyncio.subprocess.DEVNULL, log=self._log, pass_fds=(alive,))
        finally:
            os.close(alive)

    @property
    def hub_pid(self) -> int:
        """Process id of the hub."""
        assert self._running is not None, "started before"
        return self._running.pid

    def last_words(self) -> str:
        """Return the last line in the log of the hub and the agents, to explain a failure."""
        lines = (self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    async def open(self, member: str | None = None, *, receive: bool = False) -> Client:
        """Open a session on the hub's own protocol, for `member`. Without `member`, the session is the operator's."""
        client = await connect(home=self.home, member=member, receive=receive)
        self._clients.append(client)
        return client

    async def add(self, operator: Client, name: str, *, human: bool = False, permissions: tuple[str, ...] = ()) -> None:
        """Create a member on the hub, and store its token for `enter`.

        `operator` is the session that may create members.
        """
        kind = MemberKind.HUMAN if human else MemberKind.AGENT
        token = (await operator.add_member(name, kind=kind, permissions=permissions)).token
        assert self._running is not None, "started before"
        self._tokens[name] = token

    async def enter(self, player: Player) -> None:
        """Connect an agent to the hub by its own protocol."""
        assert self._running is not None, "started before"
        settings = load_config(self.home).protocols[player.protocol]
        await player.join(Place.at(self._running, player.name, self._tokens[player.name], settings))

    async def replace(self, player: Player) -> None:
        """Start a new process for a killed agent, without any state of the old one, and connect it."""
        await player.start(self._log)
        await self.enter(player)

    async def stop_hub(self) -> int:
        """Ask the hub to stop, and return its exit code."""
        for client in self._clients:
            await client.close()
        self._clients.clear()
        assert self._hub is not None, "started before"
        if self._hub.returncode is None:
            self._hub.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._hub.wait()
        return -signal.SIGKILL if self._hub.returncode is None else self._hub.returncode

    async def close(self) -> None:
        """End every process of the demo, and remove the temporary folder unless `keep` is set.

        A cancellation does not interrupt this.
        """
        closing = asyncio.create_task(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _close(self) -> None:
        try:
            for player in self.players.values():
                if player.running:
                    await player.kill()
            if self._hub is not None:
                await self.stop_hub()
        finally:
            if self._alive >= 0:
                os.close(self._alive)
            if self._hub is not None:
                await self._hub.wait()
            self._log.close()
            if not self._keep:
                shutil.rmtree(self.folder, ignore_errors=True)
