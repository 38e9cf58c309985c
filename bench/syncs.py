"""Syncs: how often the hub makes the disk sync in a burst, counted by the kernel, against its batches and commits.

The hub runs under strace, which stops it only at fsync and fdatasync (a seccomp filter lets every other call pass).
"""

import re
import shutil
import time
from collections import Counter
from pathlib import Path

from bench import durable, processes
from bench.context import Context
from bench.report import Goal, Report, Table
from bench.wire import put
from tieline.wire.home import read_running

SYNCS_PER_CHECKPOINT = 3
_CALL = re.compile(r"^\d+ +(\d+\.\d+) (?:fdatasync|fsync|sync_file_range|msync)\(\d+<([^>]*)>")


def _read_calls(path: Path, start: float, end: float) -> Counter[str]:
    """Number of syncs between two times, by name of the file."""
    calls: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        found = _CALL.match(line)
        if found and start <= float(found[1]) <= end:
            calls[Path(found[2]).name] += 1
    return calls


def _round(context: Context, report: Report) -> Counter[str]:
    load = durable.ONE.load
    messages = context.scaled(load.messages)
    with processes.temporary_home(context.folder) as home:
        trace = home / "trace"
        calls = "trace=fsync,fdatasync,sync_file_range,msync"
        options = ["-f", "--seccomp-bpf", "-y", "-ttt", "-e", "signal=none", "-e", calls, "-o", str(trace)]
        command = ["strace", *options, *processes.hub_command(home, "sqlite")]
        with processes.started(command, home / "bench.log", lambda: read_running(home) is not None) as process:
            running = read_running(home)
            assert running is not None, "the hub said so a moment ago"
            server = processes.Server(running.pid, home, running.http)
            time.sleep(0.5)
            before, start = server.figures(), time.time()
            put("sdk", load, server, messages, "burst")
            after, end = server.figures(), time.time()
            # strace ends with the hub; the hub must get the signal itself.
            processes.end_by_pid(running.pid, process)
        found = _read_calls(trace, start, end)
    for name in ("batches", "commits"):
        report.add(name, after[f"tieline_{name}_total"] - before[f"tieline_{name}_total"])
    report.add("syncs", found.total())
    report.add("log syncs", sum(count for name, count in found.items() if name.endswith("-wal")))
    # A checkpoint syncs the database once. It also syncs the write-ahead log, before that and when the log restarts.
    checkpoints = sum(count for name, count in found.items() if name.endswith(".db"))
    report.add("checkpoints", checkpoints)
    report.add("syncs of commits", found.total() - SYNCS_PER_CHECKPOINT * checkpoints)
    report.add("messages", 1.1 * messages)
    return found


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("syncs")
    if not shutil.which("strace"):
        report.notes.append("syncs: skipped, because strace is not installed")
        report.goals.append(Goal("syncs per batch", "≤ 1", "–", None))
        return report
    files: Counter[str] = Counter()
    for _ in context.rounds():
        files += _round(context, report)
    table = Table(
        "syncs in a burst of durable 1→1 (kernel's count, hub under strace)",
        [
            "messages",
            "batches",
            "commits",
            "log syncs",
            "checkpoints",
            "all syncs",
            "all ÷ batches",
            "commits' own ÷ commits",
        ],
    )
    for number, total in enumerate(report.samples["syncs"]):
        row = [report.samples[name][number] for name in ("messages", "batches", "commits", "log syncs", "checkpoints")]
        shares = [
            total / report.samples["batches"][number],
            report.samples["syncs of commits"][number] / report.samples["commits"][number],
        ]
        table.rows.append([*(f"{value:,.0f}" for value in (*row, total)), *(f"{share:.2f}" for share in shares)])
    report.tables.append(table)
    by_file = ", ".join(f"{name} {count}" for name, count in files.most_common())
    report.notes.append(f"Syncs by file over all rounds: {by_file}.")
    report.notes.append(
        "A checkpoint costs three: the log before it, the database, and the log's header when it starts over."
    )
    for name, series, unit in (
        ("all syncs per batch", "syncs", "batches"),
        ("syncs per commit, checkpoints aside", "syncs of commits", "commits"),
    ):
        worst = max(report.ratios(series, unit))
        report.goals.append(Goal(f"{name}, worst round", "≤ 1", f"{worst:.2f}", worst <= 1))
    return report
