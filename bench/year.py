"""A report over a synthetic year: its time and memory, with the default window, for the console, and over all time.

`year_lake` writes the year as tables, without Spark. Each report is made in a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.processes import ROOT, BenchError, environment, temporary_home
from bench.report import Goal, Report, Table

DAYS, DAYS_QUICK = 365, 30
_SECONDS_MAX, _MIB_MAX = 3.0, 500


_DEFAULT = "the default, 7 days"
_REPORTS = {
    _DEFAULT: "make_report(lake, window_ms=7 * 86_400_000)",
    "for the console, 30 days": "report_with_ranges(lake)",
    "all time": "make_report(lake)",
}
_PROGRAM = """
import json, resource, sys, time
begun = time.monotonic()
from pathlib import Path
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report, report_with_ranges
lake = Lake(Path(sys.argv[1]))
report = eval(sys.argv[2])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": time.monotonic() - begun, "cpu": used.ru_utime + used.ru_stime,
                  "mib": used.ru_maxrss / 1024, "deliveries": report.totals.deliveries}))
"""


def _run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{arguments[1][:40]} failed: {done.stderr[-300:]}")
    return done.stdout


def _made(path: Path, call: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(_run("-c", _PROGRAM, str(path), call))
    return told


def measure(context: Context) -> Report:
    """Write the year, and make each report."""
    report = Report("year")
    table = Table("A report over a year, in its own process", ["report", "deliveries", "s", "cpu s", "peak MiB"])
    report.tables.append(table)
    with temporary_home(context.folder) as folder:
        days = DAYS_QUICK if context.quick else DAYS
        count = int(_run("-m", "bench.year_lake", str(folder / "lake"), str(days)))
        for name, call in _REPORTS.items():
            runs = [_made(folder / "lake", call) for _ in context.rounds()]
            best = min(runs, key=lambda one: float(one["seconds"]))
            for one in runs:
                report.add(f"seconds, {name}", one["seconds"])
            table.rows.append([
                name, f"{best['deliveries']:,}", f"{best['seconds']:.2f}", f"{best['cpu']:.2f}", f"{best['mib']:.0f}",
            ])  # fmt: skip
            if name == _DEFAULT:
                report.goals.append(
                    Goal(
                        f"year: report over {count:,} deliveries in {days} days",
                        f"≤ {_SECONDS_MAX:g} s, ≤ {_MIB_MAX} MiB",
                        f"{best['seconds']:.2f} s, {best['mib']:.0f} MiB",
                        best["seconds"] <= _SECONDS_MAX and best["mib"] <= _MIB_MAX,
                    )
                )
    return report
