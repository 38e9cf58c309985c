"""Tests that suites which run in one process pass with two workers too: clients are on different workers.

Each suite runs as a process with `TIELINE_TEST_WORKERS=2`. `make test` runs one pair of protocols, `make soak` all.
"""

import os
import subprocess
import sys

import pytest

from tests.faults.processes import ROOT, SOAK

_DIRECT = "test_a_direct_message_arrives_once_and_intact_whether_its_recipient_is_there_or_not"
PAIR = [f"tests/interop/test_matrix.py::{_DIRECT}[backchannel to peerbus]"]
ALL = [f"tests/interop/test_{name}.py" for name in ("matrix", "receipts", "tls", "addresses", "spoofing", "fidelity")]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_protocols_reach_each_other_with_workers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *(ALL if SOAK else PAIR)],
        cwd=ROOT,
        env={**os.environ, "TIELINE_TEST_WORKERS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
