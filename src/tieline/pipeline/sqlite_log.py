"""The logs in a hub's home: the database opened for reading, in pages so short that the hub never waits."""

import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa

from tieline.pipeline.row import MAIN, activity_batch, main_page
from tieline.stores.sqlite.pages import LogPages, MainPage

PAGE_ROWS = 8192
"""Rows read in one transaction: it takes some milliseconds, after which SQLite can checkpoint the write-ahead log."""


class SqliteLog:
    """The logs of one home. Each process opens its own, because connections cannot be sent to another process."""

    def __init__(self, home: str, *, audit: bool = False) -> None:
        self._home = Path(home)
        # True: compare the rows with the data stored beside them.
        self._audit = audit

    def end(self, log: str) -> int:
        """The offset that the next row of a log will have."""
        with closing(LogPages(self._home)) as pages:
            return pages.end(log)

    def read(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to before `end`."""
        with closing(LogPages(self._home)) as pages, _no_collecting():
            # Every recipient of a row below `end` was a member before `end` was known, so these names are complete.
            names = pages.names()
            for first in range(start, end, PAGE_ROWS):
                last = min(first + PAGE_ROWS, end)
                if log == MAIN:
                    page = pages.main(first, last)
                    if page.rows and self._audit:
                        yield main_page(page, names, *_audited(page))
                    elif page.rows:
                        yield main_page(page, names)
                elif rows := pages.activity(first, last):
                    yield activity_batch(rows, names)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Turn off garbage collection, which takes a quarter of the time: a page has thousands of tuples, but no cycles."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _audited(page: MainPage) -> tuple[set[int], set[int]]:
    from tieline.pipeline.seals import broken_seals  # noqa: PLC0415 - only an audit needs it
    from tieline.pipeline.signatures import forged, given_secrets  # noqa: PLC0415 - the same, with protocols' codecs

    return broken_seals(page), forged(page, given_secrets())
