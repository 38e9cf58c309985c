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
    "protocols": (["tests/protocols", "tests/interop", "tests/server"], []),
}
"""For each suite: all of it, and the files that `make test` runs."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", [name for name, (_, some) in SUITES.items() if SOAK or some])
def test_a_suite_passes_on_postgres(suite: str) -> None:
    everything, some = SUITES[suite]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *(everything if SOAK else some)],
        cwd=ROOT,
        env={**os.environ, "TIELINE_TEST_STORE": "postgres"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
