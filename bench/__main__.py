"""`python -m bench [NAME…]`: run benchmarks, print medians and ratios, and say which goals are met."""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from bench import (
    ac7,
    backchannel,
    channels,
    durable,
    fanout,
    floor,
    growth,
    history,
    idle,
    latency,
    machine,
    peerbus,
    pipeline,
    relay,
    round_trip,
    service,
    spool,
    store,
    syncs,
    wake,
    workers,
    year,
)
from bench.context import Context
from bench.processes import ROOT, BenchError, hub_command
from bench.report import Report, show, show_goals

BENCHMARKS: dict[str, Callable[[Context], Report]] = {
    "floor": floor.measure,
    "durable": durable.measure,
    "latency": latency.measure,
    "fanout": fanout.measure,
    "ac7": ac7.measure,
    "channels": channels.measure,
    "relay": relay.measure,
    "backchannel": backchannel.measure,
    "peerbus": peerbus.measure,
    "roundtrip": round_trip.measure,
    "syncs": syncs.measure,
    "idle": idle.measure,
    "spool": spool.measure,
    "wake": wake.measure,
    "growth": growth.measure,
    "pipeline": pipeline.measure,
    "service": service.measure,
    "store": store.measure,
    "workers": workers.measure,
    "year": year.measure,
}
ON_REQUEST = frozenset({"growth", "pipeline", "service", "store", "workers", "year"})
"""Benchmarks that take longer than all others together; they run only when they are named."""
DEFAULT_FOLDER = ROOT / ".tieline" / "bench"
"""This folder is ignored by git, and is on the disk of the repository; a temporary folder may be in memory."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; 'list' names them; default: all")
    parser.add_argument("--quick", action="store_true", help="3 rounds with smaller counts instead of 7")
    parser.add_argument("--rounds", type=int, help="as many rounds as this")
    parser.add_argument("--history", type=Path, metavar="FILE", help="add a line with the medians to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure for programs")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="where homes are made; must be a real disk")
    parser.add_argument("--minutes", type=float, default=45.0, help="start no further round after this long")
    parser.add_argument("--duration", type=float, default=15.0, metavar="MINUTES", help="how long 'service' measures")
    return parser.parse_args()


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Run the benchmarks that the arguments name."""
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 150)
    if arguments.names == ["list"]:
        for name, measure in BENCHMARKS.items():
            summary = (sys.modules[measure.__module__].__doc__ or "").splitlines()[0]
            console.print(f"{name:11} {summary}", highlight=False)
        return 0
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        console.print(f"no benchmark {', '.join(unknown)}: one of {', '.join(BENCHMARKS)}", highlight=False)
        return 2
    # Handle SIGTERM like Ctrl-C, so that every process and folder is cleaned up.
    signal.signal(signal.SIGTERM, _stop)
    folder = arguments.dir.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    described = machine.describe(folder)
    described["hub"] = " ".join(hub_command(Path("HOME"), "STORE"))
    for key, value in described.items():
        console.print(f"{key:8} {value}", highlight=False)
    if machine.file_system(folder) in ("tmpfs", "ramfs"):
        console.print("warning: these homes are in memory, so syncs cost nothing here; name a disk with --dir")
    context = Context(
        folder,
        quick=arguments.quick,
        rounds=arguments.rounds,
        minutes_max=arguments.minutes,
        duration_minutes=arguments.duration,
    )
    reports: list[Report] = []
    started = time.monotonic()
    code = 0
    try:
        for name in arguments.names or [name for name in BENCHMARKS if name not in ON_REQUEST]:
            reports.append(BENCHMARKS[name](context))
            show(console, reports[-1])
    except (BenchError, OSError) as error:
        console.print(f"error: {error}", style="red", highlight=False)
        code = 1
    except KeyboardInterrupt:
        console.print("stopped")
        code = 1
    show_goals(console, reports)
    seconds = time.monotonic() - started
    cut = f"; {context.cut_short} ended early for lack of time (--minutes)" if context.cut_short else ""
    console.print(f"{seconds:.0f} s{cut}; load average now {machine.describe(folder)['load']}", highlight=False)
    if arguments.history is not None and code == 0:
        history.add(arguments.history, described, reports)
    if arguments.json is not None:
        found: dict[str, Any] = {"machine": described, "seconds": seconds, "reports": reports}
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    return code


if __name__ == "__main__":
    sys.exit(main())
