"""Reads the logs from the database in a hub's home folder.

It reads short pages, so that the hub never waits for it.
"""

import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa

from tieline.pipeline.row import MAIN, activity_batch, main_page
from tieline.stores.pages import MainPage
from tieline.stores.sqlite.pages import LogPages

PAGE_ROWS = 8192
"""Number of rows that are read in one transaction. The transaction takes some milliseconds, so SQLite can soon
checkpoint its write-ahead log.
"""


class SqliteLog:
    """Reader of the logs in one home.

    Each process opens its own reader, because connections cannot be sent to another process.
    """

    def __init__(self, home: str, *, audit: bool = False) -> None:
        self._home = Path(home)
        # True: compare the rows with the data stored beside them.
        self._audit = audit

    def end(self, log: str) -> int:
        """Return the offset that the next row of a log will have. `log` is `main` or `activity`."""
        with closing(LogPages(self._home)) as pages:
            return pages.end(log)

    def epoch(self, log: str) -> str:
        """Return the epoch of a log (its random id). It is empty if the log has none."""
        with closing(LogPages(self._home)) as pages:
            return pages.epoch(log)

    def read(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a log with `start` <= offset < `end`, in batches."""
        with closing(LogPages(self._home)) as pages, _no_collecting():
            # Every recipient of a row below `end` was a member before `end` was known, so these names are complete.
            names = pages.names()
            for first in range(start, end, PAGE_ROWS):
                last = min(first + PAGE_ROWS, end)
                if log == MAIN:
                    page = pages.main(first, last)
                    if page.rows and self._audit:
                        yield main_page(page, names, *_audited(page, pages))
                    elif page.rows:
                        yield main_page(page, names)
                elif rows := pages.activity(first, last):
                    yield activity_batch(rows, names)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Turn off garbage collection while the log is read.

    Garbage collection would take a quarter of the time. It is not needed, because rows have no reference cycles.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _audited(page: MainPage, pages: LogPages) -> tuple[set[int], set[int]]:
    from tieline.pipeline.seals import broken_seals  # noqa: PLC0415 - only an audit needs it
    from tieline.pipeline.signatures import forged, given_secrets  # noqa: PLC0415 - the same, with protocols' codecs

    return broken_seals(page, pages), forged(page, given_secrets())
