"""The pty (pseudo terminal) that a program runs in, the program's process session, and the person's own terminal.

Used by: `terminal`. Uses: the kernel. This module does not look at the text that is printed or typed.
"""

import contextlib
import errno
import os
import signal
import termios
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path

SIZE_DEFAULT = (24, 80)
"""Rows and columns of the pty (pseudo terminal) if neither input nor output is a terminal."""

_SESSION_FIELD = 3
"""Index of the session id in `/proc/PID/stat`, counted after the program's name."""


class Pty:
    """A pty (pseudo terminal).

    This process uses its master end, and the program that runs in the pty uses its slave end. This process keeps the
    slave end open too until the program ends, so that the program may close and reopen its terminal.
    """

    def __init__(self, stdin: int, stdout: int, *, translate: bool) -> None:
        self._outer = next((fd for fd in (stdout, stdin) if os.isatty(fd)), None)
        self.master, self._slave = os.openpty()
        self._slave_open = True
        os.set_blocking(self.master, False)
        attributes = termios.tcgetattr(self._slave if self._outer is None else self._outer)
        if not translate:
            attributes[1] &= ~termios.OPOST
        termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
        self.copy_size()

    def __enter__(self) -> "Pty":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_slave()
        os.close(self.master)

    def close_slave(self) -> None:
        """Close the slave end of the pty in this process.

        After that, the output ends when the program's last process closes the terminal.
        """
        if self._slave_open:
            self._slave_open = False
            os.close(self._slave)

    def copy_size(self) -> None:
        """Set the pty to the size of the person's own terminal. The kernel tells the program about the new size."""
        with contextlib.suppress(OSError, termios.error):
            size = SIZE_DEFAULT if self._outer is None else termios.tcgetwinsize(self._outer)
            termios.tcsetwinsize(self.master, size)

    def start(self, command: Sequence[str], environment: Mapping[str, str], stdin: int | None) -> int:
        """Start a command in a new process session, with the pty as its terminal, and return its process id.

        `stdin` is the command's standard input; `None` for the pty. The first terminal that a session leader opens
        becomes the controlling terminal. So the new process opens the slave end by name.
        """
        if not command[0]:
            # A shell finds no command with an empty name. Python would raise `ValueError`.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        path = os.ttyname(self._slave)
        first = 0 if stdin is None else 1
        actions = [(os.POSIX_SPAWN_OPEN, first, path, os.O_RDWR, 0)]
        copies = [(os.POSIX_SPAWN_DUP2, first, fd) for fd in range(first + 1, 3)]
        if stdin:
            copies.append((os.POSIX_SPAWN_DUP2, stdin, 0))
        return os.posix_spawnp(
            command[0],
            list(command),
            environment,
            file_actions=[*actions, *copies],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these, and the program would inherit that
        )

    def foreground(self) -> int | None:
        """Return the id of the foreground process group of the pty; `None` if the kernel does not tell."""
        try:
            return os.tcgetpgrp(self.master) or None
        except OSError:
            return None


class RawMode:
    """Switches the person's own terminal to raw mode and back.

    In raw mode, every key goes to the program.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._saved: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> "RawMode":
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Set the terminal to raw mode. Keys typed earlier stay in the buffer for the program."""
        if self._saved is None and os.isatty(self._fd):
            saved = termios.tcgetattr(self._fd)
            tty.setraw(self._fd, termios.TCSANOW)
            self._saved = saved

    def leave(self) -> None:
        """Restore the terminal's earlier mode. If the terminal does not exist any more, ignore the error."""
        if self._saved is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, self._saved)
            self._saved = None


def session_of(leader: int) -> list[int]:
    """Return the ids of all processes in the process session of `leader`, without zombies (ended, but not reaped).

    Without `/proc` the result is only `leader`.
    """
    if not Path("/proc/self/stat").exists():
        return [leader]
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[_SESSION_FIELD]) == leader and fields[0] != "Z":
                found.append(int(entry.parent.name))
    return found


def signal_session(leader: int, number: signal.Signals) -> None:
    """Send a signal to all processes in the process session of `leader`.

    Continue stopped processes, so that they handle the signal.
    """
    for pid in session_of(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
