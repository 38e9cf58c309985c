"""The time is set in one step: what waits for a while waits as long as before, and nothing waits for ever."""

import pytest

from tests.core.doubles import Desk
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Fell
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Message
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.reply import History, Pauses

DAY_MS = 24 * 3600 * 1000


def history(desk: Desk) -> tuple[Message, ...]:
    return desk.expect(History, c.ReadHistory(desk.operator, everything=True)).messages


@pytest.mark.parametrize("step_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_an_escalation_comes_after_its_own_time_and_not_at_the_step(desk: Desk, step_ms: int) -> None:
    alice = desk.join("alice")
    desk.add("bob")
    desk.ask(c.SetReach(desk.operator, name=MemberName("bob"), reach=Reach((Leg(Way.PUSH, 10_000), Leg(Way.PULL, 0)))))
    desk.send(alice, "@bob")
    desk.clock_and_ids.set_clock(step_ms)
    desk.pass_ms(1000)
    assert not any(isinstance(event, Fell) for event in desk.events())
    desk.pass_ms(10_000)
    assert any(isinstance(event, Fell) for event in desk.events())


@pytest.mark.parametrize("step_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_pause_lasts_as_long_as_it_should(desk: Desk, step_ms: int) -> None:
    desk.ask(c.PauseThread(desk.operator, thread="#dev"))
    desk.pass_ms(1000)
    desk.clock_and_ids.set_clock(step_ms)
    (pause,) = desk.expect(Pauses, c.ListPauses(desk.operator)).pauses
    assert pause.until_ms == desk.clock_and_ids.time_ms + desk.limits.pause_ms - 1000


def test_retention_goes_on_after_the_time_was_set_back(desk: Desk) -> None:
    alice = desk.join("alice")
    desk.pass_ms(1000)
    desk.clock_and_ids.set_clock(-30 * DAY_MS)
    desk.advance(alice, 1)
    said = desk.send(alice, "@alice").message_id
    desk.advance(alice, 1)
    assert desk.state(said, "alice") is State.ACKED
    desk.pass_ms(desk.limits.retention_ms + 2 * 3600 * 1000)
    assert history(desk) == ()
