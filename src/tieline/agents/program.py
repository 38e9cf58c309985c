"""A program under a guard: started for one run, ended with it, whatever ends the run.

Above: the runners. Below: `guard.py`, in a process of its own between us and the program. It refuses to know what the
program is or says.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tieline.agents import guard
from tieline.agents.run_folder import RunFolder

END_SECONDS = 2 * guard.GRACE_SECONDS + 2.0
"""Longer than the guard takes to kill a program and what it left behind."""


CAUGHT = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """What this process is told to do from outside, for as long as a run lasts.

    They are caught from before the run has anything on disk until nothing of it is left: a signal in between is kept
    for whoever handles it next, and none can end us in the middle of tidying up.
    """

    def __init__(self) -> None:
        self._handle: Callable[[signal.Signals], None] | None = None
        self._kept: list[signal.Signals] = []

    def receive(self, number: signal.Signals) -> None:
        """A signal came."""
        if self._handle is None:
            self._kept.append(number)
        else:
            self._handle(number)

    @contextlib.contextmanager
    def handled_by(self, handle: Callable[[signal.Signals], None]) -> Iterator[None]:
        """Give signals to somebody, also those that came before."""
        self._handle = handle
        kept, self._kept = self._kept, []
        for number in kept:
            handle(number)
        try:
            yield
        finally:
            self._handle = None


@contextlib.contextmanager
def caught_signals() -> Iterator[Signals]:
    """Catch signals, but for those that we were told to ignore."""
    loop = asyncio.get_running_loop()
    signals = Signals()
    caught = [number for number in CAUGHT if signal.getsignal(number) is not signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, signals.receive, number)
    try:
        yield signals
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


class NotStarted(OSError):
    """The program cannot be started; nothing was."""


class Program:
    """A running program."""

    def __init__(self, process: asyncio.subprocess.Process, alive: int) -> None:
        self._process = process
        # The end of the guard's pipe that keeps the program alive.
        self._alive = alive

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """The program's standard input, where it was given a pipe."""
        assert self._process.stdin is not None, "it was started with pipes"
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """The program's standard output, where it was given a pipe."""
        assert self._process.stdout is not None, "it was started with pipes"
        return self._process.stdout

    def signal(self, number: signal.Signals) -> None:
        """Pass a signal on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for its end, and give its exit code: 128 + n where signal n ended it."""
        code = await self._process.wait()
        self._let_go()
        return code if code >= 0 else 128 - code

    async def end(self) -> int:
        """End it, if it has not ended by itself."""
        self._let_go()
        try:
            async with asyncio.timeout(END_SECONDS):
                return await self.wait()
        except TimeoutError:
            # Only a guard that was stopped or is stuck takes so long.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return await self.wait()

    def _let_go(self) -> None:
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


async def start_program(
    command: Sequence[str], folder: RunFolder, *, environment: Mapping[str, str], pipes: bool, read_max: int = 2**16
) -> Program:
    """Start a program: on our terminal and in our process group, or with pipes and a group of its own.

    A command that cannot be found raises `NotStarted`.
    """
    found = shutil.which(command[0], path=environment.get("PATH"))
    if found is None:
        raise NotStarted(2, "command not found", command[0])
    alive, ours = os.pipe()
    group = guard.OWN_GROUP if pipes else guard.RUNNERS_GROUP
    arguments = [str(alive), str(folder.path), group, found, *command[1:]]
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Isolated, and without what is installed: it starts sooner and cannot be misled.
            "-I",
            "-S",
            str(Path(guard.__file__)),
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.PIPE if pipes else None,
            stdout=asyncio.subprocess.PIPE if pipes else None,
            start_new_session=pipes,
            pass_fds=(alive, folder.lock),
            limit=read_max,
        )
    except OSError as error:
        os.close(ours)
        raise NotStarted(error.errno, error.strerror, command[0]) from error
    finally:
        os.close(alive)
    return Program(process, ours)
