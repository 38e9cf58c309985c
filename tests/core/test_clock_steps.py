"""Tests of a clock that is set to another time: waiting times keep their length, and nothing waits for ever."""

import pytest

from tests.core.doubles import BrokerHarness
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Fell
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Message
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.reply import History, Pauses

DAY_MS = 24 * 3600 * 1000


def history(harness: BrokerHarness) -> tuple[Message, ...]:
    return harness.expect(History, c.ReadHistory(harness.operator, everything=True)).messages


@pytest.mark.parametrize("step_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_an_escalation_comes_after_its_own_time_and_not_at_the_step(harness: BrokerHarness, step_ms: int) -> None:
    alice = harness.join("alice")
    harness.add("bob")
    harness.ask(
        c.SetReach(harness.operator, name=MemberName("bob"), reach=Reach((Leg(Way.PUSH, 10_000), Leg(Way.PULL, 0))))
    )
    harness.send(alice, "@bob")
    harness.clock_and_ids.set_clock(step_ms)
    harness.pass_ms(1000)
    assert not any(isinstance(event, Fell) for event in harness.events())
    harness.pass_ms(10_000)
    assert any(isinstance(event, Fell) for event in harness.events())


@pytest.mark.parametrize("step_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_pause_lasts_as_long_as_it_should(harness: BrokerHarness, step_ms: int) -> None:
    harness.ask(c.PauseThread(harness.operator, thread="#dev"))
    harness.pass_ms(1000)
    harness.clock_and_ids.set_clock(step_ms)
    (pause,) = harness.expect(Pauses, c.ListPauses(harness.operator)).pauses
    assert pause.until_ms == harness.clock_and_ids.time_ms + harness.limits.pause_ms - 1000


def test_retention_goes_on_after_the_time_was_set_back(harness: BrokerHarness) -> None:
    alice = harness.join("alice")
    harness.pass_ms(1000)
    harness.clock_and_ids.set_clock(-30 * DAY_MS)
    harness.advance(alice, 1)
    said = harness.send(alice, "@alice").message_id
    harness.advance(alice, 1)
    assert harness.state(said, "alice") is State.ACKED
    harness.pass_ms(harness.limits.retention_ms + 2 * 3600 * 1000)
    assert history(harness) == ()
