"""Tests of readers of the logs: retention waits for a reader for a limited time, and warns people once.

Rows that a reader missed are counted.
"""

from typing import Any

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.event import Sent
from tieline.contract.identifiers import SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.reader import Reader
from tieline.contract.refusal import Code
from tieline.contract.reply import Done, History, LogRows, Readers, ReaderState, Recorded
from tieline.core.journal import Prune
from tieline.core.store import ACTIVITY, MAIN

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


class Scene:
    """Test helper: a hub that keeps messages for 7 days and activity for 2 days.

    Both are kept up to 10 days longer for readers that have not read them.
    """

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.ada = harness.join("ada")
        self.bob = harness.join("bob")
        harness.join("person", kind=MemberKind.HUMAN)
        self.pipeline = harness.join("pipeline", "log.read")
        self._keys = 0

    def send(self, body: str = "hello") -> int:
        """Send a message from ada to bob, and acknowledge it. Return its offset."""
        offset = self.harness.send(self.ada, "@bob", body).offset
        self._keys += 1
        self.harness.advance(self.bob, self._keys)
        return offset

    def act(self) -> None:
        self.harness.expect(Recorded, c.RecordActivity(self.bob, events=({"kind": "llm"},)))

    def advance(self, position: int, log: str = MAIN, session: SessionId | None = None, **fields: Any) -> Reader:
        return self.advanced(position, log, session, **fields).reader

    def advanced(self, position: int, log: str, session: SessionId | None = None, **fields: Any) -> ReaderState:
        command = c.AdvanceReader(session or self.pipeline, name="lake", position=position, log=log, **fields)
        return self.harness.expect(ReaderState, command)

    def reader(self, log: str = MAIN) -> Reader:
        return next(one for one in self.readers().readers if one.log == log)

    def readers(self) -> Readers:
        return self.harness.expect(Readers, c.ListReaders(self.harness.operator))

    def remembered(self) -> list[str]:
        messages = self.harness.expect(History, c.ReadHistory(self.harness.operator, limit=1000)).messages
        return [message.content.body for message in reversed(messages) if message.sender == "ada"]

    def told(self) -> list[str]:
        """Return the bodies of the hub's notices about late readers that the human member `person` got."""
        found = self.harness.fetch(self.harness.attach("person"))
        bodies = [one.message.content.body for one in found if "late" in (one.message.content.title or "")]
        return [body for body in bodies if "reader" in body]

    def prune_activity(self) -> int:
        """Run the retention of activity once. Return the number of deleted rows."""
        reply, _ = self.harness.journal.carry_out(Prune(self.harness.clock_and_ids.time_ms))
        self.harness.journal.commit()
        assert isinstance(reply, Recorded)
        return reply.count

    def rows(self, log: str = MAIN) -> LogRows:
        return self.harness.expect(LogRows, c.ReadLog(self.harness.operator, log=log))


@pytest.fixture
def scene(make_harness: MakeHarness) -> Scene:
    limits = Limits(
        retention_ms=7 * DAY_MS, activity_retention_ms=2 * DAY_MS, reader_wait_ms=10 * DAY_MS, readers_max=2
    )
    return Scene(make_harness(limits))


def test_a_reader_is_made_by_its_first_position_and_kept_over_restarts(scene: Scene) -> None:
    assert scene.readers().readers == ()
    made = scene.advance(3)
    assert (made.name, made.log, made.position, made.by, made.missed) == ("lake", MAIN, 3, "pipeline", 0)
    scene.advance(0, ACTIVITY)
    scene.harness.crash()
    assert [(one.log, one.position) for one in scene.readers().readers] == [(MAIN, 3), (ACTIVITY, 0)]


def test_the_logs_are_listed_with_their_epochs_and_offsets(scene: Scene) -> None:
    scene.act()
    main, activity = scene.readers().logs
    assert (main.log, main.kept_from, main.end) == (MAIN, 0, len(scene.harness.log()))
    assert (activity.log, activity.kept_from, activity.end) == (ACTIVITY, 0, 1)
    assert len({main.epoch, activity.epoch}) == 2
    for log, state in ((MAIN, main), (ACTIVITY, activity)):
        assert (scene.rows(log).epoch, scene.rows(log).kept_from) == (state.epoch, 0)


@pytest.mark.parametrize("log", [MAIN, ACTIVITY])
def test_a_position_goes_forwards_and_back_only_by_a_rewind(scene: Scene, log: str) -> None:
    for _ in range(5):
        scene.act()
    for position in (2, 2, 4):
        assert scene.advance(position, log).position == position
    back = c.AdvanceReader(scene.pipeline, name="lake", position=3, log=log)
    refusal = scene.harness.refused(back)
    assert refusal.code is Code.INVALID_REQUEST
    assert "only a rewind goes back" in refusal.message
    assert scene.reader(log).position == 4
    assert scene.advance(3, log, rewind=True).position == 3


@pytest.mark.parametrize("log", [MAIN, ACTIVITY])
@pytest.mark.parametrize("position", [-1, 2**63, 10**6])
def test_a_position_lies_within_the_log(scene: Scene, log: str, position: int) -> None:
    command = c.AdvanceReader(scene.pipeline, name="lake", position=position, log=log)
    assert scene.harness.refused(command).code is Code.INVALID_REQUEST
    assert scene.readers().readers == ()


@pytest.mark.parametrize("log", [MAIN, ACTIVITY])
def test_a_reader_that_knows_another_epoch_is_refused(scene: Scene, log: str) -> None:
    epoch = next(one.epoch for one in scene.readers().logs if one.log == log)
    scene.advance(0, log, epoch=epoch)
    command = c.AdvanceReader(scene.pipeline, name="lake", position=0, log=log, epoch="another")
    assert scene.harness.refused(command).code is Code.WRONG_EPOCH


@pytest.mark.parametrize("name", ["", "Lake", "a b", "x" * 65, "-x", "läke"])
def test_a_name_follows_its_rule(scene: Scene, name: str) -> None:
    command = c.AdvanceReader(scene.pipeline, name=name, position=0)
    assert scene.harness.refused(command).code is Code.INVALID_NAME


def test_only_who_may_read_the_log_has_to_do_with_readers(scene: Scene) -> None:
    for command in (
        c.ListReaders(scene.ada),
        c.AdvanceReader(scene.ada, name="lake", position=0),
        c.AdvanceReader(scene.ada, name="lake", position=0, log=ACTIVITY),
        c.ForgetReader(scene.ada, name="lake"),
    ):
        assert scene.harness.refused(command).code is Code.FORBIDDEN
    unknown = c.AdvanceReader(scene.pipeline, name="lake", position=0, log="other")
    assert scene.harness.refused(unknown).code is Code.UNKNOWN_LOG


def test_readers_are_forgotten_in_both_logs_and_are_few(scene: Scene) -> None:
    operator = scene.harness.operator
    scene.advance(0)
    scene.advance(0, ACTIVITY)
    scene.advance(0, session=operator)
    scene.harness.expect(ReaderState, c.AdvanceReader(operator, name="other", position=0))
    third = c.AdvanceReader(operator, name="third", position=0)
    assert scene.harness.refused(third).code is Code.TOO_MANY_READERS
    scene.harness.expect(Done, c.ForgetReader(operator, name="lake"))
    assert [one.name for one in scene.readers().readers] == ["other"]
    assert scene.harness.refused(c.ForgetReader(operator, name="lake")).code is Code.UNKNOWN_READER
    scene.harness.expect(ReaderState, third)


def test_what_was_not_committed_is_not_read_up_to(scene: Scene) -> None:
    scene.advance(1)
    scene.harness.decide(c.AdvanceReader(scene.pipeline, name="lake", position=2))
    scene.harness.broker.roll_back()
    assert scene.reader().position == 1
    scene.harness.decide(c.AdvanceReader(scene.pipeline, name="lake", position=2))
    scene.harness.crash()
    assert scene.reader().position == 1


def test_nothing_is_gone_that_a_reader_which_sleeps_for_ten_days_has_not_read(scene: Scene) -> None:
    scene.send("read")
    scene.advance(len(scene.harness.log()))
    scene.advance(0, ACTIVITY)
    for day in range(10):
        scene.send(f"day {day}")
        scene.act()
        scene.harness.pass_ms(DAY_MS)
        scene.harness.pass_ms(HOUR_MS)
        assert scene.prune_activity() == 0
    assert scene.remembered() == [f"day {day}" for day in range(10)], "the message that was read is gone"
    assert len(scene.rows(ACTIVITY).rows) == 10
    assert (scene.reader().missed, scene.reader(ACTIVITY).missed) == (0, 0)
    assert scene.told() == []
    # The reader wakes up: all that is old enough goes.
    scene.advance(len(scene.harness.log()))
    scene.advance(10, ACTIVITY)
    scene.harness.pass_ms(HOUR_MS)
    assert scene.remembered() == [f"day {day}" for day in range(4, 10)]
    assert scene.prune_activity() == 9


def test_people_are_told_once_before_the_bound_and_rows_past_it_are_counted(scene: Scene) -> None:
    scene.advance(len(scene.harness.log()))
    first = scene.send("first")
    scene.harness.pass_ms(DAY_MS)
    second = scene.send("second")
    warned_after = 7 + 8  # retention, and eight tenths of the ten days
    for day in range(1, 17):
        assert bool(scene.told()) == (day >= warned_after)
        assert scene.remembered() == ["first", "second"]
        scene.harness.pass_ms(DAY_MS)
        scene.harness.crash()
    scene.harness.pass_ms(HOUR_MS)
    assert scene.remembered() == ["second"], "17 days and an hour are more than the bound"
    reader = scene.reader()
    assert (reader.missed, reader.missed_first, reader.missed_last, reader.warned) == (1, first, first, True)
    assert scene.rows().kept_from == first + 1
    scene.harness.pass_ms(DAY_MS)
    assert scene.remembered() == []
    assert (scene.reader().missed, scene.reader().missed_first, scene.reader().missed_last) == (2, first, second)
    (notice,) = scene.told()
    assert "lake has not read the log main from" in notice
    assert "tieline log forget lake" in notice


def test_a_reader_that_caught_up_and_sleeps_again_is_told_of_again(scene: Scene) -> None:
    for number in (1, 2):
        scene.send()
        scene.advance(len(scene.harness.log()))
        scene.send()
        scene.harness.pass_ms(16 * DAY_MS)
        assert len(scene.told()) == number
        scene.advance(len(scene.harness.log()))
        scene.harness.pass_ms(HOUR_MS)
        assert not scene.reader().warned


def test_a_late_reader_of_activity_is_told_of_and_what_it_missed_is_counted(scene: Scene) -> None:
    scene.advance(0, ACTIVITY)
    for _ in range(3):
        scene.act()
        scene.harness.clock_and_ids.time_ms += HOUR_MS
    scene.harness.clock_and_ids.time_ms += 11 * DAY_MS
    assert scene.prune_activity() == 0
    (reason,) = scene.harness.journal.late
    scene.harness.journal.late = ()
    scene.harness.ask(c.Tick(late=(reason,)))
    assert scene.harness.outcome.warnings == [reason]
    assert len(scene.told()) == 1
    scene.harness.clock_and_ids.time_ms += DAY_MS
    assert scene.prune_activity() == 2, "the newest row always stays"
    reader = scene.reader(ACTIVITY)
    assert (reader.missed, reader.missed_first, reader.missed_last) == (2, 0, 1)
    assert scene.rows(ACTIVITY).kept_from == 2
    assert scene.harness.journal.late == (), "people are told once"
    scene.advance(0, ACTIVITY, rewind=True)
    new = scene.harness.expect(ReaderState, c.AdvanceReader(scene.pipeline, name="new", position=0, log=ACTIVITY))
    assert (new.reader.missed, new.log.kept_from) == (0, 2), "a new reader learns what was gone before it came"


def test_retention_does_not_wait_when_the_database_is_too_large(make_harness: MakeHarness) -> None:
    scene = Scene(make_harness(Limits(reader_wait_bytes=4096)))
    scene.advance(len(scene.harness.log()))
    scene.send("unread")
    scene.harness.pass_ms(8 * DAY_MS)
    assert scene.remembered() == []
    assert scene.reader().missed == 1
    (notice,) = scene.told()
    assert "reader_wait_bytes" in notice


def test_a_send_event_has_the_small_facts_of_its_message(scene: Scene) -> None:
    first = scene.harness.send(scene.ada, "@bob", thread="t-1")
    scene.harness.send(scene.bob, "@ada", reply_to=first.message_id, thread="t-1")
    *_, one, two = [event for event in scene.harness.events() if isinstance(event, Sent)]
    assert (one.thread, one.reply_to, one.hops, one.recipients) == ("t-1", "", 0, 1)
    assert (two.thread, two.reply_to, two.recipients) == ("t-1", first.message_id, 1)


def test_a_reader_that_comes_while_a_pass_is_running_keeps_the_rest_of_it(scene: Scene) -> None:
    scene.harness.ask_all(*(c.Send(scene.ada, content=content("@bob", str(n))) for n in range(700)))
    scene.harness.ask(c.Advance(scene.bob, ranges=((1, 700),)))
    scene.harness.pass_ms(8 * DAY_MS)
    left = len(scene.remembered())
    assert 0 < left < 700, "the pass has more to do"
    scene.advance(0)
    for _ in range(3):
        scene.harness.ask(c.Tick())
    assert len(scene.remembered()) == left


@pytest.mark.parametrize("limits", [Limits(reader_wait_ms=0), Limits(reader_wait_bytes=0)])
def test_without_a_bound_retention_waits_for_nobody(make_harness: MakeHarness, limits: Limits) -> None:
    scene = Scene(make_harness(limits))
    scene.advance(len(scene.harness.log()))
    scene.send()
    scene.harness.pass_ms(8 * DAY_MS)
    assert scene.remembered() == []
    assert scene.reader().missed == 1
