"""The command itself, in a process of its own: it follows a log, stops cleanly, and says what it did."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipeline.oracle import Oracle, stored
from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.xdist_group("spark")]

WAIT_SECONDS = 300


def test_a_run_that_follows_brings_in_what_is_there_and_ends_cleanly_when_interrupted(
    made_home: Path, oracle: Oracle, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    arguments = ["--home", str(made_home), "--lake", str(lake.path), "--master", "local[2]"]
    program = "import sys; from tieline.cli.main import main; sys.argv[0] = 'tieline'; main()"
    command = [sys.executable, "-c", program, "pipeline", "run", "--follow", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while lake.head().number == 0:
                assert following.poll() is None, following.communicate()
                assert time.monotonic() < deadline, "waited in vain"
                time.sleep(0.2)
            following.send_signal(signal.SIGINT)
            told, errors = following.communicate(timeout=WAIT_SECONDS)
        finally:
            following.kill()
    assert following.returncode == 0, errors
    summary = json.loads(told.splitlines()[-1])
    assert set(summary) == {"events_read", "batches", "tables", "seconds"}
    assert (summary["events_read"], summary["batches"]) == (lake.head().rows("bronze"), 1)
    assert summary["tables"]["edges"] == lake.head().rows("edges")
    assert stored(lake.files("edges"), SCHEMAS["edges"].fieldNames()) == oracle.rows("edges")
