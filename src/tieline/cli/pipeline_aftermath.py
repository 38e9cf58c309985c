"""What follows a batch: the report is left in the lake, and with `--alerts` members are told what they should know.

Above: `tieline pipeline run`. Below: the report and the bell. It runs between batches, not within them: a hub that does
not answer costs no batch, and its alerts are told after the next one.
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
    from tieline.pipeline.alerts import Alert
    from tieline.pipeline.bell import Told
    from tieline.pipeline.lake import Commit, Lake
    from tieline.pipeline.report_parts import Report

_PAUSE_SECONDS = 30.0
"""Between two reports of a run that goes on."""
_ANSWER_SECONDS = 30.0  # a hub under load may take some; a dead one must not hold the run


class Wishes(Struct, frozen=True):
    """Whom to tell, through which hub, and when money is worth a word."""

    target: str | None = None
    speaker: str | None = None
    budget_usd: float | None = None
    home: Path | None = None
    url: str | None = None
    token: str | None = None


class Aftermath:
    """The aftermath of one run."""

    def __init__(self, lake: "Lake", wishes: Wishes) -> None:
        self._lake = lake
        self._wishes = wishes
        self._due = False
        self._last = time.monotonic()

    def note(self, commit: "Commit") -> None:
        """A batch is in the lake."""
        del commit
        self._due = True

    def go_on(self, complain: Callable[[str], None] = warn) -> None:
        """Do what is due, now and then, while the run goes on. Whatever fails is tried again later."""
        if not self._due or time.monotonic() - self._last < _PAUSE_SECONDS:
            return
        try:
            self.finish()
        except Failure as failure:
            complain(f"{failure.message}; the alerts wait")
        self._last = time.monotonic()

    def finish(self) -> int:
        """Leave the report and tell what was not told; returns how many alerts were."""
        from tieline.pipeline.report import make_report, report_path, write_report

        if self._due or (self._lake.head().number and not report_path(self._lake).exists()):
            # Before it is read: a batch that ends meanwhile is due again.
            self._due = False
            report = write_report(self._lake)
        elif self._wishes.target is None:
            return 0
        else:
            report = make_report(self._lake)
        return self._tell(report)

    def _tell(self, report: "Report") -> int:
        if self._wishes.target is None:
            return 0
        import asyncio

        from tieline.pipeline.alerts import find_alerts
        from tieline.pipeline.bell import Told

        told = Told(self._lake)
        alerts = [alert for alert in find_alerts(report, budget_usd=self._wishes.budget_usd) if alert not in told]
        if not alerts:
            return 0
        try:
            return asyncio.run(self._ring(alerts, told))
        except TimeoutError as error:
            raise Failure(Exit.UNREACHABLE, "the hub takes connections and does not answer") from error
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            hint = failure.hint or "the tables are written; the next run with --alerts tells"
            raise Failure(failure.code, f"alerts were not told: {failure.message}", hint) from error

    async def _ring(self, alerts: "list[Alert]", told: "Told") -> int:
        import asyncio

        from tieline.client.client import MEMBER_VARIABLE, TOKEN_VARIABLE
        from tieline.pipeline.bell import open_client, ring

        wishes = self._wishes
        assert wishes.target is not None, "asked before"
        token = wishes.token or os.environ.get(TOKEN_VARIABLE)
        speaker = wishes.speaker or os.environ.get(MEMBER_VARIABLE)
        async with asyncio.timeout(_ANSWER_SECONDS):
            async with await open_client(wishes.home, wishes.url, token, speaker) as client:
                return await ring(client, wishes.target, alerts, told)
