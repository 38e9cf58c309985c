"""The work after a batch: tell the hub the pipeline's position, store the report in the hub, and send alerts.

Used by: `tieline pipeline run`. Uses: the report and the alerts. Alerts are sent only with `--alerts`. This work runs
between batches, not within them. If a hub does not answer, no batch is lost, and the alerts are sent after a later
batch.
"""

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from tieline.cli.failure import Exit, Failure, failure_of
from tieline.cli.output import warn

if TYPE_CHECKING:
    from tieline.pipeline.alert_sender import SentAlerts
    from tieline.pipeline.alerts import Alert
    from tieline.pipeline.lake import Commit, Lake
    from tieline.wire.report_parts import Report

_T = TypeVar("_T")
_PAUSE_SECONDS = 30.0
"""Shortest interval, in seconds, between two reports of a pipeline run that follows the log."""
_QUIET_SECONDS = 300.0
"""Interval, in seconds, between two reports of a run that follows a log without new rows. Alerts need the clock."""
_ANSWER_SECONDS = 30.0  # a hub under load may take some; a dead one must not hold the run


class AlertOptions(Struct, frozen=True):
    """Options of alerts that the pipeline sends: the target, the sender, the hub, and the budget."""

    target: str | None = None
    speaker: str | None = None
    budget_usd: float | None = None
    home: Path | None = None
    url: str | None = None
    token: str | None = None


class AfterBatch:
    """Stores reports in the hub and sends alerts between the batches of one run of the pipeline."""

    def __init__(self, lake: "Lake", options: AlertOptions, where: Mapping[str, str] | None = None) -> None:
        """Prepare the work after each batch, for the tables in `lake`.

        `where` are the options that name the log. After each batch, the hub of this log is told up to which position
        the pipeline has read.
        """
        self._lake = lake
        self._where = where
        self._told: Commit | None = None
        # The last reason why the report was not stored. It is said once.
        self._problem = ""
        self._options = options
        self._due = False
        self._last = time.monotonic()

    def note(self, commit: "Commit") -> None:
        """Record that the tables have a new batch, so that a report must be written.

        The run calls this after every batch.
        """
        del commit
        self._due = True

    def go_on(self, complain: Callable[[str], None] = warn) -> None:
        """Store the report and send alerts while the run continues: after new batches, and from time to time.

        After a failure, call `complain` with its text and try again later.
        """
        waited = time.monotonic() - self._last
        if waited < (_PAUSE_SECONDS if self._due else _QUIET_SECONDS):
            return
        try:
            self.finish(complain)
        except Failure as failure:
            complain(f"{failure.message}; the alerts wait")
        self._last = time.monotonic()

    def finish(self, complain: Callable[[str], None] = warn) -> int:
        """Store the report in the hub, and send the alerts that were not sent yet. Return the number of sent alerts.

        This is also of use without a new batch: a member may become silent while nothing happens. Call `complain` with
        the reason if the hub does not accept the report.
        """
        from tieline.pipeline.checks import check_tables
        from tieline.pipeline.report import report_with_ranges

        if not self._lake.head().number:
            return 0
        if self._due:
            # Cleared before the lake is read: a batch that ends meanwhile makes a report due again.
            self._due = False
            check_tables(self._lake)
        report = report_with_ranges(self._lake)
        self._tell_position()
        self._store(report, complain)
        return self._tell(report)

    def _store(self, report: "Report", complain: Callable[[str], None]) -> None:
        """Store the report where the console finds it: in the hub's home, or by a request to its URL."""
        from tieline.pipeline.insights import store_report

        where = self._where
        if where is not None and (problem := store_report(report, where)) and problem != self._problem:
            complain(f"the console does not get the report: {problem}")
            self._problem = problem

    def _tell_position(self) -> None:
        from tieline.pipeline.reader import tell_position

        head = self._lake.head()
        if self._where is not None and head.number and head != self._told:
            self._asked(tell_position(self._lake, self._where, head), "the position was not told to the hub")
            self._told = head

    def _asked(self, question: "Awaitable[_T]", failed: str) -> "_T":
        """Wait for the hub's answer to `question`, up to a timeout, and return the answer.

        Raise `Failure` after an error. The message of the failure begins with `failed`.
        """
        import asyncio

        async def ask() -> "_T":
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await question

        try:
            return asyncio.run(ask())
        except TimeoutError as error:
            raise Failure(Exit.UNREACHABLE, "the hub accepts connections but does not answer") from error
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            hint = failure.hint or "the tables are written; the next run tells"
            raise Failure(failure.code, f"{failed}: {failure.message}", hint) from error

    def _tell(self, report: "Report") -> int:
        if self._options.target is None:
            return 0
        from tieline.pipeline.alert_sender import SentAlerts
        from tieline.pipeline.alerts import find_alerts

        sent = SentAlerts(self._lake)
        found = find_alerts(report, now_ms=self._now_ms(report), budget_usd=self._options.budget_usd)
        alerts = [alert for alert in found if alert not in sent]
        if not alerts:
            return 0
        return self._asked(self._send(alerts, sent), "alerts were not sent")

    def _now_ms(self, report: "Report") -> int | None:
        """Return the current time if the report covers the whole log, otherwise `None`.

        If rows were not read yet, a member that seems silent may have spoken in them.
        """
        from tieline.core.store import StoreError
        from tieline.pipeline.http_log import LogRefused, LogUnreachable
        from tieline.pipeline.run import rows_after

        if self._where is None:
            return None
        now_ms = time.time_ns() // 1_000_000
        try:
            return None if rows_after(report.position, self._where) else now_ms
        except (LogRefused, LogUnreachable, StoreError):
            return None

    async def _send(self, alerts: "list[Alert]", sent: "SentAlerts") -> int:
        from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE
        from tieline.pipeline.alert_sender import open_client, send_alerts

        options = self._options
        assert options.target is not None, "asked before"
        token = options.token or os.environ.get(TOKEN_VARIABLE)
        speaker = options.speaker or os.environ.get(MEMBER_VARIABLE)
        async with await open_client(options.home, options.url, token, speaker) as client:
            return await send_alerts(client, options.target, alerts, sent)
