"""The work after a batch: write the report into the lake, and with `--alerts` send alerts to members.

Above: `tieline pipeline run`. Below: the report and the alerts. This work runs between batches, not within them. If a
hub does not answer, no batch is lost, and the alerts are sent after a later batch.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tieline.cli.failure import Exit, Failure, failure_of
from tieline.cli.output import warn

if TYPE_CHECKING:
    from tieline.pipeline.alert_sender import SentAlerts
    from tieline.pipeline.alerts import Alert
    from tieline.pipeline.lake import Commit, Lake
    from tieline.pipeline.report_parts import Report

_PAUSE_SECONDS = 30.0
"""Shortest interval between two reports of a run that follows the log."""
_ANSWER_SECONDS = 30.0  # a hub under load may take some; a dead one must not hold the run


class AlertOptions(Struct, frozen=True):
    """Options of alerts: the target, the sender, the hub, and the budget."""

    target: str | None = None
    speaker: str | None = None
    budget_usd: float | None = None
    home: Path | None = None
    url: str | None = None
    token: str | None = None


class AfterBatch:
    """Writes reports and sends alerts between the batches of one run."""

    def __init__(self, lake: "Lake", options: AlertOptions) -> None:
        self._lake = lake
        self._options = options
        self._due = False
        self._last = time.monotonic()

    def note(self, commit: "Commit") -> None:
        """Record that a batch is in the lake, so a report is due. Called with every commit."""
        del commit
        self._due = True

    def go_on(self, complain: Callable[[str], None] = warn) -> None:
        """Write the report and send alerts if they are due, at most once per interval, while the run continues.

        A failure is passed to `complain` and retried later.
        """
        if not self._due or time.monotonic() - self._last < _PAUSE_SECONDS:
            return
        try:
            self.finish()
        except Failure as failure:
            complain(f"{failure.message}; the alerts wait")
        self._last = time.monotonic()

    def finish(self) -> int:
        """Write the report and send the alerts that were not sent yet. Return the number of sent alerts."""
        from tieline.pipeline.report import make_report, report_path, write_report

        if self._due or (self._lake.head().number and not report_path(self._lake).exists()):
            # Cleared before the lake is read: a batch that ends meanwhile makes a report due again.
            self._due = False
            report = write_report(self._lake)
        elif self._options.target is None:
            return 0
        else:
            report = make_report(self._lake)
        return self._tell(report)

    def _tell(self, report: "Report") -> int:
        if self._options.target is None:
            return 0
        import asyncio

        from tieline.pipeline.alert_sender import SentAlerts
        from tieline.pipeline.alerts import find_alerts

        sent = SentAlerts(self._lake)
        alerts = [alert for alert in find_alerts(report, budget_usd=self._options.budget_usd) if alert not in sent]
        if not alerts:
            return 0
        try:
            return asyncio.run(self._send(alerts, sent))
        except TimeoutError as error:
            raise Failure(Exit.UNREACHABLE, "the hub accepts connections but does not answer") from error
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            hint = failure.hint or "the tables are written; the next run with --alerts tells"
            raise Failure(failure.code, f"alerts were not sent: {failure.message}", hint) from error

    async def _send(self, alerts: "list[Alert]", sent: "SentAlerts") -> int:
        import asyncio

        from tieline.client.connection import MEMBER_VARIABLE, TOKEN_VARIABLE
        from tieline.pipeline.alert_sender import open_client, send_alerts

        options = self._options
        assert options.target is not None, "asked before"
        token = options.token or os.environ.get(TOKEN_VARIABLE)
        speaker = options.speaker or os.environ.get(MEMBER_VARIABLE)
        async with asyncio.timeout(_ANSWER_SECONDS):
            async with await open_client(options.home, options.url, token, speaker) as client:
                return await send_alerts(client, options.target, alerts, sent)
