"""Tests that suites which run on the embedded store pass on PostgreSQL too.

Each suite runs as a process with `TIELINE_TEST_STORE=postgres`. `make test` runs some files of it, `make soak` all.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.faults.processes import ROOT, SOAK

SUITES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "core": (["tests/core"], ["tests/core/test_deliveries.py"]),
    "files": (["tests/services/files/test_files.py"], []),
    "interop": (["tests/interop"], ["tests/interop/test_receipts.py"]),
    "protocols": (["tests/protocols", "tests/server"], []),
}
"""For each suite: all of it, and the files that `make test` runs. The conformance suite always runs on both stores."""
_PROCESSES = "4" if SOAK else "0"
"""Number of processes of a suite. Most of its time a hub waits for its clients, or a client for its hub."""


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("suite", [name for name, (_, some) in SUITES.items() if SOAK or some])
def test_a_suite_passes_on_postgres(suite: str) -> None:
    everything, some = SUITES[suite]
    options = ("-q", f"-n{_PROCESSES}", "--timeout=600", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(everything if SOAK else some)],
        cwd=ROOT,
        env={**os.environ, "TIELINE_TEST_STORE": "postgres"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
