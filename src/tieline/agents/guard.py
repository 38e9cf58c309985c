"""The guard: a process between a runner and its program. It ends the program when the runner ends, and cleans up.

Used by: `program.py`, which starts the guard by its path. Uses: the program. The guard runs as a script of its own. The
guard imports only the standard library, and starts in a few milliseconds.

A killed runner cannot clean up. The guard holds one end of a pipe, and only the runner holds the other end. When the
runner ends in any way, the pipe closes. The guard then ends the program and removes the folder of the run. A runner
that wants to end its program closes the pipe too, so that there is only one way to end a program. If the guard
itself is killed, the kernel ends the program (on Linux), and the runner ends as usual.

A program with a terminal stays in the runner's process group, because only that group may use the terminal. A program
without a terminal gets a process group of its own, and the guard ends the whole group when the program has ended. A
killed program cannot restore its terminal, so the guard restores the terminal.
"""

import contextlib
import ctypes
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
"""Seconds that a program has to end after SIGTERM. In this time agents save their session."""

_POLL_SECONDS = 0.02  # a person does not notice this delay, and the polling costs little processor time
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_SIGNALLED = 128
_PR_SET_PDEATHSIG = 1
"""Number of the Linux setting that names the signal for a process when its parent ends."""

OWN_GROUP, RUNNERS_GROUP = "own-group", "runners-group"


class Guard:
    """The guard process of one agent program: passes signals on to the program, ends it, and waits for its end."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, own_group: bool) -> None:
        self._process = process
        self._own_group = own_group
        self._reaping = threading.Lock()
        self._ended = threading.Event()
        # Set when the runner's end of the pipe is closed: on purpose, or because the runner is gone.
        self.released = threading.Event()

    def end_when_released(self, alive: int) -> None:
        """Wait until the runner (the process that started the guard) closes the pipe `alive`, then end the program.

        Nothing is ever written to the pipe.
        """
        os.read(alive, 1)
        self.released.set()
        self.signal(signal.SIGTERM)
        if not self._ended.wait(GRACE_SECONDS):
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Pass a signal on to the program, if it still runs.

        A lock keeps the program's process id valid until the signal is sent.
        """
        with self._reaping, contextlib.suppress(ProcessLookupError, PermissionError):
            if not self._ended.is_set():
                os.killpg(self._process.pid, number) if self._own_group else os.kill(self._process.pid, number)

    def wait(self) -> int:
        """Wait for the program's end, and return its exit code: 128 + n if signal n ended the program."""
        pid = self._process.pid
        if not hasattr(os, "waitid"):
            return self._wait_by_polling(pid)
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

    def _wait_by_polling(self, pid: int) -> int:
        """Wait for the program's end by polling, and return its exit code, as `wait` does.

        For macOS before Python 3.13, which has no `waitid`. So each call that reports the end of a process also reaps
        the process.
        """
        while True:
            with self._reaping:
                found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
                if found and not os.WIFSTOPPED(status):
                    self._ended.set()
            if not found:
                time.sleep(_POLL_SECONDS)
            elif os.WIFSTOPPED(status):
                self._stop_with_the_program()
            else:
                if self._own_group:
                    self._end_group()
                code = os.waitstatus_to_exitcode(status)
                self._process.returncode = code
                return code if code >= 0 else _SIGNALLED - code

    def _stop_with_the_program(self) -> None:
        """Suspend the guard's whole process group, because the program was suspended (Ctrl-Z).

        A shell suspends and continues a job only as a whole.
        """
        if not self._own_group and os.isatty(0):
            os.kill(0, signal.SIGSTOP)

    def _end_group(self) -> None:
        """End the processes that the ended program left running in its process group.

        These processes belong to this run.
        """
        deadline = time.monotonic() + GRACE_SECONDS
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            while number == signal.SIGTERM and _others_in_group(self._process.pid) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)


def _others_in_group(leader: int) -> bool:
    """True if the process group of an ended `leader` has other processes. False if the system has no `/proc`."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                return True
    return False


def _kept_terminal() -> Callable[[], None]:
    """Save the attributes of the standard input's terminal, and return a function that restores them.

    Without a terminal the returned function does nothing.
    """
    try:
        attributes = termios.tcgetattr(0)
    except termios.error:
        return lambda: None

    def put_back() -> None:
        # The shell may be in the foreground again; then SIGTTOU would stop us.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSANOW, attributes)

    return put_back


def _end_with_guard() -> Callable[[], None] | None:
    """Return a function that the program's new process must call first. `None` if the system is not Linux.

    After this call, the kernel sends SIGTERM to the program if the guard is killed. So the program can still restore
    its terminal.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    guard = os.getpid()

    def end_with_guard() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != guard:
            # The guard was killed before the call.
            os._exit(_SIGNALLED + signal.SIGTERM)

    return end_with_guard


def _no_action(_number: int, _frame: object) -> None:
    """Signal handler that does nothing, so that the guard survives the signal.

    If the guard ignored the signal instead, the program would inherit this setting and ignore the signal too.
    """


def main(arguments: list[str]) -> int:
    """Run a program until the program or its runner ends, and return the program's exit code.

    `arguments` are the arguments of this script: the pipe, the folder to remove (empty for none), the process group,
    and the program's command.
    """
    alive, folder, group, *command = arguments
    own_group = group == OWN_GROUP
    put_back_terminal = _kept_terminal()
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, _no_action)
    # The runner may end while the program starts. Then a signal that came too early must not end the guard.
    early: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: early.append(number))
    try:
        # `Popen` does not pass the pipe and the folder's lock to the program: the program may outlive the guard.
        process = subprocess.Popen(  # noqa: S603 - that is its purpose
            command,
            process_group=0 if own_group else None,
            preexec_fn=_end_with_guard(),  # noqa: PLW1509 - this process has no other thread yet
        )
    except OSError as error:
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    guard = Guard(process, own_group=own_group)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: guard.signal(number))
    for came in early:
        guard.signal(came)
    threading.Thread(target=guard.end_when_released, args=(int(alive),), daemon=True).start()
    code = guard.wait()
    if code >= _SIGNALLED or guard.released.is_set():
        put_back_terminal()
    if folder and guard.released.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
