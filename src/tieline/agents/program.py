"""A program under a guard: started for one run, and ended with the run, however the run ends.

Used by: the runners. Uses: `guard.py`, in a process of its own between this process and the program. This module does
not know which program it runs, and does not look at the output.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tieline.agents import guard
from tieline.agents.run_folder import RunFolder

END_SECONDS = 2 * guard.GRACE_SECONDS + 2.0
"""Longest wait, in seconds, for the end of the guard (the process between this one and the program). The guard needs
less time to kill a program and its leftover processes."""


_VERSION_SECONDS = 5.0
"""Seconds that a program has to print its version. Programs need well under a second."""

CAUGHT = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Receiver of the signals that this process gets during a run (`tieline run`).

    Signals are caught before the run writes to disk, and until the run's files are removed. A signal that comes while
    there is no handler is stored for the next handler. So no signal can end this process in the middle of the clean-up.
    """

    def __init__(self) -> None:
        self._handle: Callable[[signal.Signals], None] | None = None
        self._kept: list[signal.Signals] = []

    def receive(self, number: signal.Signals) -> None:
        """Pass a signal to the handler. If there is no handler, store the signal for the next handler."""
        if self._handle is None:
            self._kept.append(number)
        else:
            self._handle(number)

    @contextlib.contextmanager
    def handled_by(self, handle: Callable[[signal.Signals], None]) -> Iterator[None]:
        """Call `handle` for each signal that comes during the `with` block.

        The handler first gets the signals that came while there was no handler.
        """
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
    """Catch the signals in `CAUGHT` during the `with` block, and yield their receiver.

    Signals that this process ignores stay ignored.
    """
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
    """Raised if an agent's program cannot be started. No process of it is left running."""


class Program:
    """A running program of an agent: gives access to the program's pipes, and sends it signals or ends it.

    The program is the child of a guard, a process that ends the program when this process ends.
    """

    def __init__(self, process: asyncio.subprocess.Process, alive: int) -> None:
        self._process = process
        # Our end of the guard's pipe. The guard ends the program when this end is closed.
        self._alive = alive

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return the program's standard input. Only for a program that was started with pipes."""
        assert self._process.stdin is not None, "it was started with pipes"
        return self._process.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return the program's standard output. Only for a program that was started with pipes."""
        assert self._process.stdout is not None, "it was started with pipes"
        return self._process.stdout

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the guard (the process between this one and the program).

        The guard passes SIGTERM and SIGHUP on to the program.
        """
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for the program's end, and return its exit code: 128 + n if signal n ended the program."""
        code = await self._process.wait()
        self._let_go()
        return code if code >= 0 else 128 - code

    async def end(self) -> int:
        """End the program if it still runs, and return its exit code."""
        self._let_go()
        try:
            async with asyncio.timeout(END_SECONDS):
                return await self.wait()
        except TimeoutError:
            # Only a stopped or stuck guard takes this long.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return await self.wait()

    def _let_go(self) -> None:
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1


async def start_program(
    command: Sequence[str],
    folder: RunFolder | None,
    *,
    environment: Mapping[str, str],
    pipes: bool,
    read_max: int = 2**16,
    errors: int | None = None,
) -> Program:
    """Start a program under a guard, and return it. Raises `NotStarted` if the command cannot be found.

    The guard is a process between this process and the program. It ends the program and removes `folder` if this
    process is killed. With `pipes`, the caller gets the program's input and output, and the program gets its own
    process group. Without `pipes`, the program uses the terminal and the process group of this process. `read_max` is
    the greatest length of an output line. `errors` says where the program's stderr goes, as for a `subprocess`.
    """
    found = shutil.which(command[0], path=environment.get("PATH"))
    if found is None:
        raise NotStarted(2, "command not found", command[0])
    alive, ours = os.pipe()
    group = guard.OWN_GROUP if pipes else guard.RUNNERS_GROUP
    arguments = [str(alive), str(folder.path) if folder else "", group, found, *command[1:]]
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Isolated and without site packages: the guard starts faster, and imports no foreign modules.
            "-I",
            "-S",
            str(Path(guard.__file__)),
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.PIPE if pipes else None,
            stdout=asyncio.subprocess.PIPE if pipes else None,
            start_new_session=pipes,
            stderr=errors,
            pass_fds=(alive, folder.lock) if folder else (alive,),
            limit=read_max,
        )
    except OSError as error:
        os.close(ours)
        raise NotStarted(error.errno, error.strerror, command[0]) from error
    finally:
        os.close(alive)
    return Program(process, ours)


def version_of(program: str, environment: Mapping[str, str]) -> str:
    """Return the output of a program for `--version`; empty if it prints none in time."""
    try:
        done = subprocess.run(  # noqa: S603 - the program that the user runs
            [program, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        # If the program is missing, its start says so.
        return ""
    return done.stdout.decode(errors="replace")
