"""The history of what each landing measured: one line of JSON a landing, in `bench/history.jsonl`.

`make bench-history` adds a line. Figures of two lines are comparable only as far as their machine, Python and load
average are alike; `bench.against` compares two commits in one run.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.processes import ROOT
from bench.report import Report


class Landing(Struct, frozen=True):
    """The medians of one run."""

    commit: str
    """Short hash of the commit; it ends with `-dirty` if the working tree had changes."""
    date: str
    python: str
    machine: str
    load: str
    """Load average when the run began, and its last minute when the run ended."""
    cpu_us: dict[str, float]
    """Processor time of the hub per message, or per delivery of a fan-out, by load."""
    ratios: dict[str, float]
    """Ratios of the hub's rates and latencies to those of its references, by load."""


def add(path: Path, machine: Mapping[str, str], reports: Sequence[Report]) -> None:
    """Add a line for this run."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    landing = Landing(
        commit=described.stdout.strip(),
        date=datetime.now(UTC).date().isoformat(),
        python=machine["python"],
        machine=machine["machine"],
        load=f"{machine['load']}, then {os.getloadavg()[0]:.2f}",
        cpu_us={load: value for report in reports for load, value in report.cpu_us.items()},
        ratios={load: value for report in reports for load, value in report.ratios_to.items()},
    )
    with path.open("ab") as file:
        file.write(msgspec.json.encode(landing) + b"\n")
