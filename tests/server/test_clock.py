"""Tests of the hub's clock: a jump of the system clock has no effect before it lasts, and the hub's time recovers."""

import pytest
from structlog.testing import capture_logs

from tests.core.doubles import BrokerHarness, FakeClockAndIds
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.reply import History
from tieline.server.clock import Clock, steady_ms, wall_ms
from tieline.server.health import Health
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.database import IN_MEMORY

START_MS = 1_800_000_000_000
DAY_MS = 24 * 3600 * 1000
PATIENCE_MS = Limits().clock_patience_ms


class Machine:
    """Test double: the clocks of a machine, which the test sets."""

    def __init__(self) -> None:
        self.wall = START_MS
        self.steady = 5_000_000
        self.clock = Clock(Limits(), lambda: self.wall, lambda: self.steady)

    def wait(self, milliseconds: int) -> int:
        """Move both clocks forward. Return the hub's time after it."""
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


# The start.


class MachineClockAndIds(FakeClockAndIds):
    """Test double: clock and ids of a hub, with the time of a fake machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def now_ms(self) -> int:
        return self.machine.clock.now_ms()

    def take_step_ms(self) -> int:
        return self.machine.clock.take_step_ms()

    def doubts_time(self) -> bool:
        return self.machine.clock.doubted


@pytest.fixture
def harness() -> BrokerHarness:
    """Fixture: a broker harness with one settled message in its store."""
    store = SqliteStore(IN_MEMORY)
    harness = BrokerHarness(lambda: store)
    ada = harness.join("ada")
    harness.send(ada, "@ada", "settled")
    harness.advance(ada, 1)
    return harness


def start(harness: BrokerHarness, ahead_ms: int) -> Machine:
    """Start the broker again on a machine whose wall clock is ahead by `ahead_ms`. Return the machine."""
    machine = Machine()
    machine.wall += ahead_ms
    machine.clock = Clock(Limits(), lambda: machine.wall, lambda: machine.steady)
    harness.clock_and_ids = MachineClockAndIds(machine)
    harness.open()
    return machine


def remembered(harness: BrokerHarness) -> list[str]:
    harness.ask(c.Tick())
    return [message.content.body for message in harness.expect(History, c.ReadHistory(harness.operator)).messages]


def test_a_start_far_in_the_future_deletes_nothing_until_the_clock_stayed_there(harness: BrokerHarness) -> None:
    machine = start(harness, 40 * DAY_MS)
    assert remembered(harness) == ["settled"]
    machine.wait(PATIENCE_MS - 1)
    assert remembered(harness) == ["settled"]
    machine.wait(1)
    assert remembered(harness) == []


def test_a_clock_that_was_wrong_at_the_start_and_is_set_right_deletes_nothing_ever(harness: BrokerHarness) -> None:
    machine = start(harness, 40 * DAY_MS)
    machine.wait(PATIENCE_MS // 2)
    assert remembered(harness) == ["settled"]
    with capture_logs():
        machine.wall -= 40 * DAY_MS
        for _ in range(60):
            machine.wait(60_000)
            assert remembered(harness) == ["settled"]
    assert machine.clock.now_ms() == machine.wall
    assert not machine.clock.doubted


@pytest.mark.parametrize(("gap_ms", "than"), [(40 * DAY_MS, "960 h later"), (-DAY_MS, "earlier")])
def test_a_start_far_from_the_newest_row_is_told_until_the_clock_is_trusted(
    machine: Machine, gap_ms: int, than: str
) -> None:
    health = Health()
    health.watch(machine.clock)
    with capture_logs() as logs:
        machine.clock.compare_with_log(START_MS - gap_ms)
    assert [entry["log_level"] for entry in logs] == ["warning"]
    (problem,) = health.problems
    assert than in problem.reason
    assert "15 minutes" in problem.do
    assert not problem.severe
    machine.wait(PATIENCE_MS)
    assert health.problems == []


def test_a_hub_that_was_off_for_a_weekend_is_well(machine: Machine) -> None:
    health = Health()
    health.watch(machine.clock)
    with capture_logs() as logs:
        machine.clock.compare_with_log(START_MS - 3 * DAY_MS)
    assert (logs, health.problems) == ([], [])


def test_a_jump_is_told_with_the_patience_that_the_hub_has() -> None:
    machine = Machine()
    machine.clock = Clock(Limits(clock_patience_ms=90_000), lambda: machine.wall, lambda: machine.steady)
    health = Health()
    health.watch(machine.clock)
    with capture_logs() as logs:
        machine.wall += DAY_MS
        machine.wait(1000)
    assert logs[0]["event"] == "the system's clock jumped; the hub follows if that lasts 2 minutes"
    assert "within 2 minutes" in health.problems[0].do
