"""The process of a hub or of a worker: its limit of open files, its garbage collector, and its signals.

Used by: programs that run a hub or a worker. Uses: the operating system and Python.
"""

import asyncio
import contextlib
import gc
import resource
import signal

_COLLECT_AFTER = 10_000
"""Number of new objects after which the garbage collector scans them. One batch of commands creates fewer lasting
objects."""
_YOUNG_PASSES = 2
"""Number of scans of new objects before the garbage collector also scans the objects that survived these scans. Such a
larger scan covers about 30,000 objects and stops the hub for 20 ms."""

_MACOS_FILES_MAX = 10_240
"""Number of open files that macOS allows a process that asks for as many as possible (`OPEN_MAX`)."""


def raise_file_limit() -> None:
    """Raise this process's limit of open files as far as the system allows. Thousands of sockets need as many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS names no limit and accepts only this number.
    for files in (hard, _MACOS_FILES_MAX):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))
            return


def spare_collector() -> None:
    """Make the garbage collector run rarely. Call this when everything is loaded and started.

    Messages form no reference cycles, so they are freed when nobody refers to them. Only sessions and requests form
    cycles, and there are few of them. So the garbage collector need not scan after every batch, and it never scans the
    objects that the start created.
    """
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, _YOUNG_PASSES)
    gc.enable()


def suspend_collector() -> None:
    """Turn the garbage collector off while a hub starts.

    With thousands of members, garbage collection would take a third of the start time. All objects that the start makes
    stay in use. `spare_collector` turns the garbage collector on again.
    """
    gc.disable()


def stop_signals() -> asyncio.Event:
    """Return an event that is set when the process gets SIGTERM or SIGINT.

    Call this before the hub starts, so that no signal is missed.
    """
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked
