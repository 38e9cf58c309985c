"""The hub's clock: a jump of the system's changes nothing until it has lasted, and the hub's time comes back."""

import pytest
from structlog.testing import capture_logs

from tieline.contract.limits import Limits
from tieline.server.clock import Clock, steady_ms, wall_ms

START_MS = 1_800_000_000_000
DAY_MS = 24 * 3600 * 1000
PATIENCE_MS = Limits().clock_patience_ms


class Machine:
    """A machine whose clocks are set by hand."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.steady = 5_000_000
        self.clock = Clock(Limits(), lambda: self.wall, lambda: self.steady)

    def wait(self, milliseconds: int) -> int:
        """Let time pass; returns the hub's time after it."""
        self.wall += milliseconds
        self.steady += milliseconds
        return self.clock.now_ms()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS, 6000, -6000])
def test_a_jump_that_is_taken_back_changes_the_hubs_time_not_at_all(machine: Machine, jump_ms: int) -> None:
    with capture_logs() as logs:
        machine.wait(1000)
        machine.wall += jump_ms
        for second in range(2, 6):
            assert machine.wait(1000) == START_MS + 1000 * second
        assert machine.clock.jump_ms == jump_ms
        machine.wall -= jump_ms
        assert machine.wait(1000) == START_MS + 6000
    assert machine.clock.jump_ms == 0
    assert machine.clock.take_step_ms() == 0
    assert [entry["log_level"] for entry in logs] == ["error", "warning"], "one line when it begins, one when it ends"


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_jump_that_lasts_is_followed_in_one_step(machine: Machine, jump_ms: int) -> None:
    with capture_logs():
        machine.wall += jump_ms
        times = [machine.wait(60_000) for _ in range(PATIENCE_MS // 60_000)]
        assert times == [START_MS + 60_000 * minute for minute in range(1, len(times) + 1)]
        assert machine.clock.take_step_ms() == 0
        assert machine.wait(60_000) == machine.wall
    assert machine.clock.take_step_ms() == jump_ms
    assert machine.clock.take_step_ms() == 0, "it is told once"
    assert machine.wait(1000) == machine.wall


def test_a_clock_that_jumps_again_is_waited_for_again(machine: Machine) -> None:
    with capture_logs():
        for _ in range(10):
            machine.wall += DAY_MS
            before = machine.clock.now_ms()
            assert machine.wait(PATIENCE_MS // 2) == before + PATIENCE_MS // 2
    assert machine.clock.take_step_ms() == 0
    assert machine.clock.jumps == 10


def test_a_machine_that_slept_has_not_jumped(machine: Machine) -> None:
    assert machine.wait(3 * DAY_MS) == START_MS + 3 * DAY_MS
    assert machine.clock.jumps == 0


def test_small_corrections_are_followed_and_time_never_goes_back_for_them(machine: Machine) -> None:
    machine.wait(1000)
    machine.wall += 300
    assert machine.wait(1000) == machine.wall
    machine.wall -= 2000
    before = machine.clock.now_ms()
    times = [machine.wait(500) for _ in range(8)]
    assert times == sorted(times)
    assert times[0] == before, "it stands until the wall clock has caught up"
    assert times[-1] == machine.wall
    assert machine.clock.jumps == 0


def test_the_machines_own_clocks_agree() -> None:
    clock = Clock()
    assert abs(clock.now_ms() - wall_ms()) < 1000
    assert steady_ms() <= steady_ms()
    assert clock.jumps == 0
