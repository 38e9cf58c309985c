"""Tests of the end of a test run: it names its failed tests, whatever the garbage collector does, and its figures."""

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


MEASURING = """def test_that_measures(figure):
    figure("a stream: 19 KiB")
"""


def run(folder: Path, test: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a file of tests with the configuration of all tests. Return the exit code and output."""
    (folder / "test_planted.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *options]
    configured = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, *configured], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )


@pytest.mark.slow
def test_figures_of_worker_processes_are_printed_at_the_end(tmp_path: Path) -> None:
    assert "\na stream: 19 KiB\n" in run(tmp_path, MEASURING, "-n1").stdout


@pytest.mark.slow
def test_a_failing_run_names_what_failed_though_finalizers_run_while_it_reports(tmp_path: Path) -> None:
    planted = run(tmp_path, FAILING)
    assert planted.returncode == pytest.ExitCode.TESTS_FAILED, planted.stdout + planted.stderr
    assert re.search(r"^FAILED \S*test_planted.py::test_that_fails", planted.stdout, re.MULTILINE)
