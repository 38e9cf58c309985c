"""Fixtures for all tests: a folder with a path short enough for a Unix socket, and a clean environment."""

import ast
import functools
import gc
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it brings no types

VARIABLES = (
    "TIELINE_HOME",
    "TIELINE_URL",
    "TIELINE_TOKEN",
    "TIELINE_AGENT",
    "TIELINE_HTTP",
    "TIELINE_STORE",
    "BACKCHANNEL_HOME",
    "BACKCHANNEL_AGENT",
    "BACKCHANNEL_URL",
    "BACKCHANNEL_TOKEN",
    "PEERBUS_TOKENS",
    "PEERBUS_HMAC_SECRET",
    "TIELINE_PEERBUS",
)

GROUPS = {
    # Tests that start the pipeline as a program: they share little with the others and take half as long together.
    "tests/pipeline/test_command.py": "spark programs",
    "tests/pipeline/test_cluster.py": "spark programs",
    "tests/faults/test_pipeline.py": "spark programs",
    "tests/pipeline/": "spark",
    "tests/e2e/": "browser",
    "tests/faults/attacks/": "attacks",
    "tests/faults/test_audit.py": "audit",
}
"""Groups of tests that share something slow to start, by the beginning of their paths: the first that fits counts. Each
group runs in one process."""

_FIGURE = "figure"

# A busy machine is no defect: how long an example takes is bounded by the timeout of its test alone.
hypothesis.settings.register_profile(
    "tieline", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tieline")
# For `make check`: what a change breaks, a few examples show. `make test` tries all of them.
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("tieline"), max_examples=20)

# Tests that run in the background may ignore these signals, and child processes would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def _without_collection(parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    @functools.wraps(parse)
    def undisturbed(*arguments: Any, **options: Any) -> ast.AST:
        collects = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if collects:
                gc.enable()

    return undisturbed


# pytest parses sources for its tracebacks. If garbage is collected in the middle of that and a finalizer fails, pytest
# writes a traceback for it at once, which parses too. Python 3.11 then raises SystemError in the first parse (AST
# constructor recursion depth mismatch), and the run ends without naming what failed.
if sys.version_info < (3, 12):
    ast.parse = _without_collection(ast.parse)  # type: ignore[assignment]


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # so neither has this
    """Scheduler of pytest-xdist: it gives a process one whole group at a time, largest first, and then single tests.

    So only one browser and at most two Sparks run at a time, beside tests that need neither.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((group for place, group in GROUPS.items() if nodeid.startswith(place)), nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Note that a process has run a test, and forget a group that is done.

        After every test, pytest-xdist counts all that a process has ever been given, which took a tenth of a run.
        """
        super().mark_test_complete(node, item_index, duration)
        given = self.assigned_work[node]
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(given[group].values()):
            del given[group]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Return the scheduler that decides which process of `--numprocesses` runs which test."""
    return GroupScheduling(config, log)


def pytest_collection_finish() -> None:
    """Take the collected tests out of the garbage collection: they are millions of objects that stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Give the collected tests back to the garbage collection, so that nothing is reported as left at the end."""
    gc.unfreeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test on asyncio's own event loop as slow if the same test runs on uvloop, as a hub does."""
    variant = getattr(item, "callspec", None)
    if variant is not None and "asyncio" in variant.id.split("-"):
        item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests measured. Nobody sees the output of a worker process, so its reports have them."""
    reports = [one for each in terminalreporter.stats.values() for one in each if isinstance(one, pytest.TestReport)]
    figures = [text for one in reports if one.when == "call" for name, text in one.user_properties if name == _FIGURE]
    if figures:
        terminalreporter.section("figures")
        for text in figures:
            terminalreporter.line(str(text))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Fixture: a function that prints a figure after all tests, for people."""
    return functools.partial(record_property, _FIGURE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Fixture: a folder with a short path, because pytest's own paths are often too long for a Unix socket.

    It is removed.
    """
    path = Path(tempfile.mkdtemp(prefix="tieline-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
