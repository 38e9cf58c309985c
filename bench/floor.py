"""The floor: what this machine's disk does with a synced write, with no hub around it."""

import os
import random
import time
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.processes import temporary_home
from bench.report import Report, Table

RECORD_BYTES = 320
PAGE_BYTES = 4096
_PREALLOCATED_PAGES = 256


class SyncProbe:
    """One synced write of 4 KiB, at the end of a growing file or over existing bytes."""

    def __init__(self, folder: Path) -> None:
        self._page = random.Random(1).randbytes(PAGE_BYTES)
        self._growing = os.open(folder / "growing", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._existing = os.open(folder / "existing", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(self._existing, bytes(_PREALLOCATED_PAGES * PAGE_BYTES))
        os.fsync(self._existing)
        self._turn = 0

    def append(self) -> float:
        """Seconds to append a page and sync; the file's size changes, so its metadata is written too."""
        started = time.perf_counter()
        os.write(self._growing, self._page)
        os.fdatasync(self._growing)
        return time.perf_counter() - started

    def overwrite(self) -> float:
        """Seconds to write a page over another and sync."""
        self._turn = (self._turn + 1) % _PREALLOCATED_PAGES
        started = time.perf_counter()
        os.pwrite(self._existing, self._page, self._turn * PAGE_BYTES)
        os.fdatasync(self._existing)
        return time.perf_counter() - started

    def close(self) -> None:
        """Close the files."""
        os.close(self._growing)
        os.close(self._existing)


def _log_rate(folder: Path, batch: int, records: int) -> tuple[float, float]:
    """Records per second, and processor seconds per record, of a loop that writes and syncs batches."""
    record = b"r" * RECORD_BYTES
    file = os.open(folder / f"log-{batch}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        cpu = time.process_time()
        started = time.perf_counter()
        for _ in range(records // batch):
            os.write(file, b"".join([record] * batch))
            os.fdatasync(file)
        seconds = time.perf_counter() - started
        return records / seconds, (time.process_time() - cpu) / records
    finally:
        os.close(file)


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("floor")
    batches = {1: 200, 10: 2_000, 100: 10_000, 1000: 50_000}
    if context.quick:
        batches = {batch: count // 4 for batch, count in batches.items()}
    syncs = 50 if context.quick else 150
    for _ in context.rounds():
        with temporary_home(context.folder) as home:
            probe = SyncProbe(home)
            report.add("append us", 1e6 * median(probe.append() for _ in range(syncs)))
            report.add("overwrite us", 1e6 * median(probe.overwrite() for _ in range(syncs)))
            probe.close()
            for batch, records in batches.items():
                rate, cpu = _log_rate(home, batch, records)
                report.add(f"log {batch} per s", rate)
                report.add(f"log {batch} cpu us", 1e6 * cpu)
    table = Table("floor: this disk, no hub", ["what", "median (range)"])
    table.rows.append(["4 KiB appended + fdatasync, p50 µs", report.spread("append us")])
    table.rows.append(["4 KiB overwritten + fdatasync, p50 µs", report.spread("overwrite us")])
    for batch in batches:
        table.rows.append([f"320-byte records/s, one fdatasync per {batch}", report.spread(f"log {batch} per s")])
    report.tables.append(table)
    return report
