"""The pipeline: its job against DuckDB's on the same log, peak memory at two sizes, and the source against Parquet.

Apache Spark does the job, and so does Sail if its environment is there (`make ready` makes it). Each engine works in
its own process, one engine after the other, so that no other engine uses the machine. Spark's session has done the job
before on a small log, like the session of a running service. Memory is the sum over the processes of an engine; shared
pages count once.
"""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types of its own

from bench.context import Context
from bench.processes import ROOT, BenchError, environment, temporary_home
from bench.report import Goal, Report, Table, spread

SIZES = (5_000_000, 20_000_000)
SIZES_QUICK = (100_000, 400_000)
WARMUP = 100_000
WARMUP_QUICK = 20_000
GROWTH = (2_000_000, 10_000)
GROWTH_QUICK = (100_000, 2_000)
_BATCHES_AFTER = 6
_SAMPLE_SECONDS = 0.5
_MIB = 2**20
_TIMES_DUCK, _MEMORY_GROWTH, _SOURCE_SHARE = 4.0, 1.5, 0.4
_COLD_SECONDS, _WARM_SECONDS, _LATE_RATIO = 30.0, 8.0, 1.5
_SAIL_TIMES_DUCK, _SAIL_SECONDS = 1.6, 4.0
SAIL = "sail"
SAIL_PYTHON = Path(sys.prefix) / SAIL / "bin" / "python"
"""Python of the environment that has Sail, which needs another version of PySpark."""


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
    """Run `pipeline_job` in a process. Returns its result, with the memory and the processor time of the job.

    `all_cpu` is the processor time of the whole process.
    """
    python = SAIL_PYTHON if arguments[-1] == SAIL else sys.executable
    command = [str(python), "-m", "bench.pipeline_job", *(str(one) for one in arguments)]
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
    return {
        **found,
        "memory": peak.bytes.get("job", 0),
        "cpu": peak.cpu.get("job", 0.0),
        "all_cpu": sum(peak.cpu.values()),
    }


def measure(context: Context) -> Report:
    """Run the job at both sizes."""
    report = Report("pipeline")
    times = Table(
        "From the log to every table: seconds, and processor seconds",
        ["events", "Spark, warm", "events/s", "DuckDB", "Spark, cpu", "DuckDB, cpu", "of it log to Parquet", "ratio"],
    )
    memory = Table(
        "Peak memory in MiB",
        ["events", "Spark", "DuckDB"],
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
            if SAIL_PYTHON.exists():
                sail = _job("spark", folder / "home", folder / "sail", folder / "warmup", SAIL)
                _compare(size, sail, duck)
                _sail_note(report, sail, duck)
            if not peaks:
                _grow(report, folder, *(GROWTH_QUICK if context.quick else GROWTH))
        _note(report, size, spark, duck)
        _rows((times, memory, reads, stages), spark, duck)
        peaks.append(spark["memory"])
    _goals(report, peaks)
    return report


def _grow(report: Report, folder: Path, first: int, new: int) -> None:
    """Measure the cost of `new` events after `first` others, and of one late acknowledgement: processor time.

    Cold is a new process from its start to its end. Warm is a later batch of a session that follows the log.
    """
    # The generator stops a little before the number that it is asked for.
    first = _job("synth", folder / "log", first)["events"]
    table = Table("New events after others: processor seconds", ["events before", "new events", "cpu s"])
    # The rest of the log is for the batches of `follow`.
    before = first - new * _BATCHES_AFTER
    whole = _job("grow", folder / "log", folder / "g", before)
    cold = _job("grow", folder / "log", folder / "g", before + new)
    nothing = _job("grow", folder / "log", folder / "g", before + new)
    after = _job("follow", folder / "log", folder / "g", new)
    if SAIL_PYTHON.exists():
        _job("grow", folder / "log", folder / "gs", before, SAIL)
        few = _job("grow", folder / "log", folder / "gs", before + new, SAIL)
        table.rows.append([f"{before:,}", f"{new:,}, cold, on Sail", f"{few['all_cpu']:.1f}"])
        report.add("new events, Sail", few["all_cpu"])
    table.rows.append(["0", f"{before:,}", f"{whole['all_cpu']:.1f}"])
    table.rows.append([f"{before:,}", f"{new:,}, cold", f"{cold['all_cpu']:.1f}"])
    table.rows.append([f"{before:,}", "0, cold, with a session", f"{nothing['all_cpu']:.1f}"])
    table.rows.append([f"{before + 2 * new:,}", f"{new:,}, warm", spread(after["warm"], "{:.1f}")])
    table.rows.append([f"{first:,}", "100, warm", spread(after["plain"], "{:.2f}")])
    table.rows.append([f"{first:,}", "100, warm, one of them late", spread(after["late"], "{:.2f}")])
    report.tables.append(table)
    report.add("new events, cold", cold["all_cpu"])
    for name in ("warm", "plain", "late"):
        for value in after[name]:
            report.add(f"new events, {name}", value)


def _compare(size: int, engine: dict[str, Any], duck: dict[str, Any]) -> None:
    """Raise `BenchError` if a table of an engine has not as many rows as DuckDB's."""
    differ = {
        table: (rows, engine["rows"].get(table, 0))
        for table, rows in duck["rows"].items()
        if rows != engine["rows"].get(table, 0)
    }
    if differ:
        raise BenchError(f"at {size:,} the tables differ in their rows (DuckDB, the engine): {differ}")


def _sail_note(report: Report, sail: dict[str, Any], duck: dict[str, Any]) -> None:
    used = duck["cpu"] + duck["extract_cpu"]
    report.add("Sail, times DuckDB", sail["cpu"] / used)
    report.notes.append(
        f"Sail at {sail['events']:,}: {sail['seconds']:.1f} s, {sail['cpu']:.0f} s of processor time, "
        f"{sail['cpu'] / used:.1f} of DuckDB's; {sail['memory'] / _MIB:,.0f} MiB"
    )


def _note(report: Report, size: int, spark: dict[str, Any], duck: dict[str, Any]) -> None:
    _compare(size, spark, duck)
    report.add("times DuckDB", spark["cpu"] / (duck["cpu"] + duck["extract_cpu"]))
    report.add("source share", spark["reads"]["parquet"] / spark["reads"]["log"])
    report.notes.append(
        f"at {size:,}: session {spark['start']:.1f} s, warm-up {spark['warmup']:.1f} s, {spark['batches']} batches"
    )


def _rows(tables: tuple[Table, Table, Table, Table], spark: dict[str, Any], duck: dict[str, Any]) -> None:
    times, memory, reads, stages = tables
    events, seconds = spark["events"], spark["seconds"]
    whole, used = duck["seconds"] + duck["extract"], duck["cpu"] + duck["extract_cpu"]
    times.rows.append(
        [
            f"{events:,}", f"{seconds:.1f}", f"{events / seconds:,.0f}", f"{whole:.1f}", f"{spark['cpu']:.0f}",
            f"{used:.0f}", f"{duck['extract_cpu']:.0f}", f"{spark['cpu'] / used:.1f}",
        ]
    )  # fmt: skip
    memory.rows.append([f"{events:,}", f"{spark['memory'] / _MIB:,.0f}", f"{duck['memory'] / _MIB:,.0f}"])
    log, parquet = spark["reads"]["log"], spark["reads"]["parquet"]
    reads.rows.append([f"{events:,}", f"{events / log:,.0f}", f"{events / parquet:,.0f}", f"{parquet / log:.2f}"])
    silver = {"silver", "messages", "objective_events", "records", "activity", "deliveries", "focus"}
    spent: dict[str, float] = spark["stages"]
    gold = {name: took for name, took in spent.items() if name not in {*silver, "bronze", "commit"}}
    stages.rows.append(
        [
            f"{events:,}", f"{spent.get('bronze', 0):.1f}", f"{sum(spent.get(name, 0) for name in silver):.1f}",
            f"{sum(gold.values()):.1f}", f"{spent.get('commit', 0):.1f}",
        ]
    )  # fmt: skip


def _goals(report: Report, peaks: list[int]) -> None:
    ratio, share = (report.samples[name][0] for name in ("times DuckDB", "source share"))
    cold, warm, late, plain = (
        median(report.samples[f"new events, {name}"]) for name in ("cold", "warm", "late", "plain")
    )
    growth = peaks[1] / peaks[0] if len(peaks) > 1 and peaks[0] else None
    report.goals += [
        Goal(
            "pipeline: processor time, log to every table, ÷ DuckDB's, at the first size",
            f"≤ {_TIMES_DUCK:g}",
            f"{ratio:.1f}",
            ratio <= _TIMES_DUCK,
        ),
        Goal(
            "pipeline: processor time of few new events, cold",
            f"≤ {_COLD_SECONDS:g} s",
            f"{cold:.1f} s",
            cold <= _COLD_SECONDS,
        ),
        Goal(
            "pipeline: processor time of few new events, warm",
            f"≤ {_WARM_SECONDS:g} s",
            f"{warm:.1f} s",
            warm <= _WARM_SECONDS,
        ),
        Goal(
            "pipeline: 100 events with a late acknowledgement ÷ without",
            f"≤ {_LATE_RATIO:g}",
            f"{late / plain:.2f}",
            late / plain <= _LATE_RATIO,
        ),
        Goal(
            "pipeline: peak memory at four times the events",
            f"≤ {_MEMORY_GROWTH:g} ×",
            "–" if growth is None else f"{growth:.2f} ×",
            None if growth is None else growth <= _MEMORY_GROWTH,
        ),
        Goal("pipeline: source ÷ Parquet", f"≥ {_SOURCE_SHARE:g}", f"{share:.2f}", share >= _SOURCE_SHARE),
    ]
    for name, most, unit, what in (
        ("Sail, times DuckDB", _SAIL_TIMES_DUCK, "", "processor time on Sail, log to every table, ÷ DuckDB's"),
        ("new events, Sail", _SAIL_SECONDS, " s", "processor time of few new events on Sail, cold"),
    ):
        if name in report.samples:
            (value, *_) = report.samples[name]
            report.goals.append(Goal(f"pipeline: {what}", f"≤ {most:g}{unit}", f"{value:.1f}{unit}", value <= most))
