"""The guard: a process between a runner and its program, which outlives the runner just long enough to tidy up.

Above: `program.py`, which starts it by its path. Below: the program. It is run by itself, so it imports nothing but the
standard library, and starts in a few milliseconds.

A runner that is killed can tidy nothing. The guard holds one end of a pipe whose other end only the runner has; when
the runner is gone, however it went, the pipe ends, and the guard ends the program and removes the folder of the run. A
runner that wants its program ended lets go of the pipe itself, so that there is one way and not two.

A program with a terminal stays in the runner's process group, because only that group may use the terminal; one without
gets a group of its own, of which nothing is left when the program has ended. A program that was killed cannot put its
terminal back as it was, so that is done here too.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path

GRACE_SECONDS = 3.0
"""How long a program may take to end after SIGTERM: agents save their session then."""

_POLL_SECONDS = 0.02  # a person does not notice it, and the processor hardly
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_SIGNALLED = 128

OWN_GROUP, RUNNERS_GROUP = "own-group", "runners-group"


class Guard:
    """One program, watched until it has ended."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, own_group: bool) -> None:
        self._process = process
        self._own_group = own_group
        self._reaping = threading.Lock()
        self._ended = threading.Event()
        # Set when the runner has let go: on purpose, or because it is gone.
        self.released = threading.Event()

    def end_when_released(self, alive: int) -> None:
        """Wait for the end of the pipe, to which nothing is ever written, then end the program."""
        os.read(alive, 1)
        self.released.set()
        self.signal(signal.SIGTERM)
        if not self._ended.wait(GRACE_SECONDS):
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Pass a signal on to the program. Its id is still its own as long as it is not reaped."""
        with self._reaping, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._ended.is_set():
                os.killpg(self._process.pid, number) if self._own_group else os.kill(self._process.pid, number)

    def wait(self) -> int:
        """Wait for the program's end, and give its exit code: 128 + n where signal n ended it."""
        pid = self._process.pid
        while True:
            result = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            assert result is not None, "it waits without a limit"
            if result.si_code == os.CLD_STOPPED:
                os.waitid(os.P_PID, pid, os.WSTOPPED)
                self._stop_with_the_program()
                continue
            if self._own_group:
                self._end_group()
            with self._reaping:
                self._ended.set()
                self._process.wait()
            return result.si_status if result.si_code == os.CLD_EXITED else _SIGNALLED + result.si_status

    def _stop_with_the_program(self) -> None:
        """The shell sees a job as stopped when all of it is; it continues all of it too."""
        if not self._own_group and os.isatty(0):
            os.kill(0, signal.SIGSTOP)

    def _end_group(self) -> None:
        """End what the program left running in its group: it was started for this run."""
        deadline = time.monotonic() + GRACE_SECONDS
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            while number == signal.SIGTERM and _others_in_group(self._process.pid) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)


def _others_in_group(leader: int) -> bool:
    """Whether more than the leader, which is not reaped, is in a process group. Where that cannot be told: no."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                return True
    return False


def _kept_terminal() -> Callable[[], None]:
    """Remember how the terminal is, and give what puts it back; a terminal that is gone needs nothing."""
    try:
        attributes = termios.tcgetattr(0)
    except termios.error:
        return lambda: None

    def put_back() -> None:
        # A shell may have its terminal back already, and would have us stopped.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSANOW, attributes)

    return put_back


def _no_action(_number: int, _frame: object) -> None:
    """A handler is not inherited by the program, as ignoring would be."""


def main(arguments: list[str]) -> int:
    """Run a program until it or its runner ends."""
    alive, folder, group, *command = arguments
    own_group = group == OWN_GROUP
    put_back_terminal = _kept_terminal()
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, _no_action)
    try:
        # Neither the pipe nor the lock of the folder may outlive us in the program: both are closed on the way to it.
        process = subprocess.Popen(command, process_group=0 if own_group else None)  # noqa: S603 - that is its purpose
    except OSError as error:
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    guard = Guard(process, own_group=own_group)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: guard.signal(number))
    threading.Thread(target=guard.end_when_released, args=(int(alive),), daemon=True).start()
    code = guard.wait()
    if code >= _SIGNALLED or guard.released.is_set():
        put_back_terminal()
    if guard.released.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
