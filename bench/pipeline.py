"""The pipeline: its job against DuckDB's on the same log, peak memory at two sizes, and the source against Parquet.

Each engine works in its own process, one engine after the other, so that no other engine uses the machine. Spark's
session has done the job before on a small log, like the session of a running service. Memory is the sum over the
processes of an engine; shared pages count once.
"""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types of its own

from bench.context import Context
from bench.processes import ROOT, BenchError, environment, temporary_home
from bench.report import Goal, Report, Table

SIZES = (5_000_000, 20_000_000)
SIZES_QUICK = (100_000, 400_000)
WARMUP = 100_000
WARMUP_QUICK = 20_000
_SAMPLE_SECONDS = 0.5
_MIB = 2**20
_NEXT_TO_NOTHING = 100
_TIMES_DUCK, _MEMORY_GROWTH, _SOURCE_SHARE, _GROWTH_SHARE = 5.0, 1.5, 0.4, 0.1


class _Peak:
    """Peak memory and processor time of a process and its children, by the step that the process was in."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self.doing = "start"
        self.bytes: dict[str, int] = {}
        self.cpu: dict[str, float] = {}
        # Processor seconds of every process that was ever seen.
        self._used: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            held, doing, before = 0, self.doing, sum(self._used.values())
            with contextlib.suppress(psutil.Error):
                for process in (self._root, *self._root.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        held += process.memory_full_info().pss
                        times = process.cpu_times()
                        self._used[process.pid] = times.user + times.system
            self.bytes[doing] = max(self.bytes.get(doing, 0), held)
            self.cpu[doing] = self.cpu.get(doing, 0.0) + sum(self._used.values()) - before

    def stop(self) -> None:
        """Stop measuring."""
        self._ended.set()
        self._thread.join()


def _job(*arguments: object) -> dict[str, Any]:
    """Run `pipeline_job` in a process. Returns its result, with the memory and the processor time of the job."""
    command = [sys.executable, "-m", "bench.pipeline_job", *(str(one) for one in arguments)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        peak = _Peak(process.pid)
        last = ""
        try:
            assert process.stdout is not None, "it is a pipe"
            for line in process.stdout:
                if line.startswith("{"):
                    last = line
                else:
                    peak.doing = line.strip()
        finally:
            peak.stop()
            if process.poll() is None and not last:
                process.terminate()
    if process.returncode or not last:
        raise BenchError(f"{' '.join(command[2:5])} failed with {process.returncode}")
    found: dict[str, Any] = json.loads(last)
    return {**found, "memory": peak.bytes.get("job", 0), "cpu": peak.cpu.get("job", 0.0)}


def measure(context: Context) -> Report:
    """Run the job at both sizes."""
    report = Report("pipeline")
    times = Table(
        "From the log to every table: seconds",
        ["events", "Spark, warm", "events/s", "DuckDB from Parquet", "with the log to Parquet", "ratio", "with that"],
    )
    memory = Table(
        "Peak memory in MiB, and processor seconds; DuckDB's from Parquet",
        ["events", "Spark, MiB", "DuckDB, MiB", "Spark, s", "DuckDB, s"],
    )
    reads = Table("Reading every row and column, rows/s", ["events", "source", "Parquet", "ratio"])
    stages = Table("Where Spark's time went, seconds", ["events", "bronze", "silver", "gold", "commit"])
    report.tables += [times, memory, reads, stages]
    peaks: list[int] = []
    # Each round measures one size, so that --rounds 1 measures only the first size.
    for _, size in zip(context.rounds(), SIZES_QUICK if context.quick else SIZES, strict=False):
        with temporary_home(context.folder) as folder:
            _job("synth", folder / "warmup", WARMUP_QUICK if context.quick else WARMUP)
            made = _job("synth", folder / "home", size)
            report.notes.append(f"{made['events']:,} events were made in {made['seconds']:.0f} s")
            spark = _job("spark", folder / "home", folder / "s", folder / "warmup")
            duck = _job("duck", folder / "home", folder / "d")
            if not peaks:
                _grow(report, folder, size)
        _note(report, size, spark, duck)
        _rows((times, memory, reads, stages), spark, duck)
        peaks.append(spark["memory"])
    _goals(report, peaks)
    return report


def _grow(report: Report, folder: Path, size: int) -> None:
    """Measure the cost of a few new events compared with the events before: processor time, without session start.

    A run without new events makes no table. So the fixed cost of a run is measured with almost no new events.
    """
    first, new = size * 2 // 5, max(1_000, size // 500)
    table = Table("New events after others: processor seconds", ["events before", "new events", "cpu s", "share"])
    spent: list[float] = []
    before = 0
    for count in (first, _NEXT_TO_NOTHING, new, 0):
        spent.append(_job("grow", folder / "home", folder / "g", before + count)["cpu"])
        table.rows.append([f"{before:,}", f"{count:,}", f"{spent[-1]:.1f}", f"{spent[-1] / spent[0]:.3f}"])
        before += count
    whole, least, few, nothing = spent
    report.add("growth share", (few - nothing) / (whole - nothing))
    report.add("growth share of events", (few - least) / (whole - least))
    report.tables.append(table)


def _note(report: Report, size: int, spark: dict[str, Any], duck: dict[str, Any]) -> None:
    differ = {
        table: (rows, spark["rows"].get(table, 0))
        for table, rows in duck["rows"].items()
        if rows != spark["rows"].get(table, 0)
    }
    if differ:
        raise BenchError(f"at {size:,} the tables differ in their rows (DuckDB, Spark): {differ}")
    report.add("times DuckDB", spark["seconds"] / duck["seconds"])
    report.add("times DuckDB with the log", spark["seconds"] / (duck["seconds"] + duck["extract"]))
    report.add("source share", spark["reads"]["parquet"] / spark["reads"]["log"])
    report.notes.append(
        f"at {size:,}: session {spark['start']:.1f} s, warm-up {spark['warmup']:.1f} s, {spark['batches']} batches"
    )


def _rows(tables: tuple[Table, Table, Table, Table], spark: dict[str, Any], duck: dict[str, Any]) -> None:
    times, memory, reads, stages = tables
    events, seconds = spark["events"], spark["seconds"]
    whole = duck["seconds"] + duck["extract"]
    times.rows.append(
        [
            f"{events:,}", f"{seconds:.1f}", f"{events / seconds:,.0f}", f"{duck['seconds']:.1f}", f"{whole:.1f}",
            f"{seconds / duck['seconds']:.1f}", f"{seconds / whole:.1f}",
        ]
    )  # fmt: skip
    memory.rows.append(
        [
            f"{events:,}", f"{spark['memory'] / _MIB:,.0f}", f"{duck['memory'] / _MIB:,.0f}", f"{spark['cpu']:.0f}",
            f"{duck['cpu']:.0f}",
        ]
    )  # fmt: skip
    log, parquet = spark["reads"]["log"], spark["reads"]["parquet"]
    reads.rows.append([f"{events:,}", f"{events / log:,.0f}", f"{events / parquet:,.0f}", f"{parquet / log:.2f}"])
    silver = {"messages", "objective_events", "records", "activity", "deliveries", "focus"}
    spent: dict[str, float] = spark["stages"]
    gold = {name: took for name, took in spent.items() if name not in {*silver, "bronze", "commit"}}
    stages.rows.append(
        [
            f"{events:,}", f"{spent.get('bronze', 0):.1f}", f"{sum(spent.get(name, 0) for name in silver):.1f}",
            f"{sum(gold.values()):.1f}", f"{spent.get('commit', 0):.1f}",
        ]
    )  # fmt: skip


def _goals(report: Report, peaks: list[int]) -> None:
    ratio, whole = (report.samples[name][0] for name in ("times DuckDB", "times DuckDB with the log"))
    share = report.samples["source share"][0]
    growing, events = (report.samples[name][0] for name in ("growth share", "growth share of events"))
    growth = peaks[1] / peaks[0] if len(peaks) > 1 and peaks[0] else None
    report.goals += [
        Goal(
            "pipeline: whole job ÷ DuckDB's, warm, at the first size",
            f"≤ {_TIMES_DUCK:g}",
            f"{ratio:.1f} from Parquet, {whole:.1f} from the log",
            whole <= _TIMES_DUCK,
        ),
        Goal(
            "pipeline: peak memory at four times the events",
            f"≤ {_MEMORY_GROWTH:g} ×",
            "–" if growth is None else f"{growth:.2f} ×",
            None if growth is None else growth <= _MEMORY_GROWTH,
        ),
        Goal(
            "pipeline: processor time of few new events ÷ the first run's, each net of an empty run",
            f"≤ {_GROWTH_SHARE:g}",
            f"{growing:.3f}; {events:.3f} net of a run over {_NEXT_TO_NOTHING} events",
            growing <= _GROWTH_SHARE,
        ),
        Goal("pipeline: source ÷ Parquet", f"≥ {_SOURCE_SHARE:g}", f"{share:.2f}", share >= _SOURCE_SHARE),
    ]
