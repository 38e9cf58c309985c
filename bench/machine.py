"""The machine under the benchmarks: its description, and the cost of a process on it, both from Linux's `/proc`."""

import contextlib
import os
import platform
import sys
from pathlib import Path

import apsw
from msgspec import Struct

_NANOSECONDS = 1e9


class Cpu(Struct, frozen=True):
    """Seconds of processor time of a process: its main thread, where the event loop runs, and all others."""

    main: float
    others: float

    @property
    def total(self) -> float:
        """Processor time of all threads."""
        return self.main + self.others

    def since(self, before: "Cpu") -> "Cpu":
        """Processor time used since `before`."""
        return Cpu(self.main - before.main, self.others - before.others)


def read_cpu(pid: int) -> Cpu:
    """Processor time of a process so far, user and system, as the scheduler counts it: in nanoseconds per thread.

    A thread that has ended is missing from the sum; a hub's threads live as long as the hub.
    """
    main = others = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        seconds = int((task / "schedstat").read_text().split()[0]) / _NANOSECONDS
        if task.name == str(pid):
            main += seconds
        else:
            others += seconds
    return Cpu(main, others)


def read_children(pid: int) -> list[int]:
    """Ids of the processes that a process has started and that still run."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def read_family_cpu(pid: int) -> float:
    """Seconds of processor time of a process and its children so far, also of those that have ended."""
    ticks = 0
    for process in (pid, *read_children(pid)):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # After the name, which may have spaces: user, system, and for the parent those of its ended children.
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11 : 15 if process == pid else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def read_resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`."""
    held_by, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted_at, found, *_ = line.split()
        if folder.is_relative_to(mounted_at) and len(mounted_at) >= len(held_by):
            held_by, kind = mounted_at, found
    return kind


def describe(folder: Path) -> dict[str, str]:
    """Machine, software and load: needed to compare these figures with others."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "machine": f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}, {platform.system()} "
        f"{platform.release()}",
        "python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "sqlite": f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})",
        "load": f"{load} (1, 5, 15 minutes)",
        "homes": f"{folder} on {file_system(folder)}",
    }
