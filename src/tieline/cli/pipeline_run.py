"""The work of `tieline pipeline run`: reads batches until the end of the log, or with `--follow` until it is stopped.

Used by: the command. Uses: `tieline.pipeline.run`. A signal abandons the current batch, and the next run reads its rows
again. A second signal ends the process at once. No data is lost by that. With `--follow`, if a remote hub stops, the
run waits until the hub answers again, and continues after the last complete batch.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tieline.cli.failure import Exit, Failure

if TYPE_CHECKING:
    from types import FrameType

    from tieline.cli.pipeline_after_batch import AfterBatch
    from tieline.cli.pipeline_progress import Display
    from tieline.pipeline.lake import Commit, Lake
    from tieline.pipeline.run import Summary

_PAUSE_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 30.0
"""Longest pause, in seconds, between two attempts to reach a hub that does not answer. The first pause is
`_PAUSE_SECONDS`."""
_POLL_SECONDS = 0.1  # how late Ctrl-C is noticed


@contextlib.contextmanager
def interrupts() -> Iterator[list[int]]:
    """Record signals that ask this process to stop, instead of stopping at once. So a batch is never written in part.

    Yield the list of recorded signals. A second signal ends the process.
    """
    noted: list[int] = []

    def note(number: int, _frame: "FrameType | None") -> None:
        if noted:
            os._exit(Exit.INTERRUPTED)
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Run:
    """One run of the pipeline. With `--follow`, a run waits for a hub that does not answer, and then continues."""

    def __init__(
        self, lake: "Lake", where: Mapping[str, str], display: "Display", after_batch: "AfterBatch", noted: list[int]
    ) -> None:
        from tieline.pipeline.run import Summary

        self._lake = lake
        self._where = where
        self._display = display
        self._after_batch = after_batch
        self._noted = noted
        self._summary = Summary()

    def bring_in(self, spark: Any, *, follow: bool) -> "Summary":
        """Read the new rows of the logs into the tables, and return a summary.

        With `follow`, continue until a signal comes.
        """
        from tieline.pipeline.run import RunFailed, Watch, run

        begun = time.monotonic()
        watch = Watch(self._display.stage, self._done, self._stopped)
        while True:
            try:
                run(spark, self._lake, self._where, follow=follow, watch=watch)
            except RunFailed as error:
                away = self._is_away(error)
                if away and not follow and not self._noted:
                    hint = "run the same command again: it continues after the last complete batch"
                    raise Failure(Exit.UNREACHABLE, f"the hub at {self._where['url']} went away", hint) from error
                if not away and not self._noted:
                    raise
                self._wait_for_hub()
            if self._noted or not follow:
                break
        self._summary.seconds = round(time.monotonic() - begun, 3)
        return self._summary

    def _done(self, commit: "Commit") -> None:
        self._summary.add(commit)
        self._display.done(commit)
        self._after_batch.note(commit)

    def _stopped(self) -> bool:
        self._after_batch.go_on(self._display.note)
        return bool(self._noted)

    def _is_away(self, error: Exception) -> bool:
        """Return true if `error` means that a remote hub did not answer."""
        from tieline.pipeline.http_log import LogUnreachable

        cause = error.__cause__
        told = any(LogUnreachable.__name__ in str(one) for one in (error, cause))
        return "url" in self._where and (told or isinstance(cause, LogUnreachable))

    def _wait_for_hub(self) -> None:
        pause = _PAUSE_SECONDS
        while not self._noted:
            self._display.note(f"The hub at {self._where['url']} does not answer; trying again in {pause:.0f} s.")
            self._rest(pause)
            if self._answers():
                self._display.note("The hub answers again.")
                return
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._noted and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        """Return true if the hub answers a request for its number of new rows.

        Raise `Failure` if the hub refuses the request. Another thread sends the request, so that a hub that hangs does
        not delay a signal.
        """
        from tieline.pipeline.http_log import LogRefused, LogUnreachable
        from tieline.pipeline.run import new_rows

        heard: list[bool | LogRefused] = []

        def ask() -> None:
            try:
                new_rows(self._lake, self._where)
            except LogRefused as refused:
                heard.append(refused)
            except LogUnreachable:
                heard.append(False)
            else:
                heard.append(True)

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        while asking.is_alive() and not self._noted:
            asking.join(_POLL_SECONDS)
        match heard:
            case [LogRefused() as refused]:
                raise Failure(Exit.REFUSED, str(refused)) from refused
            case [answer]:
                return bool(answer)
            case _:
                return False
