"""Checks of the pipeline (the analysis of the logs): how old its last report is, and how old it may be.

Used by: `doctor`. Uses: the stored report, and the description of the running hub.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.wire.duration import parse_duration
from tieline.wire.home import RUN_FILE, Running
from tieline.wire.insights import StoredReport

_DAYS_MAX = 366  # the hub has checked the interval
_INTERVALS = 3
_GRACE_SECONDS = 15 * 60
"""The report of a hub that runs the pipeline is late after three intervals and this time. A first run over a long log
may take so long."""


def pipeline(home: Path, running: Running | None) -> Iterator[DoctorFinding]:
    """Check the age of the pipeline's last report, if there is one or the running hub makes one. Yield a finding."""
    stored_at_ms = StoredReport(home).stored_at_ms()
    now = time.time()
    last = "no report yet" if stored_at_ms is None else f"its last report is {_ago(now - stored_at_ms / 1000)} old"
    if running is None or not running.pipeline:
        if stored_at_ms is not None:
            yield well("pipeline", f"the hub does not run the pipeline itself; {last}")
        return
    what = f"the hub runs the pipeline every {running.pipeline}; {last}"
    began = (home / RUN_FILE).stat().st_mtime
    late = _INTERVALS * parse_duration(running.pipeline, _DAYS_MAX) + _GRACE_SECONDS
    if now - max(began, (stored_at_ms or 0) / 1000) > late:
        why = "the console shows old numbers, and no alerts are sent"
        yield wrong("pipeline", what, why, "look at the lines with part=pipeline in what the hub logs")
    elif stored_at_ms is None:
        yield note("pipeline", what)
    else:
        yield well("pipeline", what)


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"
