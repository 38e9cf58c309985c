"""Fixtures for tests of real agent programs: a hub with two members, and a home for the program.

After all tests, the table in the docs is compared with the results that the tests proved.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.programs.installed import REQUIRED_VARIABLE, UPDATE, ProgramHome, program_home
from tests.programs.table import PAGE, ROWS, Proof, filled

_HERE = Path(__file__).parent
_PROVES = "proves"
_WAYS_TO_NARROW = ("keyword", "markexpr", "lf", "failedfirst", "maxfail")

_proofs: list[Proof] = []


@pytest.fixture
def home() -> Iterator[ProgramHome]:
    with program_home() as home:
        yield home


@pytest.fixture
def hub() -> Iterator[HubProcess]:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        yield hub


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all slow tests except one per agent program, unless `make programs` runs the tests."""
    if os.environ.get(REQUIRED_VARIABLE):
        return
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("slow") and not item.get_closest_marker("first"):
            item.add_marker(pytest.mark.skip(reason="make programs runs it"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Store the facts that a test proves in its report.

    With several workers, reports are sent to the main process, which collects the facts.
    """
    for mark in item.iter_markers(_PROVES):
        item.user_properties.append((_PROVES, [ROWS.index(mark.args[0]), dict(mark.kwargs)]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the facts that a passed test proved."""
    if report.when == "call" and report.passed:
        for name, value in report.user_properties:
            if name == _PROVES and isinstance(value, list):
                _proofs.append((ROWS[value[0]], value[1]))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Compare the table in the docs with the proved facts, or rewrite it.

    Do this only if all tests of the programs ran.
    """
    asked = os.environ.get(REQUIRED_VARIABLE)
    config = session.config
    if hasattr(config, "workerinput"):
        return
    whole = config.args == [str(_HERE.relative_to(config.rootpath))]
    if not asked or exitstatus != 0 or not whole or any(config.getoption(each, None) for each in _WAYS_TO_NARROW):
        return
    page = PAGE.read_text(encoding="utf-8")
    now = filled(page, _proofs)
    if asked == UPDATE:
        PAGE.write_text(now, encoding="utf-8")
    elif now != page:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        text = f"{PAGE} does not have the table that the tests prove: run TIELINE_PROGRAMS={UPDATE} make programs"
        config.get_terminal_writer().line(f"\n{text}", red=True)
