"""Tests that a failed test run names its failed tests, even if the garbage collector runs meanwhile."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A failure that leaves garbage behind, as unclosed sockets are. Its finalizers raise, and pytest writes a traceback for
# each at once: in the middle of reading this file, which is long, for the traceback of the failure.
FAILING = """\
class Garbage:
    def __init__(self):
        self.itself = self

    def __del__(self):
        raise ValueError(str(1) + str(2))


def test_that_fails():
    for _ in range(50):
        Garbage()
    assert False


""" + "".join(f"x{number} = [{number} + 1, str({number})]\n" for number in range(2000))


@pytest.mark.slow
def test_a_failing_run_names_what_failed_though_finalizers_run_while_it_reports(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    configured = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    planted = subprocess.run(
        [*command, *configured], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert planted.returncode == pytest.ExitCode.TESTS_FAILED, planted.stdout + planted.stderr
    assert re.search(r"^FAILED \S*test_planted.py::test_that_fails", planted.stdout, re.MULTILINE)
