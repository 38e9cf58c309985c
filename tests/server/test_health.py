"""Tests of the hub's health: a lasting fault causes two lines in the log, whatever fails in between."""

import pytest
from structlog.testing import capture_logs

from tieline.contract.refusal import Code, Refusal
from tieline.core.outcome import Fault
from tieline.core.store import DamagedError
from tieline.server.health import Health


class Clock:
    """Test double: a monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Fixture: replace the clock that the health code reads by a fake clock. Return it."""
    clock = Clock()
    monkeypatch.setattr("tieline.server.health.time", clock)
    return clock


def test_failures_and_successes_that_alternate_are_one_fault_until_it_is_calm(clock: Clock) -> None:
    health = Health()
    with capture_logs() as logs:
        for _ in range(50):
            health.store.failed("full", "make room")
            health.store.succeeded()
            clock.seconds += 0.1
        assert [problem.reason for problem in health.problems] == ["full"]
        clock.seconds += 2
        health.store.succeeded()
    assert health.problems == []
    assert [entry["log_level"] for entry in logs] == ["error", "warning"]
    assert logs[1]["failures"] == 50
    assert health.store.failures == 50


def test_a_store_is_left_alone_only_after_failures_in_a_row(clock: Clock) -> None:
    health = Health()
    with capture_logs():
        for _ in range(2):
            health.store.failed("full")
        assert health.store.rest_seconds == 0
        health.store.failed("full")
    assert health.store.rest_seconds == 0.5
    clock.seconds += 0.5
    assert health.store.rest_seconds == 0
    health.store.succeeded()
    assert health.store.rest_seconds == 0


def test_faults_of_one_kind_share_a_line_for_a_while_and_are_counted(clock: Clock) -> None:
    health = Health()
    refusal = Refusal(Code.INTERNAL_ERROR, "no")
    with capture_logs() as logs:
        for _ in range(1000):
            health.fault(Fault(0, "Send", RuntimeError("a bug"), refusal))
        health.fault(Fault(0, "Claim", RuntimeError("a bug"), refusal))
        clock.seconds += 60
        health.fault(Fault(0, "Send", RuntimeError("a bug"), refusal))
    assert [(entry["what"], entry["more_before"]) for entry in logs] == [("Send", 0), ("Claim", 0), ("Send", 999)]
    assert health.faults == 1002
    assert health.problems == [], "the hub is well, whatever a command does"


@pytest.mark.usefixtures("clock")
def test_damage_stays_until_the_hub_is_started_again() -> None:
    health = Health()
    error = DamagedError("tieline.db is damaged", "restore a backup")
    with capture_logs() as logs:
        for _ in range(3):
            health.fault(Fault(0, "ReadHistory", error, Refusal(Code.STORE_FAILED, str(error))))
        health.store.succeeded()
    (problem,) = health.problems
    assert (problem.reason, problem.do, problem.severe) == (str(error), error.hint, True)
    assert len(logs) == 1
