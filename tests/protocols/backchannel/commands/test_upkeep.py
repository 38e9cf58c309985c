"""Tests of the doctor's findings about the spool."""

import os
from pathlib import Path

import pytest

from tests.cli.hub_process import run_cli
from tieline.cli.failure import Exit


@pytest.mark.slow
def test_files_that_were_refused_from_the_spool_are_found(folder: Path) -> None:
    refused = folder / "spool" / "bob" / "refused"
    refused.mkdir(parents=True)
    folder.chmod(0o700)
    (refused / "0190c8c0-0000-7000-8000-000000000000.forbidden.json").write_text("{}")
    done = run_cli(folder, "doctor", "--spool", str(folder))
    assert done.returncode == Exit.FAILED
    assert "forbidden" in done.stdout
    assert os.fspath(refused) in done.stdout
